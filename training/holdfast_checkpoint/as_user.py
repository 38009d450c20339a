"""Read a user's checkpoint directory from a daemon or as root: in a child process that runs as that user, with a deadline.

The child starts as root with a clean environment, imports what it needs, drops its privileges permanently and only then
opens any file. (So the user need not be able to read the interpreter, and a process that changed its uid cannot be
traced by that user.) Its answer still counts as input from the user: it is bounded, checked field by field, and used only
to decide where *this user's* job resumes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from holdfast_checkpoint.base.confined import Limits
from holdfast_checkpoint.base.model import Checkpoint, CheckpointError, Survey, Unreadable
from holdfast_checkpoint.wire import parse_checkpoint, parse_survey

_START = "import sys; sys.path.insert(0, sys.argv[1]); from holdfast_checkpoint.child import main; main()"
_ANSWER_BYTES_MAX = 32 << 20
_MARGIN_S = 3.0
"""Time added to the child's own deadline, for its start and the answer."""
_REAP_S = 1.0
"""How long to wait for a killed child: one that hangs in the kernel on a dead file server cannot be killed, and is left behind."""
_CHUNK_BYTES = 1 << 16
_LOCK = threading.Lock()
_TURNS: dict[int, threading.Lock] = {}
"""By uid: held while a child reads as this user."""
_LEFT: dict[int, subprocess.Popen[bytes]] = {}
"""By uid: a child that did not end on SIGKILL. Accessed only by the holder of this uid's lock."""


@dataclass(frozen=True)
class UserIdentity:
    """The user whose rights the child gets."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    """Supplementary groups."""


def identity_of(uid: int) -> UserIdentity:
    """The identity from the user database. Raises CheckpointError for a uid without an entry."""
    try:
        entry = pwd.getpwuid(uid)
    except (KeyError, OverflowError) as error:
        raise CheckpointError(f"uid {uid} is not in the user database; give its groups explicitly") from error
    return UserIdentity(uid, entry.pw_gid, tuple(sorted(os.getgrouplist(entry.pw_name, entry.pw_gid))))


def survey_as(
    directory: str,
    who: UserIdentity,
    *,
    to_the_end: bool = False,
    digests: bool | None = None,
    any_owner: bool = False,
    limits: Limits | None = None,
    enough: int = 1,
    must_exist: bool = False,
) -> Survey:
    """:func:`~holdfast_checkpoint.judge.survey` as another user. Raises Unreadable."""
    options: dict[str, bool | int | None] = {"digests": digests, "any_owner": any_owner}
    if not to_the_end:
        options |= {"enough": enough, "must_exist": must_exist}
    verb = "survey_all" if to_the_end else "survey"
    answer = _ask(verb, directory, who, limits or Limits(), options)
    try:
        return parse_survey(answer)
    except (ValueError, TypeError) as error:
        raise Unreadable(f"the judge gave an answer that cannot be read: {error}") from error


def verify_as(path: str, who: UserIdentity, *, any_owner: bool = False, limits: Limits | None = None) -> Checkpoint:
    """:func:`~holdfast_checkpoint.judge.verify` as another user. Raises Unreadable, FileNotFoundError."""
    answer = _ask("verify", path, who, limits or Limits(), {"any_owner": any_owner})
    try:
        return parse_checkpoint(answer)
    except (ValueError, TypeError) as error:
        raise Unreadable(f"the judge gave an answer that cannot be read: {error}") from error


def _ask(
    verb: str, path: str, who: UserIdentity, limits: Limits, options: dict[str, bool | int | None]
) -> dict[str, Any]:
    if os.geteuid() != 0 and who.uid != os.geteuid():
        raise CheckpointError(f"only root can judge as uid {who.uid}")
    request = {
        "verb": verb,
        "path": os.path.abspath(path),
        "who": asdict(who) if os.geteuid() == 0 else None,
        "limits": asdict(limits),
        "options": options,
    }
    try:
        answer = json.loads(_run_child(json.dumps(request).encode(), limits.deadline_s + _MARGIN_S, who.uid))
    except (ValueError, RecursionError) as error:
        raise Unreadable("the judge gave no answer") from error
    if not isinstance(answer, dict):
        raise Unreadable("the judge gave no answer")
    if answer.get("error") == "FileNotFoundError":
        raise FileNotFoundError(f"no such checkpoint: {path}")
    if "error" in answer:
        raise Unreadable(str(answer.get("text"))[:500])
    return answer


def _run_child(request: bytes, deadline_s: float, uid: int) -> bytes:
    """Run a child and return its answer. One child at a time per uid, and none while an earlier one has not ended on SIGKILL."""
    until_s = time.monotonic() + deadline_s
    with _LOCK:
        turn = _TURNS.setdefault(uid, threading.Lock())
    if not turn.acquire(timeout=deadline_s):
        raise Unreadable(f"another judge reads as uid {uid}")
    try:
        left = _LEFT.get(uid)
        if left is not None and left.poll() is None:
            raise Unreadable(f"{_hangs(left.pid)}; nothing more is read as uid {uid} until it has ended")
        _LEFT.pop(uid, None)
        return _answer_of(_started(), request, until_s, uid)
    finally:
        turn.release()


def _started() -> subprocess.Popen[bytes]:
    package_folder = str(Path(__file__).resolve().parent.parent)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _START, package_folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env={"LC_ALL": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    )


def _answer_of(child: subprocess.Popen[bytes], request: bytes, until_s: float, uid: int) -> bytes:
    """Kill the child without waiting forever: one that does not end is left behind and remembered."""
    if child.stdin is None or child.stdout is None:
        raise Unreadable("the judge has no pipes")
    try:
        with child.stdin, child.stdout:
            answer = _exchange(child.stdin, child.stdout, request, until_s)
    finally:
        _kill(child)
        ended = _reaped(child)
        if not ended:
            _LEFT[uid] = child
    if answer is None and not ended:
        raise Unreadable(f"{_hangs(child.pid)}; the file system may be dead")
    if not answer or len(answer) > _ANSWER_BYTES_MAX:
        raise Unreadable("the judge passed its deadline or was ended")
    return answer


def _hangs(pid: int) -> str:
    return f"the judge (pid {pid}) hangs in the kernel and cannot be ended"


def _exchange(stdin: IO[bytes], stdout: IO[bytes], request: bytes, until_s: float) -> bytes | None:
    """Write the request and read the answer to its end, without blocking; None: not complete by then (on CLOCK_MONOTONIC)."""
    answer, rest = bytearray(), memoryview(request)
    poll = select.poll()
    for pipe, event in ((stdin, select.POLLOUT), (stdout, select.POLLIN)):
        os.set_blocking(pipe.fileno(), False)
        poll.register(pipe, event)
    while (left_s := until_s - time.monotonic()) > 0 and len(answer) <= _ANSWER_BYTES_MAX:
        for fd, _events in poll.poll(max(1, int(left_s * 1000))):
            if fd == stdout.fileno():
                data = os.read(fd, _CHUNK_BYTES)
                if not data:
                    return bytes(answer)
                answer += data
            else:
                rest = rest[_taken(fd, rest) :]
                if not rest:
                    poll.unregister(fd)
                    stdin.close()
    return bytes(answer) if len(answer) > _ANSWER_BYTES_MAX else None


def _taken(fd: int, data: memoryview) -> int:
    """Bytes written to the pipe; all of them if the reader is gone: then there is no answer either."""
    try:
        return os.write(fd, data)
    except BrokenPipeError:
        return len(data)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill its whole process group; a child that was not waited for keeps its pid."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _reaped(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(_REAP_S)
    except subprocess.TimeoutExpired:
        return False
    return True
