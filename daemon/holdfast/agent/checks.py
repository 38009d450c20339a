"""Which checks this node runs, and how: those on NVML's answers in the loop, those on host files in a thread of their own."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from holdfast.config.agent import AgentConfig
from holdfast_checks.registry import Check, Context, Cost, Need, all_checks
from holdfast_checks.result import Result, Verdict
from holdfast_checks.runner import Samples, run
from holdfast_checks.settings import Settings

log = logging.getLogger(__name__)

Told = Callable[[Check, tuple[Result, ...]], None]


def settings_of(config: AgentConfig) -> Settings:
    """What the site says, in the words of the checks."""
    return Settings(
        expected_gpus=config.gpu_count or None,
        instance_type=config.instance_type,
        disk_paths=config.disk_paths,
        slurmd_pid_file=config.slurmd_pid_file,
        slurmd_node=config.node,
        kmsg_path=config.kmsg_path,
        pstore_path=config.pstore_path,
        sysfs=config.sysfs_path,
        state_dir=config.state_dir,
        gpu=config.gpu,
        network=config.network,
        host=config.host,
        dcgm=config.dcgm,
        active=config.active,
        custom=config.custom,
    )


def periodic_checks(config: AgentConfig) -> dict[str, Check]:
    """The checks that run by themselves. An unknown id among the disabled ones or the intervals is logged, not fatal."""
    known = all_checks()
    for name in (*config.disabled_checks, *config.intervals):
        if name not in known:
            log.warning("event=unknown_check id=%s known=%s", name, ",".join(known))
    return {
        name: check
        for name, check in known.items()
        if check.interval_s > 0 and check.cost is Cost.PASSIVE and name not in config.disabled_checks
    }


def split_by_need(checks: dict[str, Check]) -> tuple[list[Check], list[Check]]:
    """(checks that judge an NVML answer, the others)."""
    nvml = [check for check in checks.values() if Need.NVML in check.needs]
    return nvml, [check for check in checks.values() if Need.NVML not in check.needs]


class HostChecks:
    """One thread that runs checks of host files, so that a disk that hangs stops none but them."""

    def __init__(self, told: Told) -> None:
        """``told`` is called from the thread."""
        self._told = told
        self._work: queue.SimpleQueue[tuple[Check, Context] | None] = queue.SimpleQueue()
        self._busy: set[str] = set()
        self._samples = Samples()
        self._thread = threading.Thread(target=self._run, name="host-checks", daemon=True)
        self._thread.start()

    def begin(self, check: Check, context: Context) -> tuple[Result, ...]:
        """Have it run. While the run before it has not ended, that it hangs is the result."""
        if check.id in self._busy:
            return (Result(check.id, Verdict.UNKNOWN, summary="the check before this one has not answered yet"),)
        self._busy.add(check.id)
        self._work.put((check, context))
        return ()

    def close(self) -> None:
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            check, context = work
            results = run(check, context, self._samples)
            self._busy.discard(check.id)
            self._told(check, results)
