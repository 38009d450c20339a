"""NVML as a source: snapshots on request, events as they occur, a hang as a failure. Never blocks the loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from holdfast.agent.sources.gpus import KnownGpus, pci_gpus
from holdfast.agent.timing.loop import Loop
from holdfast.config.agent import AgentConfig
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import DETAILS_INTERVAL_S
from holdfast_checks.probes.nvml import DETAILS_AGE_S, NvmlEvent, NvmlOutcome, NvmlProbe
from holdfast_checks.registry import Check
from holdfast_checks.snapshot import NvmlFailure, Snapshot

log = logging.getLogger(__name__)

DEADLINE_TASK = "nvml deadline"
NvmlAnswer = Snapshot | NvmlFailure
NvmlReceiver = Callable[[NvmlAnswer], None]


def of_details(check: Check) -> bool:
    """Whether the check uses the slow readings, which most snapshots only repeat."""
    return check.interval_s >= DETAILS_INTERVAL_S


def details_age_s(checks: Iterable[Check], intervals: Mapping[str, float]) -> float:
    """Maximum age of the slow readings: the shortest interval of the checks that use them.

    A little less than that, so that they are not delayed to the next snapshot."""
    asked = [intervals[check.id] for check in checks if of_details(check) and check.id in intervals]
    return min([DETAILS_AGE_S, *(interval_s * DETAILS_AGE_S / DETAILS_INTERVAL_S for interval_s in asked)])


class NvmlSource:
    """Owns the probe and the inventory of the node's GPUs."""

    def __init__(
        self,
        config: AgentConfig,
        known: KnownGpus,
        *,
        checks: Sequence[Check],
        on_answer: NvmlReceiver,
        on_event: Callable[[NvmlEvent], None],
        on_inventory: Callable[[], None],
    ) -> None:
        library = Path(config.nvml_library) if config.nvml_library else None
        self.known = known
        self.latest: NvmlAnswer | None = None
        self.probe = NvmlProbe(
            config.nvml_deadline_s, library, config.nvml_env, details_age_s=details_age_s(checks, config.intervals)
        )
        self._checks = checks
        self._judged_s: float | None = None
        """When the slow readings that were last evaluated were taken."""
        self._sysfs = config.sysfs_path
        self._on_answer = on_answer
        self._on_event = on_event
        self._on_inventory = on_inventory
        self._waiting: list[NvmlReceiver] = []
        self._next: list[NvmlReceiver] = []
        self._loop: Loop | None = None
        self._fallback: dict[str, GpuRef] | None = None

    def attach(self, loop: Loop) -> None:
        """Attach to the loop; the loop has a task named :data:`DEADLINE_TASK` that calls :meth:`tick`."""
        self._loop = loop
        loop.watch(self.probe, self.readable)

    @property
    def gpus(self) -> dict[str, GpuRef] | None:
        """PCI address → GPU. None until NVML has answered or failed once in this boot: not known yet."""
        if self.latest is None and not self.known.this_boot:
            return None
        known = self.known.inventory.by_pci()
        if known:
            return known
        if self._fallback is None:
            self._fallback = pci_gpus(self._sysfs)
        return self._fallback

    def checks_of(self, answer: NvmlAnswer) -> list[Check]:
        """The checks for which an answer has new readings."""
        if not isinstance(answer, Snapshot):
            return list(self._checks)
        seen, self._judged_s = answer.details_monotonic_s == self._judged_s, answer.details_monotonic_s
        return [check for check in self._checks if not (seen and of_details(check))]

    def snapshot(self, *, everything: bool = False) -> None:
        """Request a snapshot. ``everything``: including the slow readings."""
        self.probe.send(everything=everything)
        self._set_deadline()

    def ask(self, told: NvmlReceiver) -> None:
        """Request a snapshot that starts from now on, with all readings taken again, and report its outcome; a pending one is waited for
        first."""
        if self.probe.pending:
            self._next.append(told)
            return
        self._waiting.append(told)
        self.snapshot(everything=True)

    def readable(self) -> None:
        self._take(self.probe.on_readable())

    def tick(self) -> None:
        """Check whether a deadline has passed."""
        self._take(self.probe.tick())

    def let_go(self) -> None:
        """Release the GPUs: no process of the agent holds one until :meth:`resume`. Snapshots requested meanwhile get no answer."""
        self.probe.let_go()
        self._set_deadline()

    def resume(self) -> None:
        self.probe.resume()
        self.snapshot(everything=True)

    def close(self) -> None:
        self.probe.close()

    def _take(self, outcomes: list[NvmlOutcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, NvmlEvent):
                self._on_event(outcome)
            else:
                self._answered(outcome)
        self._set_deadline()

    def _answered(self, answer: NvmlAnswer) -> None:
        if isinstance(answer, Snapshot):
            changed = self.known.learn(answer)
            if changed:
                log.info("event=inventory gpus=%d driver=%s", len(self.known.inventory.gpus), self.known.driver_version)
        else:
            changed = False
            if not isinstance(self.latest, NvmlFailure):
                log.warning("event=nvml_failed code=%s hang=%s text=%r", answer.code, answer.hang, answer.text)
        self.latest = answer
        if changed:
            self._on_inventory()
        self._on_answer(answer)
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            told(answer)
        if self._next:
            self._waiting, self._next = self._next, []
            self.snapshot(everything=True)

    def _set_deadline(self) -> None:
        deadline_s = self.probe.next_deadline()
        if self._loop is not None:
            # Never at once: a probe that refuses is handled from the next iteration on, not in a loop within this one.
            at_s = float("inf") if deadline_s is None else max(deadline_s, time.monotonic() + 0.001)
            self._loop.schedule.set(DEADLINE_TASK, at_s)
