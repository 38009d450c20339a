"""Asking NVML from a loop that must never block: one persistent child process, a deadline, a bounded respawn.

A selector watches :meth:`NvmlProbe.fileno` (stable for the probe's life) and calls :meth:`NvmlProbe.on_readable`; a timer
at :meth:`NvmlProbe.next_deadline` calls :meth:`NvmlProbe.tick`. Both return what happened.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.snapshot import NvmlFailure, Snapshot, gpu_ref

log = logging.getLogger(__name__)

DEFAULT_DEADLINE_S = 20.0
"""No answer for this long is a hang. DCGM calls of more than 45 s happen on a busy driver, so one miss is not yet a fault:
the check counts misses in a row (facts: a 20 s deadline, acting after three)."""
FIRST_BACKOFF_S = 1.0
LAST_BACKOFF_S = 300.0
DETAILS_AGE_S = 55.0
"""The slow readings of a snapshot may be so old: many calls, for what changes seldom. Every fourth snapshot, at 15 s, has new ones."""
_CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class NvmlEvent:
    """An event that NVML reported."""

    kind: str
    """``xid``, ``ecc_double_bit``, ``recovery_action``; ``lost``: some GPU is lost, take a snapshot."""
    data: int
    """The Xid number or the recovery action."""
    gpu: GpuRef
    monotonic_s: float


NvmlOutcome = Snapshot | NvmlFailure | NvmlEvent


class NvmlProbe:
    """The parent's side. Not thread-safe; one request at a time, further ones join it."""

    def __init__(
        self,
        deadline_s: float = DEFAULT_DEADLINE_S,
        library_path: Path | None = None,
        env: Mapping[str, str] | None = None,
        *,
        details_age_s: float = DETAILS_AGE_S,
        command: Sequence[str] | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``library_path``: folder that holds (or path of) another ``libnvidia-ml.so.1``; ``env``: added to the child's."""
        self._deadline_s = deadline_s
        self._command = tuple(command or (sys.executable, "-m", "holdfast_checks.probes.nvml_child"))
        self._env = _environment(library_path, env or {})
        self._details_age_s = details_age_s
        self._latest: Snapshot | None = None
        self._now = monotonic_s
        self._epoll = select.epoll()
        self._child: subprocess.Popen[bytes] | None = None
        self._stuck: subprocess.Popen[bytes] | None = None
        self._partial = b""
        self._id = 0
        self._asked_at: float | None = None
        self._misses = 0
        self._backoff_s = FIRST_BACKOFF_S
        self._not_before = 0.0
        self._last_failure: NvmlFailure | None = None
        self._refused = False
        self._let_go = False

    def fileno(self) -> int:
        """Readable when :meth:`on_readable` has something; the same for the probe's whole life."""
        return self._epoll.fileno()

    @property
    def pid(self) -> int | None:
        """The child's process id, if one runs."""
        return self._child.pid if self._child else None

    @property
    def pending(self) -> bool:
        """A request waits for its answer."""
        return self._asked_at is not None

    def send(self, *, everything: bool = False) -> None:
        """Ask for a snapshot; starts the child where needed. While a request is pending, this is that request.

        ``everything``: its slow readings are read again too.

        When no child can be asked now, :meth:`tick` says so (``next_deadline`` is then now)."""
        if self.pending or self._let_go:
            return
        self._asked_at = self._now()
        if self._child is None and not self._may_spawn():
            self._refused = True
            return
        self._id += 1
        age_s = 0.0 if everything else self._details_age_s
        self._write(json.dumps({"id": self._id, "do": "snapshot", "details_age_s": age_s}).encode() + b"\n")

    def next_deadline(self) -> float | None:
        """Monotonic time at which :meth:`tick` has something to say; None: nothing is pending."""
        if self._asked_at is None:
            return None
        return self._asked_at + (0.0 if self._refused else self._deadline_s)

    def tick(self) -> list[NvmlOutcome]:
        """A missed deadline as a failure; call it when ``next_deadline`` has passed (earlier does no harm)."""
        due = self.next_deadline()
        if due is None or self._now() < due:
            return []
        self._asked_at = None
        if self._refused:
            self._refused = False
            return [self._refusal()]
        log.warning("nvml_hang deadline_s=%s pid=%s", self._deadline_s, self.pid)
        self._end_child()
        return [self._failed(f"NVML did not answer within {self._deadline_s:g} s", hang=True)]

    def on_readable(self) -> list[NvmlOutcome]:
        """Whatever the child said, or that it ended; never blocks."""
        child = self._child
        if child is None or child.stdout is None:
            return []
        try:
            chunk = os.read(child.stdout.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return []
        if not chunk:
            return self._on_end()
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [outcome for line in lines if (outcome := self._on_line(line)) is not None]

    def request(self) -> Snapshot | NvmlFailure:
        """A snapshot, waited for: for commands and tests, not for a loop. Events that come meanwhile are dropped."""
        self.send()
        while (due := self.next_deadline()) is not None:
            wait_s = max(0.0, due - self._now())
            ready = select.select([self], [], [], wait_s)[0]
            for outcome in self.on_readable() if ready else self.tick():
                if not isinstance(outcome, NvmlEvent):
                    return outcome
        return NvmlFailure("NVML was closed")

    def let_go(self) -> None:
        """End the child, so that nothing of ours holds a GPU (a reset needs that); :meth:`resume` ends the pause."""
        self._let_go = True
        self._asked_at = None
        self._end_child()

    def resume(self) -> None:
        """Ask again from the next request on."""
        self._let_go = False
        self._backoff_s, self._not_before = FIRST_BACKOFF_S, 0.0

    @property
    def released(self) -> bool:
        """No process of ours is left that could hold a GPU."""
        return self._child is None and not self._stuck_still()

    def close(self) -> None:
        """End the child for good. May be called again."""
        self._let_go = True
        self._end_child()
        if not self._epoll.closed:
            self._epoll.close()

    def _may_spawn(self) -> bool:
        if self._stuck_still() or self._now() < self._not_before:
            return False
        self._child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._env, bufsize=0
        )
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
        if self._child.stdout is not None:
            self._epoll.register(self._child.stdout.fileno(), select.EPOLLIN | select.EPOLLHUP)
        self._partial = b""
        log.debug("nvml_child_started pid=%d", self._child.pid)
        return True

    def _write(self, data: bytes) -> None:
        if self._child is None or self._child.stdin is None:
            return
        try:
            self._child.stdin.write(data)
        except (BrokenPipeError, BlockingIOError) as error:
            log.debug("nvml_child_unwritable error=%s", error)  # its end, or the deadline, says so

    def _end_child(self) -> None:
        """Kill it; one that sits in the driver (D state) cannot be killed and is left, and no second one is started."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.stdout is not None:
            self._epoll.unregister(child.stdout.fileno())
        child.kill()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()
        self._stuck = child
        if self._stuck_still(wait_s=0.2):
            log.warning("nvml_child_unkillable pid=%d", child.pid)

    def _stuck_still(self, wait_s: float = 0.0) -> bool:
        if self._stuck is None:
            return False
        try:
            self._stuck.wait(wait_s)
        except subprocess.TimeoutExpired:
            return True
        self._stuck = None
        return False

    def _on_end(self) -> list[NvmlOutcome]:
        child, was_asked = self._child, self.pending
        self._end_child()
        self._asked_at = None
        if not was_asked:
            return []
        status = child.returncode if child else None
        return [self._failed(f"the NVML process ended with status {status}")]

    def _on_line(self, line: bytes) -> NvmlOutcome | None:
        try:
            said = json.loads(line)
            if "event" in said:
                return _event(said["event"])
            return self._on_answer(said) if said["id"] == self._id and self.pending else None
        except (ValueError, KeyError, TypeError) as error:
            log.warning("nvml_child_unreadable error=%r", error)
            return None

    def _on_answer(self, said: Mapping[str, Any]) -> Snapshot | NvmlFailure:
        self._asked_at = None
        if "error" in said:
            self._end_child()  # it ends by itself after an error; do not ask it again meanwhile
            return self._failed(str(said["error"]["text"]), code=int(said["error"]["code"]))
        try:
            snapshot = self._latest = Snapshot.from_wire(said["ok"], self._latest)
        except (ValueError, KeyError, TypeError) as error:
            self._end_child()
            return self._failed(f"the NVML process gave an unreadable answer: {error!r}")
        self._misses, self._backoff_s, self._last_failure = 0, FIRST_BACKOFF_S, None
        return snapshot

    def _failed(self, text: str, *, code: int | None = None, hang: bool = False) -> NvmlFailure:
        self._misses += 1
        self._not_before = self._now() + self._backoff_s
        self._backoff_s = min(LAST_BACKOFF_S, self._backoff_s * 2)
        self._last_failure = NvmlFailure(text, code=code, hang=hang, misses=self._misses)
        return self._last_failure

    def _refusal(self) -> NvmlFailure:
        """No child may be started now: the process of a hang still sits in the driver, or it is too early again."""
        if self._stuck_still():
            self._misses += 1
            return NvmlFailure(
                "the NVML process hangs in the driver and cannot be killed", hang=True, misses=self._misses
            )
        return self._last_failure or NvmlFailure("the NVML process starts again soon")


def _environment(library_path: Path | None, env: Mapping[str, str]) -> dict[str, str]:
    whole = {**os.environ, "MALLOC_ARENA_MAX": "1", **env}
    if library_path is not None:
        folder = library_path if library_path.is_dir() else library_path.parent
        whole["LD_LIBRARY_PATH"] = ":".join(filter(None, (str(folder), whole.get("LD_LIBRARY_PATH"))))
    return whole


def _event(raw: Mapping[str, Any]) -> NvmlEvent:
    return NvmlEvent(str(raw["kind"]), int(raw["data"]), gpu_ref(raw), float(raw["monotonic_s"]))
