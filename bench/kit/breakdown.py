"""Cost of each single check: its gather and judge, run many times in this process, with the commands that it starts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.kit import procs

from holdfast.agent.sources.checks import periodic_checks, settings_of
from holdfast.config.agent import AgentConfig
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.per_gpu import DETAILS_INTERVAL_S
from holdfast_checks.probes.nvml import NvmlProbe
from holdfast_checks.registry import Check, Context, Need
from holdfast_checks.runner import Samples, run
from holdfast_checks.snapshot import NvmlFailure, Snapshot

_RUNS = 200
_LONGEST_S = 1.0
_LEAST_RUNS = 3
_SNAPSHOTS = 40
NVML_INTERVAL_S = 15.0


@dataclass(frozen=True, slots=True)
class Cost:
    """One check, or one question to NVML."""

    name: str
    ms: float
    """CPU milliseconds of a run, its commands included."""
    per_hour: float
    """Runs."""
    verdicts: str
    """Of the last run, so that a check with nothing to do is seen."""

    @property
    def s_per_hour(self) -> float:
        return self.ms * self.per_hour / 1000


def breakdown(config: AgentConfig) -> list[Cost]:
    """Every periodic check of the configuration, dearest first, and NVML's child. Raises RuntimeError where NVML does not answer."""
    probe = NvmlProbe(
        config.nvml_deadline_s, Path(config.nvml_library) if config.nvml_library else None, config.nvml_env
    )
    try:
        costs = list(_nvml(probe))
        snapshots = [_asked(probe, everything=True) for _ in range(_LEAST_RUNS)]
    finally:
        probe.close()
    costs += [_check(check, config, snapshots) for check in periodic_checks(config).values()]
    return sorted(costs, key=lambda cost: -cost.s_per_hour)


def _nvml(probe: NvmlProbe) -> Iterator[Cost]:
    """The child's CPU, and what reading its answer costs the agent."""
    _asked(probe, everything=True)
    assert probe.pid is not None
    for name, everything, interval_s in (
        ("NVML: fast readings", False, NVML_INTERVAL_S),
        ("NVML: slow readings too", True, DETAILS_INTERVAL_S),
    ):
        before, own_s = procs.cpu(probe.pid), time.process_time()
        for _ in range(_SNAPSHOTS):
            _asked(probe, everything=everything)
        used_s = (procs.cpu(probe.pid) - before).total_s + time.process_time() - own_s
        per_hour = 3600 / interval_s - (3600 / DETAILS_INTERVAL_S if not everything else 0)
        yield Cost(name, 1000 * used_s / _SNAPSHOTS, per_hour, "")


def _asked(probe: NvmlProbe, *, everything: bool) -> Snapshot:
    probe.send(everything=everything)
    answer = probe.request()
    if isinstance(answer, NvmlFailure):
        raise RuntimeError(f"NVML: {answer.text}")
    return answer


def _check(check: Check, config: AgentConfig, snapshots: list[Snapshot]) -> Cost:
    context = Context(settings_of(config), snapshots[0], GpuInventory().learn(snapshots[0]))
    samples = Samples()
    runs, results = 0, run(check, context, samples)
    began_s, before_s = time.monotonic(), _cpu_s()
    while runs < _LEAST_RUNS or (runs < _RUNS and time.monotonic() - began_s < _LONGEST_S):
        runs += 1
        if Need.NVML in check.needs:  # readings must be new, or a check that compares has nothing to do
            context = replace(context, nvml=_later(snapshots[runs % len(snapshots)], runs))
        results = run(check, context, samples)
    ms = 1000 * (_cpu_s() - before_s) / runs
    interval_s = config.intervals.get(check.id, check.interval_s)
    return Cost(check.id, ms, 3600 / interval_s, _counted(str(result.verdict) for result in results))


def _later(snapshot: Snapshot, runs: int) -> Snapshot:
    return replace(snapshot, details_monotonic_s=snapshot.details_monotonic_s + 60.0 * runs)


def _counted(verdicts: Iterable[str]) -> str:
    each = list(verdicts)
    return ", ".join(f"{each.count(verdict)} {verdict}" for verdict in dict.fromkeys(each))


def _cpu_s() -> float:
    """User and system time of this process and of the children that it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def show(costs: list[Cost]) -> None:
    """As a table."""
    print(f"\n  {'check':<26} {'ms a run':>9} {'runs/h':>7} {'s/h':>7}   last run")
    for cost in costs:
        print(f"  {cost.name:<26} {cost.ms:9.3f} {cost.per_hour:7.1f} {cost.s_per_hour:7.3f}   {cost.verdicts}")
    total = sum(cost.s_per_hour for cost in costs)
    print(
        f"  {'all':<26} {'':>9} {'':>7} {total:7.3f}   {total / 36:.3f} % of a core, without the agent's loop and reports"
    )
