"""Children that read a user's files with that user's rights: one at a time for each user, with limits on time and output.

Any user may mount a file system that never answers (FUSE needs no rights) and name a path in it. The child that opens it may then hang
where SIGKILL does not end it. It is left behind and remembered, and nothing more is read for that user until it has ended: so any path
costs the agent at most one process, and no thread waits forever."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from holdfast.model.errors import Unavailable
from holdfast_checks.probes.child import Children, Finished, Hung

log = logging.getLogger(__name__)

_AT_A_TIME = 8
"""Maximum number of users read for at a time."""
_WAITING = 4
"""Maximum number of waiting reads of one user; one more is refused at once."""
_START = """
import json, os, sys
sys.path.insert(0, sys.argv.pop(1))
os.chdir("/")
from holdfast_checkpoint.as_user import identity_of
from holdfast_checkpoint.child import become, bound
from holdfast_checkpoint.base.confined import Limits, printable
from holdfast_checkpoint.judge import must_know, survey
from holdfast_checkpoint.base.model import CheckpointError
from holdfast_checkpoint.tail import tail
FAULTS = (CheckpointError, OSError, ValueError, MemoryError, RecursionError)
def become_user(uid, within_s, file_bytes=0):
    who = identity_of(uid) if os.geteuid() == 0 else None
    bound(within_s, file_bytes)
    if who is not None:
        become(who.uid, who.gid, list(who.groups))
    elif uid != os.geteuid():
        raise CheckpointError(f"only root can read as uid {uid}")
"""
"""Not imported, because the agent loads little. After ``become_user`` the child has only the user's rights, starts nothing and cannot be
traced: no user gains a process in the agent's cgroup."""


class TooManyReads(Unavailable):
    """Too many reads for this user, or in all."""


class LeftBehind(Unavailable):
    """A child of this user hangs in the kernel; the text names it."""


class ReaderPool:
    """Reader pool, one for the whole process (:data:`READERS`); safe to use from several threads."""

    def __init__(self, children: Children | None = None) -> None:
        self._children = children or Children()
        self._turn = threading.Condition()
        self._reading: set[int] = set()
        self._waiting: Counter[int] = Counter()
        self._reported: set[int] = set()

    def run(
        self,
        uid: int,
        script: str,
        args: Sequence[object],
        within_s: float,
        *,
        max_bytes: int = 64 << 10,
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run a script that calls ``become_user(uid, within_s)`` before it opens anything; ``args`` are its ``sys.argv[1:]``. ``env``: what
        it gets and other users may not read.

        Blocks for ``within_s``, the wait for the user's turn included, and a second more. Raises Unavailable (:class:`TooManyReads`,
        :class:`LeftBehind`)."""
        until_s = time.monotonic() + within_s
        argv = [sys.executable, "-P", "-c", _START + script, _packages(), *map(str, args)]
        self._take_turn(uid, within_s)
        try:
            left_s = until_s - time.monotonic()
            done = self._children.run(
                f"uid {uid}", argv, left_s, max_bytes=max_bytes, env={"LC_ALL": "C.UTF-8", **(env or {})}
            )
        except OSError as error:
            raise Unavailable(f"the reader cannot be started: {error}") from error
        finally:
            with self._turn:
                self._reading.discard(uid)
                self._turn.notify_all()
        if isinstance(done, Hung):
            raise self._late(uid, done)
        self._reported.discard(uid)
        return done

    def _take_turn(self, uid: int, within_s: float) -> None:
        with self._turn:
            if self._waiting[uid] >= _WAITING:
                raise TooManyReads(f"{_WAITING} reads of uid {uid} wait already")
            self._waiting[uid] += 1
            try:
                free = self._turn.wait_for(
                    lambda: uid not in self._reading and len(self._reading) < _AT_A_TIME, within_s
                )
            finally:
                self._waiting -= Counter((uid,))
            if not free:
                raise TooManyReads(f"another read of uid {uid}, or of {_AT_A_TIME} other users, has not ended")
            self._reading.add(uid)

    def _late(self, uid: int, hung: Hung) -> Unavailable:
        if not hung.left_behind:
            return Unavailable("no answer from the file system in time")
        if uid not in self._reported:
            self._reported.add(uid)
            effect = "nothing more is read for this user until it has ended"
            log.warning("event=reader_left_behind uid=%d pid=%d effect=%r", uid, hung.pid, effect)
        return LeftBehind(
            f"no answer from the file system: the reader of uid {uid} (pid {hung.pid}) has hung in the kernel for {hung.seconds:.0f} s "
            "and cannot be ended; nothing more is read for this user until it has"
        )


def _packages() -> str:
    """Folder of the reader's package, which is not loaded here."""
    spec = find_spec("holdfast_checkpoint")
    return str(Path(spec.origin).parent.parent) if spec is not None and spec.origin else ""


READERS = ReaderPool()
"""Reader pool of this process: all reads of users' files go through it."""
