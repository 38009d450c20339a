"""Which checks this node runs, and how: those on NVML's answers in the loop, those on host files in a thread of their own."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable

from holdfast.config.agent import AgentConfig
from holdfast_checks.custom import custom_checks
from holdfast_checks.probes.sysfs import kept_open
from holdfast_checks.registry import Check, Context, Cost, Need, all_checks
from holdfast_checks.result import Result, Verdict
from holdfast_checks.runner import Samples, run
from holdfast_checks.settings import Settings

log = logging.getLogger(__name__)

Told = Callable[[Check, tuple[Result, ...], bool], None]
"""A check's results, and whether they are to be taken soon, or else in the loop's next turn."""
_MOST_STUCK = 8
"""Threads that hang in a check before the others have to wait too: the unit allows 64 tasks in all."""


def settings_of(config: AgentConfig) -> Settings:
    """What the site says, in the words of the checks."""
    return Settings(
        expected_gpus=config.gpu_count or None,
        instance_type=config.instance_type,
        disk_paths=config.disk_paths,
        slurmd_pid_file=config.slurmd_pid_file,
        slurmd_node=config.node,
        slurm_conf=config.slurm_conf,
        kmsg_path=config.kmsg_path,
        pstore_path=config.pstore_path,
        sysfs=config.sysfs_path,
        state_dir=config.state_dir,
        gpu=config.gpu,
        network=config.network,
        host=config.host,
        kernel=config.kernel,
        dcgm=config.dcgm,
        active=config.active,
        cloud=config.cloud,
        custom=config.custom,
    )


def periodic_checks(config: AgentConfig) -> dict[str, Check]:
    """The checks that run by themselves. An unknown id among the disabled ones or the intervals is logged, not fatal."""
    known = {**all_checks(), **custom_checks(settings_of(config))}
    for name in (*config.disabled_checks, *config.intervals):
        if name not in known:
            log.warning("event=unknown_check id=%s known=%s", name, ",".join(known))
    return {
        name: check
        for name, check in known.items()
        if check.interval_s > 0 and check.cost is Cost.PASSIVE and name not in config.disabled_checks
    }


def on_demand_checks(config: AgentConfig) -> dict[str, Check]:
    """The checks that an order may name, and that never run by themselves: they cost a job something."""
    known = {**all_checks(), **custom_checks(settings_of(config))}
    return {
        name: check
        for name, check in known.items()
        if check.cost is not Cost.PASSIVE and name not in config.disabled_checks
    }


def split_by_need(checks: dict[str, Check]) -> tuple[list[Check], list[Check]]:
    """(checks that judge an NVML answer, the others)."""
    nvml = [check for check in checks.values() if Need.NVML in check.needs]
    return nvml, [check for check in checks.values() if Need.NVML not in check.needs]


class HostChecks:
    """A thread that runs checks of host files and commands. One that hangs past its deadline keeps that thread to itself: the others go on
    in a new one, until too many hang."""

    def __init__(self, told: Told, keep_open: int = 0) -> None:
        """``told`` is called from the thread, which keeps so many counters open between two looks."""
        self._told = told
        self._keep_open = keep_open
        self._work: queue.SimpleQueue[tuple[Check, Context] | None] = queue.SimpleQueue()
        self._busy: set[str] = set()
        self._good_runs: Counter[str] = Counter()
        """In a row, by check."""
        self._samples = Samples()
        self._stuck = 0
        self._worker = _Worker()
        self._start()

    def begin(self, check: Check, context: Context) -> tuple[Result, ...]:
        """Have it run. While the run before it has not ended, that it hangs is the result."""
        self._replace_stuck()
        if check.id in self._busy:
            return (Result.unknown(check.id, summary="the check before this one has not answered yet"),)
        self._busy.add(check.id)
        self._work.put((check, context))
        return ()

    def close(self) -> None:
        self._work.put(None)

    def _replace_stuck(self) -> None:
        hung = self._worker.hung
        if hung is None or self._stuck >= _MOST_STUCK:
            return
        log.warning("event=check_hangs check=%s deadline_s=%g effect=others_go_on", hung.id, hung.deadline_s)
        self._stuck += 1
        self._worker = _Worker()
        self._start()

    def _start(self) -> None:
        threading.Thread(target=self._run, args=(self._worker,), name="host-checks", daemon=True).start()

    def _run(self, worker: _Worker) -> None:
        with kept_open(self._keep_open):
            self._work_off(worker)

    def _work_off(self, worker: _Worker) -> None:
        while worker is self._worker and (work := self._work.get()) is not None:
            check, context = work
            worker.begin(check)
            results = run(check, context, self._samples)
            worker.end()
            self._busy.discard(check.id)
            self._told(check, results, self._is_news(check, results))
        if worker is not self._worker:
            self._stuck -= 1  # it came back at last, and another one has its place

    def _is_news(self, check: Check, results: tuple[Result, ...]) -> bool:
        """A fault, at once; what may clear one or says nothing, when no other check waits; that all is well as before, never."""
        if any(result.bad for result in results):
            del self._good_runs[check.id]
            return True
        good = all(result.verdict in (Verdict.OK, Verdict.SKIPPED) for result in results)
        self._good_runs[check.id] = self._good_runs[check.id] + 1 if good else 0
        return self._work.empty() and self._good_runs[check.id] <= check.hysteresis[0]


class _Worker:
    """What one thread is at."""

    def __init__(self) -> None:
        self._now: tuple[Check, float] | None = None

    def begin(self, check: Check) -> None:
        self._now = (check, time.monotonic())

    def end(self) -> None:
        self._now = None

    @property
    def hung(self) -> Check | None:
        """The check that has taken longer than its deadline."""
        if self._now is None:
            return None
        check, since_s = self._now
        return check if time.monotonic() - since_s > check.deadline_s else None
