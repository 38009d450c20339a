"""Job socket: the Unix socket for jobs' statements and requests. It has its own thread, so that users cannot delay the checks."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from holdfast.agent.jobs.launchers import LauncherConnection, Launchers, send_line
from holdfast.agent.jobs.questions import ROOM, Answers, JobQuestion, encode, parse_question
from holdfast.agent.jobs.rendezvous import Rooms
from holdfast.agent.node.container_paths import mounts_of, on_node
from holdfast.agent.node.job_cgroup import CgroupJob, job_of_cgroup
from holdfast.agent.node.namespaces import PeerProcess, is_in_ours, user_behind
from holdfast.agent.node.processes import SlurmNode, owner_of, started_by_slurm
from holdfast.agent.node.subordinate import SubordinateIds
from holdfast.agent.orders.save_signals import SaveSignals
from holdfast.agent.sending.outbox import OutboxItem
from holdfast.agent.sending.statements import (
    LOGGED_AT_ONCE,
    LOGGED_PER_S,
    REGISTER,
    SIGNAL,
    Ledger,
    LineRate,
    Malformed,
    parse,
)
from holdfast.model.errors import Unavailable
from holdfast.unix_socket import bound

log = logging.getLogger(__name__)

SOCKET = "agent.sock"
LINE_BYTES_MAX = 8192
_PER_USER = 64
"""Maximum connections of one user, and of one job, whichever users its processes run as."""
_OF_THE_GONE = 16
"""Maximum connections, in all, of processes that ended before their user was known."""
_IN_ALL = 1024
_KEPT = 256
"""Of all connections, the number reserved for root and for users who have a job here."""
_ROOTS = 16
"""Of these, the number reserved for root: the prolog and epilog use the socket, too."""
_FIRST_WORD_S = 10.0
"""Idle time after which a connection that never sent anything is dropped."""
_ASKED_S = 300.0
"""The same for a connection that sent only requests, or whose statements were all refused."""
_SILENCE_S = 24 * 3600.0
"""The same for a job whose statements count."""
_ASK_SLURM_EVERY_S = 0.5
"""Minimum time between two queries to slurmd about which process belongs to which job, whatever users claim."""
_SLOWER = 10.0
"""After a slow answer slurmd is not queried for this many times its duration: the socket does nothing else during a query."""
_ASKED_PER_S, _ASKED_AT_ONCE = 0.1, 20.0
"""Rate and burst of queries to slurmd caused by one user's statements."""
_UNREAD_S = 1.0
"""How long a connection is not read after its user exceeded the rate limit."""
_GONE = -1
"""Account of all processes that ended before their user was known: a user has thousands of subordinate ids."""


class _No(NamedTuple):
    """Reason why a line is refused."""

    kind: str
    """Kind of refusal, for the counter."""
    detail: str = ""

    @property
    def text(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


@dataclass(slots=True)
class _Peer:
    connection: socket.socket
    pid: int
    uid: int
    """User id; for a process in a container, of the user who created its namespace."""
    cgroup_job: CgroupJob | None
    mounts: str
    """Both read at connect time, as the process may be gone when a line is read. Empty: it is in no container."""
    heard_s: float
    known: bool
    """False: its process was gone before the user behind the uid could be determined."""
    subordinate_to: str | None = None
    """Owner of the subordinate id, where the process is in no namespace: it executes a file that is set-uid to that id."""
    spoke: bool = False
    stated: bool = False
    """Whether a statement of this connection counted."""
    partial: bytes = b""

    @property
    def account(self) -> int | str:
        """Account for connection and line limits. All subordinate ids of a user share one, separate from the user's own."""
        if not self.known:
            return _GONE
        return self.uid if self.subordinate_to is None else self.subordinate_to

    @property
    def patience_s(self) -> float:
        """Idle time after which the connection is dropped."""
        if not self.spoke or not self.known:
            return _FIRST_WORD_S
        return _SILENCE_S if self.stated else _ASKED_S


@dataclass(slots=True)
class JobProcesses:
    """Users with processes in each job, as slurmd reports them; queried seldom."""

    slurm: SlurmNode
    _users: dict[int, frozenset[int]] = field(default_factory=dict)
    _owners: dict[int, frozenset[int]] = field(default_factory=dict)
    """Users of the tasks that Slurm itself started in the job: not those of processes under a task's ``sudo``."""
    _rate: LineRate = field(default_factory=lambda: LineRate(per_s=_ASKED_PER_S, burst=_ASKED_AT_ONCE))
    _not_before_s: float = float("-inf")
    _failed: str = ""
    """Reason why the last query failed."""

    def which(self, job_ids: tuple[int, ...], uid: int) -> int | None:
        """The first of these jobs that has a process of this user here. Raises Unavailable."""
        if not any(uid in self._users.get(j, ()) for j in job_ids):
            self._ask(uid)
        return next((j for j in job_ids if uid in self._users.get(j, ())), None)

    def any_of(self, uid: int) -> bool:
        """Whether the user has a process in any job here. False also where slurmd does not say."""
        try:
            if not any(uid in users for users in self._users.values()):
                self._ask(uid)
        except Unavailable:
            return False
        return any(uid in users for users in self._users.values())

    def is_anothers(self, job_id: int, uid: int) -> bool:
        """Whether Slurm started tasks in the job here, and none of them as this user. False also where slurmd does not say."""
        try:
            if uid not in self._owners.get(job_id, ()):
                self._ask(uid)
        except Unavailable:
            return False
        owners = self._owners.get(job_id, frozenset())
        return bool(owners) and uid not in owners

    def _ask(self, uid: int) -> None:
        """Query slurmd, unless that was done a short while ago or too often for this user. Raises Unavailable."""
        began_s = time.monotonic()
        if began_s >= self._not_before_s and self._rate.allow(uid, began_s):
            self._failed = ""
            try:
                jobs = self.slurm.job_pids()
            except Unavailable as error:
                self._failed = str(error)
                raise
            finally:
                took_s = time.monotonic() - began_s
                self._not_before_s = began_s + took_s + max(_ASK_SLURM_EVERY_S, _SLOWER * took_s)
            self._users = {job: _users_of(pids) for job, pids in jobs.items()}
            self._owners = {  # without root, who keeps steps open, and whose a task is before it takes the user's rights
                job: _users_of(pid for pid in pids if started_by_slurm(pid)) - {0} for job, pids in jobs.items()
            }
        elif self._failed:
            raise Unavailable(self._failed)


def _users_of(pids: Iterable[int]) -> frozenset[int]:
    return frozenset(user_behind(pid, uid) for pid in pids if (uid := owner_of(pid)) is not None)


class JobSocket:
    """Accepts statements and passes those bound to a job to the outbox."""

    def __init__(
        self,
        folder: Path,
        slurm: SlurmNode,
        report: Callable[[OutboxItem], None],
        rooms: Rooms | None = None,
        save_signals: SaveSignals | None = None,
    ) -> None:
        """``report`` is called from the thread. Raises OSError when the socket cannot be made."""
        _let_all_pass(folder)
        self.path = folder / SOCKET
        self._listener = bound(self.path, 0o666, socket.SOCK_STREAM)  # every user may speak
        self._processes = JobProcesses(slurm)
        self._subordinate = SubordinateIds()
        self._report = report
        self.answers = Answers(rooms)
        self.launchers = Launchers()
        self._save_signals = save_signals or SaveSignals()
        self._ledger = Ledger()
        self._rate = LineRate()
        self._logged = LineRate(per_s=LOGGED_PER_S, burst=LOGGED_AT_ONCE)
        self._peers: dict[int, _Peer] = {}
        self._unread: dict[int, float] = {}
        """Descriptor → monotonic time until which the connection is not read."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ)
        self._stopping = False
        self.refused: Counter[str] = Counter()
        """Refused lines, by reason."""
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
            for key, _events in self._selector.select(self._pause_s()):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, _Peer):
                    self._read(key.data)
            self._read_again()
            self._drop_silent()
            self._tell_late(time.monotonic())
        for peer in list(self._peers.values()):
            self._drop(peer)
        self._tell_late(float("inf"))
        self._selector.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _pause_s(self) -> float | None:
        """Time until the next wakeup; needed only while a connection is to be dropped soon or progress is held."""
        waits = [_FIRST_WORD_S] if any(self._is_brief(peer) for peer in self._peers.values()) else []
        if (late_s := self._ledger.next_s()) is not None:
            waits.append(max(0.0, late_s - time.monotonic()))
        waits += [max(0.0, until_s - time.monotonic()) for until_s in self._unread.values()]
        return min(waits, default=None)

    def _tell_late(self, now_s: float) -> None:
        for item in self._ledger.due(now_s):
            self._report(item)

    def _accept(self) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError as error:
            log.warning("event=statement_accept_failed error=%r", str(error))
            return
        connection.setblocking(False)
        peer = _met(connection, self._subordinate)
        if not self._has_place(peer):
            self._refuse(peer, _No("too many connections"), retry=True)
            connection.close()
            return
        self._peers[connection.fileno()] = peer
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _has_place(self, peer: _Peer) -> bool:
        of_account = sum(other.account == peer.account for other in self._peers.values())
        if of_account >= (_PER_USER if peer.known else _OF_THE_GONE):
            return False
        if peer.known and peer.uid == 0:
            return len(self._peers) < _IN_ALL
        if peer.cgroup_job is not None and self._of_job(peer.cgroup_job.job_id) >= _PER_USER:
            return False
        if len(self._peers) < _IN_ALL - _KEPT:
            return True
        return len(self._peers) < _IN_ALL - _ROOTS and self._has_job_here(peer)

    def _of_job(self, job_id: int) -> int:
        jobs = (other.cgroup_job for other in self._peers.values() if other.uid != 0)
        return sum(job is not None and job.job_id == job_id for job in jobs)

    def _has_job_here(self, peer: _Peer) -> bool:
        """Whether it is a process of its job's own user: a user has other ids, whose processes are in the same cgroup."""
        if not peer.known or peer.subordinate_to is not None:
            return False
        if peer.cgroup_job is not None:
            return not self._is_anothers(peer.cgroup_job, peer.uid)
        return self._processes.any_of(peer.uid)

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
        self._take(peer, peer.partial + data)

    def _take(self, peer: _Peer, data: bytes) -> None:
        """Process all complete lines. A line beyond the user's rate limit is refused, and the connection is not read for a while: what is
        written meanwhile blocks its writer, not this node."""
        *lines, rest = data.split(b"\n")
        for number, line in enumerate(lines):
            if not self._rate.allow(peer.account, time.monotonic()):
                self._refuse(peer, _No("too many statements"), retry=True)
                peer.partial = b"\n".join([*lines[number + 1 :], rest])
                self._leave_unread(peer)
                return
            if line.strip():
                self._line(peer, line)
        peer.partial = rest
        if len(peer.partial) > LINE_BYTES_MAX:
            self._refuse(peer, _No("line too long"))
            self._drop(peer)

    def _leave_unread(self, peer: _Peer) -> None:
        if peer.connection.fileno() in self._peers:
            self._selector.unregister(peer.connection)
            self._unread[peer.connection.fileno()] = time.monotonic() + _UNREAD_S

    def _read_again(self) -> None:
        now_s = time.monotonic()
        for number in [n for n, until_s in self._unread.items() if until_s <= now_s]:
            del self._unread[number]
            peer = self._peers[number]
            self._selector.register(peer.connection, selectors.EVENT_READ, peer)
            self._take(peer, peer.partial)

    def _line(self, peer: _Peer, line: bytes) -> None:
        now_s = time.monotonic()
        try:
            if len(line) > LINE_BYTES_MAX:
                raise Malformed("line too long")
            if (question := parse_question(line)) is not None:
                self._answer(peer, question)
                return
            said = parse(line)
        except Malformed as error:
            self._refuse(peer, _No("malformed", str(error)))
            return
        peer.spoke = True
        job_id, why = self._bind(peer, (said.job_id, *said.components))
        if job_id is None:
            self._refuse(peer, why, retry=self._may_be_new(peer))
            return
        peer.stated = True
        said = replace(said, job_id=job_id, path=None if said.path is None else on_node(said.path, peer.mounts))
        if self._ledger.early(said, peer.uid, now_s):
            self._ledger.hold(said, peer.uid, said.item(peer.uid, now_s))
            return
        late = self._ledger.take(said, peer.uid, now_s)
        if late is not None:
            self._refuse(peer, _No(late))
            return
        if said.kind != "progress" and self._logged.allow(peer.account, now_s):
            log.info("event=statement kind=%s job=%d uid=%d step=%s", said.kind, said.job_id, peer.uid, said.step)
        if said.kind in (REGISTER, SIGNAL):
            self._save_signals.registered(said.job_id, peer.uid, said.restarts, said.detail.get("save_signal"))
        if said.kind != SIGNAL:
            self._report(said.item(peer.uid, now_s))

    def _answer(self, peer: _Peer, question: JobQuestion) -> None:
        """Answer a request; anyone may send one. Slow answers are produced in another thread, and a directory is read with the user's own
        rights."""
        peer.spoke = True
        if question.kind == "ask.standing":
            send_line(peer.connection, self.answers.standing())
        elif question.kind == ROOM:
            self._answer_room(peer, question)
        else:
            said, where = question.directory, on_node(question.directory, peer.mounts)
            self._beside(peer, lambda: self.answers.latest(where, peer.uid, question.within_s, said=said))

    def _answer_room(self, peer: _Peer, question: JobQuestion) -> None:
        """Send a process of the job its rendezvous, and register it as the launcher of that run."""
        job_id, why = self._bind(peer, (question.job_id,))
        if job_id is None:
            self._refuse(peer, why, retry=self._may_be_new(peer))
            return
        self.launchers.add(LauncherConnection(job_id, question.restarts, peer.pid, peer.connection))
        self._beside(peer, lambda: self.answers.room(job_id, peer.uid, question.restarts, peer.pid))

    def _may_be_new(self, peer: _Peer) -> bool:
        """Whether slurmd may not know the process yet, because its task has just started; a cgroup is never wrong about it."""
        return peer.cgroup_job is None

    def _beside(self, peer: _Peer, look: Callable[[], bytes]) -> None:
        try:
            threading.Thread(
                target=lambda: send_line(peer.connection, look()), name="job-question", daemon=True
            ).start()
        except RuntimeError:  # no more threads: the socket matters more than one request
            self._refuse(peer, _No("too many questions at a time"), retry=True)

    def _bind(self, peer: _Peer, jobs: tuple[int, ...]) -> tuple[int | None, _No]:
        """The job among these that the sender belongs to; or None and the reason for the refusal. The cgroup decides where it names a job.

        A task of a heterogeneous job speaks for its own component."""
        if peer.subordinate_to is not None:
            return None, _No("not a job of this user on this node")  # Slurm starts no job as such a user
        named = peer.cgroup_job
        if named is not None:
            if named.job_id not in jobs:
                return None, _No("not this process's job")
            return (None, _No("not this user's job")) if self._is_anothers(named, peer.uid) else (named.job_id, _No(""))
        try:
            return self._processes.which(jobs, peer.uid), _No("not a job of this user on this node")
        except Unavailable as error:
            return None, _No("the job cannot be looked up", str(error))

    def _is_anothers(self, job: CgroupJob, uid: int) -> bool:
        """Whether the job is another user's, by the cgroup's path where it names the user, else as slurmd reports, if it answers: the store
        compares as well."""
        return self._processes.is_anothers(job.job_id, uid) if job.uid is None else job.uid != uid

    def _refuse(self, peer: _Peer, why: _No, *, retry: bool = False) -> None:
        """Refuse a line. ``retry``: the same line may be accepted later."""
        self._count(why, peer.uid)
        send_line(peer.connection, encode({"error": why.text[:200], "retry": retry}))

    def _count(self, why: _No, uid: int) -> None:
        self.refused[why.kind] += 1
        times = self.refused[why.kind]
        if times in (1, 10, 100) or times % 1000 == 0:
            log.warning("event=statement_refused reason=%r uid=%d times=%d", why.text, uid, times)

    def _drop_silent(self) -> None:
        now_s = time.monotonic()
        for peer in list(self._peers.values()):
            if now_s - peer.heard_s > peer.patience_s and not self.launchers.knows(peer.connection):
                self._drop(peer)

    def _is_brief(self, peer: _Peer) -> bool:
        return peer.patience_s < _SILENCE_S and not self.launchers.knows(peer.connection)

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.connection.fileno(), None) is not None:
            self.launchers.remove(peer.connection)
            if self._unread.pop(peer.connection.fileno(), None) is None:
                self._selector.unregister(peer.connection)
            peer.connection.close()


def _met(connection: socket.socket, ids: SubordinateIds) -> _Peer:
    """Identify the peer by the kernel's record, while its process exists: a reused pid would name another process."""
    with PeerProcess(connection) as process:
        pid, uid = process.pid, user_behind(process.pid, process.uid)
        job, mounts = job_of_cgroup(pid), mounts_of(pid)
        owner = ids.owner(uid) if is_in_ours(pid) else None
        if process.exists():
            return _Peer(connection, pid, uid, job, mounts, time.monotonic(), known=True, subordinate_to=owner)
    return _Peer(connection, pid, process.uid, None, "", time.monotonic(), known=False)


def _let_all_pass(folder: Path) -> None:
    """Create the folder so that every user can enter it, whatever the umask. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o055 != 0o055:
            os.fchmod(descriptor, mode | 0o055)
    except PermissionError:
        log.warning("event=jobs_kept_out folder=%s reason='not ours, and closed to users'", folder)
    finally:
        os.close(descriptor)
