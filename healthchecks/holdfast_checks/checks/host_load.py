"""``host.load``: load per CPU, as a sign of runaway processes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast_checks.per_host import good, warning
from holdfast_checks.probes.procfs import cpu_list, text
from holdfast_checks.registry import Check, Context, Cost, Need, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.settings import HostSettings

CHECK_ID = "host.load"
_NUMBER = re.compile(r"[0-9]{1,12}\.[0-9]{1,3}")
PER_CPU = HostSettings().load_per_cpu


@dataclass(frozen=True, slots=True)
class HostLoadFacts:
    """The load average of five minutes."""

    load: float
    cpus: int
    limit_per_cpu: float = PER_CPU


def gather(context: Context) -> HostLoadFacts:
    """Raises NotGathered without loadavg or the list of CPUs."""
    settings = context.settings
    words = (text(settings.host.proc / "loadavg") or "").split()
    cpus = cpu_list(text(settings.sysfs / "devices/system/cpu/online"))
    if len(words) < 2 or not _NUMBER.fullmatch(words[1]):
        raise NotGathered(f"{settings.host.proc}/loadavg cannot be read")
    return HostLoadFacts(float(words[1]), len(cpus), settings.host.load_per_cpu)


def judge(facts: HostLoadFacts) -> tuple[Result, ...]:
    """A load of its jobs is about one per CPU; processes that wait for a disk or a file server count too."""
    summary = f"load average {facts.load:g} on {facts.cpus} CPUs"
    if facts.load > facts.limit_per_cpu * facts.cpus:
        return (warning(CHECK_ID, "high", summary, load=facts.load, cpus=facts.cpus),)
    return (good(CHECK_ID, summary),)


CHECK = Check(
    id=CHECK_ID,
    title="The load is no more than its jobs explain",
    needs=frozenset({Need.HOST}),
    interval_s=300,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    gather=gather,
    judge=judge,
    hysteresis=(2, 2),
    thresholds=(Threshold("load per CPU", PER_CPU, "processes", "our choice; NHC's check_ps_loadavg has no default"),),
)
