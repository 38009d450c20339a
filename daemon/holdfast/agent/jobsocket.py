"""The Unix socket on which jobs speak. A thread of its own: nothing that users do there can hold up the watch."""

from __future__ import annotations

import json
import logging
import os
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.agent.outbox import Item
from holdfast.agent.processes import SlurmNode, job_of_cgroup, owner_of
from holdfast.agent.questions import Answers, Question, parse_question
from holdfast.agent.statements import Ledger, Malformed, Rate, Said, parse
from holdfast.model.errors import Unavailable

log = logging.getLogger(__name__)

SOCKET = "agent.sock"
LINE_BYTES_MAX = 8192
_PER_USER = 64
_IN_ALL = 1024
_FIRST_WORD_S = 10.0
"""Who has connected and says nothing for so long is dropped."""
_SILENCE_S = 24 * 3600.0
_ASK_SLURM_EVERY_S = 0.5
"""Most often that slurmd is asked which process belongs to which job, whatever users claim."""
_PEERCRED = struct.Struct("3i")


@dataclass(slots=True)
class _Peer:
    connection: socket.socket
    pid: int
    uid: int
    cgroup_job: int | None
    """Read when it connected; its process may be gone when the line is read."""
    heard_s: float
    spoke: bool = False
    partial: bytes = b""
    last_progress: Item | None = None
    """The newest progress that was too early to be sent; sent when the job falls silent, so that its last step is known."""


@dataclass(slots=True)
class JobProcesses:
    """slurmd's word on which users have processes in which job, asked seldom."""

    slurm: SlurmNode
    _users: dict[int, frozenset[int]] = field(default_factory=dict)
    _asked_s: float = float("-inf")

    def which(self, job_ids: tuple[int, ...], uid: int) -> int | None:
        """The first of these jobs that has a process of this user here. Raises Unavailable."""
        if (
            not any(uid in self._users.get(j, ()) for j in job_ids)
            and time.monotonic() >= self._asked_s + _ASK_SLURM_EVERY_S
        ):
            self._asked_s = time.monotonic()
            jobs = self.slurm.job_pids()
            self._users = {
                job: frozenset(u for pid in pids if (u := owner_of(pid)) is not None) for job, pids in jobs.items()
            }
        return next((j for j in job_ids if uid in self._users.get(j, ())), None)


class JobSocket:
    """Accepts statements and hands those that are bound on, as items for the outbox."""

    def __init__(self, folder: Path, slurm: SlurmNode, report: Callable[[Item], None]) -> None:
        """``report`` is called from the thread. Raises OSError when the socket cannot be made."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        self.path = folder / SOCKET
        self._listener = _listen(self.path)
        self._processes = JobProcesses(slurm)
        self._report = report
        self.answers = Answers()
        self._ledger = Ledger()
        self._rate = Rate()
        self._peers: dict[int, _Peer] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ)
        self._stopping = False
        self.refused: Counter[str] = Counter()
        """Lines that did not count, by reason."""
        self._thread = threading.Thread(target=self._run, name="job-socket", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        os.eventfd_write(self._wake_fd, 1)
        self._thread.join(5.0)
        os.close(self._wake_fd)

    def _run(self) -> None:
        while not self._stopping:
            # Only while somebody has not spoken yet is there a reason to wake up without news.
            waiting = any(not peer.spoke for peer in self._peers.values())
            for key, _events in self._selector.select(_FIRST_WORD_S if waiting else None):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, _Peer):
                    self._read(key.data)
            self._drop_silent()
        for peer in list(self._peers.values()):
            self._drop(peer)
        self._selector.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError as error:
            log.warning("event=statement_accept_failed error=%r", str(error))
            return
        pid, uid, _gid = _PEERCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size))
        of_user = sum(peer.uid == uid for peer in self._peers.values())
        if of_user >= _PER_USER or len(self._peers) >= _IN_ALL:
            self._count("too many connections", uid)
            connection.close()
            return
        connection.setblocking(False)
        peer = _Peer(connection, pid, uid, job_of_cgroup(pid), time.monotonic())
        self._peers[connection.fileno()] = peer
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(peer)
            return
        peer.heard_s = time.monotonic()
        *lines, peer.partial = (peer.partial + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._line(peer, line)
        if len(peer.partial) > LINE_BYTES_MAX:
            self._refuse(peer, "line too long")
            self._drop(peer)

    def _line(self, peer: _Peer, line: bytes) -> None:
        now_s = time.monotonic()
        if not self._rate.allow(peer.uid, now_s):
            self._refuse(peer, "too many statements")
            return
        try:
            if len(line) > LINE_BYTES_MAX:
                raise Malformed("line too long")
            if (question := parse_question(line)) is not None:
                self._answer(peer, question)
                return
            said = parse(line)
        except Malformed as error:
            self._refuse(peer, f"malformed: {error}")
            return
        peer.spoke = True
        said, why = self._bind(peer, said)
        if why is None and self._ledger.early(said, now_s):
            peer.last_progress = said.item(peer.uid, now_s)
            return
        why = why or self._ledger.take(said, now_s)
        if why is not None:
            self._refuse(peer, why)
            return
        if said.kind != "progress":
            log.info("event=statement kind=%s job=%d uid=%d step=%s", said.kind, said.job_id, peer.uid, said.step)
        if said.kind == "progress":
            peer.last_progress = None
        self._report(said.item(peer.uid, now_s))

    def _answer(self, peer: _Peer, question: Question) -> None:
        """Anyone may ask; a directory is looked at with the asker's own rights, beside this thread."""
        peer.spoke = True
        if question.kind == "ask.standing":
            _send(peer.connection, self.answers.standing())
            return

        def look() -> None:
            _send(peer.connection, self.answers.latest(question.directory, peer.uid, question.within_s))

        try:
            threading.Thread(target=look, name="job-question", daemon=True).start()
        except RuntimeError:  # no more threads: a question is not worth the socket
            self._refuse(peer, "too many questions at a time")

    def _bind(self, peer: _Peer, said: Said) -> tuple[Said, str | None]:
        """The statement as its job's, and why the speaker may not make it. The cgroup decides where it names a job.

        A task of a heterogeneous job speaks for the component that it belongs to."""
        jobs = (said.job_id, *said.components)
        if peer.cgroup_job is not None:
            job, why = peer.cgroup_job if peer.cgroup_job in jobs else None, "not this process's job"
        else:
            try:
                job, why = self._processes.which(jobs, peer.uid), "not a job of this user on this node"
            except Unavailable as error:
                job, why = None, f"the job cannot be looked up: {error}"
        return (said, why) if job is None else (replace(said, job_id=job), None)

    def _refuse(self, peer: _Peer, why: str) -> None:
        self._count(why, peer.uid)
        _send(peer.connection, json.dumps({"error": why[:200]}).encode() + b"\n")

    def _count(self, why: str, uid: int) -> None:
        reason = why.split(":", maxsplit=1)[0]
        self.refused[reason] += 1
        if self.refused[reason] in (1, 10, 100) or self.refused[reason] % 1000 == 0:
            log.warning("event=statement_refused reason=%r uid=%d times=%d", why, uid, self.refused[reason])

    def _drop_silent(self) -> None:
        now_s = time.monotonic()
        for peer in list(self._peers.values()):
            if now_s > peer.heard_s + (_SILENCE_S if peer.spoke else _FIRST_WORD_S):
                self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.connection.fileno(), None) is not None:
            if peer.last_progress is not None:
                self._report(peer.last_progress)
            self._selector.unregister(peer.connection)
            peer.connection.close()


def _send(connection: socket.socket, line: bytes) -> None:
    try:
        connection.send(line, socket.MSG_NOSIGNAL)
    except OSError:
        return  # it does not listen, which is its right


def _listen(path: Path) -> socket.socket:
    """A listener at the path, open to every user; one that a dead agent left is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    try:
        listener.bind(str(temporary))
        temporary.chmod(0o666)
        listener.listen(128)
        temporary.replace(path)
    except OSError:
        listener.close()
        raise
    return listener
