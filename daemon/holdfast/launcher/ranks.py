"""Processes of one start of the group on this node, including everything that the ranks start."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from holdfast.launcher import processes
from holdfast.launcher.outcome import exit_status
from holdfast.launcher.processes import LaunchedProcess
from holdfast.model.errors import HoldfastError

NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Exit statuses as in a shell."""


class CannotStart(HoldfastError):
    """The command cannot be run at all."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class RankProcesses:
    """The ranks, each in its own session. Only the launcher's main thread may use it: ranks die with the thread that started them."""

    def __init__(self, mark: str, guard: int) -> None:
        """``mark``: NAME=value as in the ranks' environment. ``guard``: a child of the launcher that is not part of the group."""
        self._mark = mark.encode()
        self._guard = guard
        self._popen: dict[int, subprocess.Popen[bytes]] = {}
        self._rank_of: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        """Local rank → exit status as in a shell, in the order in which they ended."""

    def start(self, command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        """Start one rank for each environment. Raises CannotStart; some of them may be running then."""
        for rank, env in enumerate(environments):
            try:
                started = _spawn(command, env, inherit_stdin=len(environments) == 1)
            except OSError as error:
                code = NOT_FOUND if error.errno == errno.ENOENT else NOT_RUNNABLE
                raise CannotStart(f"{command[0]} cannot be started: {error.strerror}", code) from error
            self._popen[rank], self._rank_of[started.pid] = started, rank

    @property
    def running(self) -> bool:
        """Whether a rank is left; processes that the ranks have started do not count."""
        return len(self.codes) < len(self._popen)

    def reap(self, others: Callable[[int], None]) -> list[int]:
        """Reap every child that has ended; the local ranks among them. ``others`` is called for each adopted one."""
        ended: list[int] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            rank = self._rank_of.pop(pid, None)
            if rank is None:
                others(pid)
                continue
            self.codes[rank] = self._popen[rank].returncode = exit_status(status)
            ended.append(rank)

    def ask(self) -> None:
        """Send SIGUSR1 to the processes that handle it. A rank without one cannot leave, yet or ever: it gets SIGTERM."""
        seen = processes.table()
        for child in self._children(seen):
            handlers = processes.nearest_catching([child], signal.SIGUSR1, seen)
            for process in handlers:
                processes.send(process, signal.SIGUSR1)
            if not handlers and child in self._rank_of and not seen[child].zombie:
                _signal_session(child, signal.SIGTERM)

    def leavers(self) -> bool:
        """Whether a process is left that could receive the request to leave."""
        seen = processes.table()
        return bool(processes.nearest_catching(self._children(seen), signal.SIGUSR1, seen))

    def left(self) -> list[LaunchedProcess]:
        """Live processes of the group: all descendants of the launcher except its guard, and all processes that carry its mark."""
        seen = processes.table()
        found = [p for p in processes.below(os.getpid(), seen) if p.pid != self._guard and not p.zombie]
        found += [p for p in processes.marked(self._mark, seen) if p.pid != os.getpid()]
        return list({p.pid: p for p in found}.values())

    def terminate(self) -> None:
        """Send SIGTERM to the ranks' sessions, and to processes that have outlived their rank."""
        for leader in self._rank_of:
            _signal_session(leader, signal.SIGTERM)
        for process in self.left():
            if process.parent == os.getpid() and process.pid not in self._rank_of:
                processes.send(process, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to all that is left. Repeat it: a process may just be starting another one."""
        for process in self.left():
            processes.send(process, signal.SIGKILL)

    def _children(self, seen: Mapping[int, LaunchedProcess]) -> list[int]:
        """Ranks, and processes that have outlived the rank that started them."""
        return [p.pid for p in seen.values() if p.parent == os.getpid() and p.pid != self._guard]


def _spawn(command: Sequence[str], env: Mapping[str, str], inherit_stdin: bool) -> subprocess.Popen[bytes]:
    launcher = os.getpid()

    def in_child() -> None:
        processes.die_with_parent()
        if os.getppid() != launcher:  # the launcher was killed before PR_SET_PDEATHSIG took effect
            os._exit(1)

    return subprocess.Popen(
        command,
        env=env,
        stdin=None if inherit_stdin else subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=in_child,  # noqa: PLW1509 - there are no threads
    )


def _signal_session(leader: int, number: signal.Signals) -> None:
    """Signal the process group of a rank, which is not reaped yet, so its id is still its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
