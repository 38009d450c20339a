"""Commands in children with a deadline: what hangs in the kernel is left behind, and never started a second time while it is there.

A process in state D cannot be killed. Waiting for it would hang the caller, and starting another one each minute would fill the machine;
so each command has a key, and a key whose child survived SIGKILL answers :class:`Hung` at once until that child is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_KILLED_S = 0.5
"""A process that SIGKILL ends is gone within this; one that is not, hangs in the kernel."""
_MOST_INPUT_BYTES = 4096
"""A pipe takes this much at once on every system, so that the input needs no extra write."""
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}.get(platform.machine())
_IOPRIO_WHO_PGRP = 2
_IOPRIO_IDLE = 3 << 13
_NICE = 19


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that exited before its deadline."""

    status: int
    """Its exit status; negative: the signal that ended it."""
    out: bytes
    err: bytes
    truncated: bool = False
    """It said more than was kept."""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """Its standard output."""
        return self.out.decode("utf-8", "replace")

    @property
    def complaint(self) -> str:
        """Why it failed, in one line: its standard error (else its output) cut to 200 characters, and the status."""
        words = " ".join((self.err or self.out).decode("utf-8", "replace").split())[:200]
        return f"{words or 'no message'} (exit status {self.status})"


@dataclass(frozen=True, slots=True)
class Hung:
    """A command that did not end in time."""

    seconds: float
    """Since it was started."""
    left_behind: bool
    """It survived SIGKILL and is still there: it hangs in the kernel. False: it was killed."""
    pid: int
    """0: another thread's run of it has not ended."""


class Children:
    """Runs commands. One for the whole process (:data:`CHILDREN`); may be used from several threads."""

    def __init__(self, kill: Callable[[int], None] | None = None) -> None:
        """``kill`` ends a process group, and may fail to; SIGKILL by default."""
        self._kill = kill or _kill_group
        self._lock = threading.Condition()
        self._left: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        self._busy: set[str] = set()

    def run(
        self,
        key: str,
        argv: Sequence[str],
        deadline_s: float,
        *,
        max_bytes: int = 65536,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        gentle: bool = False,
    ) -> Finished | Hung:
        """Run ``argv`` without a shell in its own process group; at the deadline the group is killed.

        ``max_bytes`` are kept of each of stdout and stderr; ``env`` replaces the environment (default: ours, with LC_ALL=C); ``stdin`` is
        at most 4096 bytes; ``gentle``: nice 19 and idle I/O class. While another thread runs the same key this one waits, at most as long
        as the deadline. The executable should be on a local disk: where exec itself hangs, so
        does this. Raises OSError when it cannot be started (FileNotFoundError: there is no such command), ValueError for too much input."""
        if len(stdin) > _MOST_INPUT_BYTES:
            raise ValueError(f"at most {_MOST_INPUT_BYTES} bytes of input")
        with self._lock:
            if not self._lock.wait_for(lambda: key not in self._busy, deadline_s):
                return Hung(deadline_s, left_behind=False, pid=0)
            if (hung := self._still_there(key)) is not None:
                return hung
            self._busy.add(key)
        try:
            return self._run(key, argv, deadline_s, max_bytes, env, stdin, gentle)
        finally:
            with self._lock:
                self._busy.discard(key)
                self._lock.notify_all()

    def left_behind(self) -> tuple[int, ...]:
        """Pids of children that survived SIGKILL and are still there."""
        with self._lock:
            return tuple(hung.pid for key in list(self._left) if (hung := self._still_there(key)) is not None)

    def hung(self, prefix: str) -> Hung | None:
        """One that survived SIGKILL and is still there, of the keys that begin so."""
        with self._lock:
            found = (self._still_there(key) for key in list(self._left) if key.startswith(prefix))
            return next((hung for hung in found if hung is not None), None)

    def _still_there(self, key: str) -> Hung | None:
        if (left := self._left.get(key)) is None:
            return None
        process, began_s = left
        if process.poll() is None:
            return Hung(time.monotonic() - began_s, left_behind=True, pid=process.pid)
        del self._left[key]
        return None

    def _run(
        self,
        key: str,
        argv: Sequence[str],
        deadline_s: float,
        max_bytes: int,
        env: Mapping[str, str] | None,
        stdin: bytes,
        gentle: bool,
    ) -> Finished | Hung:
        began_s = time.monotonic()
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"} if env is None else dict(env),
            start_new_session=True,
        )
        if gentle:
            _be_gentle(process.pid)
        _feed(process, stdin)
        kept = _Output(process, max_bytes)
        ended = kept.read_until_end(began_s + deadline_s)
        self._kill(
            process.pid
        )  # what it left running; the leader is a zombie until it is waited for, so its id is ours
        kept.close()
        seconds = time.monotonic() - began_s
        try:
            status = process.wait(_KILLED_S)
        except subprocess.TimeoutExpired:
            with self._lock:
                self._left[key] = (process, began_s)
            return Hung(seconds, left_behind=True, pid=process.pid)
        if not ended:
            return Hung(seconds, left_behind=False, pid=process.pid)
        return Finished(status, bytes(kept.out), bytes(kept.err), kept.truncated, seconds)


class _Output:
    """The two pipes of a child: the first bytes of each are kept, the others read and dropped, so that it never blocks on them."""

    def __init__(self, process: subprocess.Popen[bytes], most: int) -> None:
        assert process.stdout is not None  # noqa: S101 - we asked for pipes
        assert process.stderr is not None  # noqa: S101
        self.out, self.err = bytearray(), bytearray()
        self.truncated = False
        self._process = process
        self._most = most
        self._pipes = (process.stdout, process.stderr)
        self._open = {process.stdout.fileno(): self.out, process.stderr.fileno(): self.err}
        for fd in self._open:
            os.set_blocking(fd, False)

    def read_until_end(self, deadline_s: float) -> bool:
        """Until the process has ended; False: it has not by the deadline (on CLOCK_MONOTONIC)."""
        poll = select.poll()
        for fd in self._open:
            poll.register(fd, select.POLLIN)
        pidfd = _pidfd(self._process.pid)
        if pidfd is not None:
            poll.register(pidfd, select.POLLIN)
        try:
            while not _has_ended(self._process.pid):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                # Without a pidfd: wait for the end of the pipes, or check now and then where nothing is left to poll.
                pause_s = left_s if pidfd is not None else min(left_s, 0.05)
                for fd, _events in poll.poll(max(1, int(pause_s * 1000))):
                    if fd in self._open and not self._drain(fd):
                        poll.unregister(fd)
        finally:
            if pidfd is not None:
                os.close(pidfd)
        for fd in self._open:
            self._drain(fd)
        return True

    def _drain(self, fd: int) -> bool:
        """Read what is there, a bounded amount; False: the end."""
        kept = self._open[fd]
        for _ in range(16):
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                return True
            if not data:
                return False
            room = self._most - len(kept)
            self.truncated = self.truncated or len(data) > room
            kept += data[: max(0, room)]
        return True

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()


def _feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(data)
        process.stdin.flush()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _has_ended(pid: int) -> bool:
    """Whether our child has ended; it is not reaped by this."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:  # a kernel before 5.3
        return None


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _be_gentle(pid: int) -> None:
    """Nice 19 and the idle I/O class for its group; where that is refused it runs as it is."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PGRP, pid, _NICE)
    if _IOPRIO_SET is not None:
        ctypes.CDLL(None).syscall(_IOPRIO_SET, _IOPRIO_WHO_PGRP, pid, _IOPRIO_IDLE)


CHILDREN = Children()
"""Of this process: every check runs its commands through it."""
