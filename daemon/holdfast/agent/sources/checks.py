"""Checks that this node runs: those on NVML's answers in the loop, those on host files in a separate thread."""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable

from holdfast.config.agent import AgentConfig
from holdfast_checks.custom import custom_checks
from holdfast_checks.known import all_checks
from holdfast_checks.probes.sysfs import kept_open
from holdfast_checks.registry import Check, Context, Cost, Need
from holdfast_checks.result import Result, Verdict
from holdfast_checks.runner import Samples, run
from holdfast_checks.settings import CheckSettings, CheckTables

log = logging.getLogger(__name__)

ResultReceiver = Callable[[Check, tuple[Result, ...], bool], None]
"""Receives a check's results, and whether to process them soon or in the loop's next iteration."""
_MOST_STUCK = 8
"""Maximum number of threads that hang in a check; then the other checks wait, too: the unit allows 64 tasks in all."""


def settings_of(config: AgentConfig) -> CheckSettings:
    """The site's settings for the checks."""
    return CheckSettings(
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
        **{table.name: getattr(config, table.name) for table in dataclasses.fields(CheckTables)},
    )


def periodic_checks(config: AgentConfig) -> dict[str, Check]:
    """The checks that run automatically. An unknown id among the disabled ones or the intervals is logged, not fatal."""
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
    """The checks that run only by an order, never automatically: they slow down a job."""
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
    """Runs checks of host files and commands in a thread. A check that hangs past its deadline keeps that thread; the others continue in a
    new one, until too many hang."""

    def __init__(self, told: ResultReceiver, keep_open: int = 0) -> None:
        """``told`` is called from the thread, which keeps this many counters open between two runs."""
        self._told = told
        self._keep_open = keep_open
        self._work: queue.SimpleQueue[tuple[Check, Context] | None] = queue.SimpleQueue()
        self._busy: set[str] = set()
        self._good_runs: Counter[str] = Counter()
        """Consecutive good runs, by check."""
        self._samples = Samples()
        self._stuck = 0
        self._worker = _Worker()
        self._start()

    def begin(self, check: Check, context: Context) -> tuple[Result, ...]:
        """Start a run. While the previous run has not ended, the result is that the check hangs."""
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
            self._stuck -= 1  # it returned at last, but another thread has replaced it

    def _is_news(self, check: Check, results: tuple[Result, ...]) -> bool:
        """Whether to wake the loop: for a fault at once; for a result that may clear one, or UNKNOWN, when no other check waits; never for
        an unchanged OK."""
        if any(result.bad for result in results):
            del self._good_runs[check.id]
            return True
        good = all(result.verdict in (Verdict.OK, Verdict.SKIPPED) for result in results)
        self._good_runs[check.id] = self._good_runs[check.id] + 1 if good else 0
        return self._work.empty() and self._good_runs[check.id] <= check.hysteresis[0]


class _Worker:
    """State of one worker thread."""

    def __init__(self) -> None:
        self._now: tuple[Check, float] | None = None

    def begin(self, check: Check) -> None:
        self._now = (check, time.monotonic())

    def end(self) -> None:
        self._now = None

    @property
    def hung(self) -> Check | None:
        """The check that has exceeded its deadline."""
        if self._now is None:
            return None
        check, since_s = self._now
        return check if time.monotonic() - since_s > check.deadline_s else None
