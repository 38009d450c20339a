"""``host.cpu``: all CPUs are present, online and not throttled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.manifest import manifest_of
from holdfast_checks.per_host import bad, good, warning
from holdfast_checks.probes.procfs import cpu_list, number, short_list, text
from holdfast_checks.registry import Check, Context, Cost, Need, SampleChange, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "host.cpu"
THROTTLED_PERCENT = 10.0
_SMT_OFF = ("off", "forceoff")
_GOVERNOR = "governor"
_CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class HostCpuFacts:
    """What sysfs says of the CPUs, and what is expected."""

    online: frozenset[int]
    present: frozenset[int]
    smt_off: bool = False
    """Sibling threads were switched off on purpose: they are present and not online."""
    governor: str = ""
    throttled_ms: int | None = None
    """Since the boot, summed over the packages; None: this CPU does not count it."""
    packages: int = 1
    expected_cpus: int | None = None
    expected_governor: str = ""


def gather(context: Context) -> HostCpuFacts:
    """Raises NotGathered without sysfs or for a broken manifest."""
    root = context.settings.sysfs / "devices/system/cpu"
    manifest = manifest_of(context)
    online = cpu_list(text(root / "online"))
    throttled = _throttled_ms(root)
    return HostCpuFacts(
        online=online,
        present=cpu_list(text(root / "present")),
        smt_off=text(root / "smt/control") in _SMT_OFF,
        governor=text(root / "cpu0/cpufreq/scaling_governor") or "",
        throttled_ms=sum(throttled) if throttled else None,
        packages=max(1, len(throttled)),
        expected_cpus=manifest.cpus if manifest is not None else None,
        expected_governor=manifest.governor if manifest is not None else "",
    )


def _throttled_ms(cpus: Path) -> list[int]:
    """One count a package, read from the first CPU of each NUMA node: the others show the same."""
    packages: dict[int, int] = {}
    for node in sorted((cpus.parent / "node").glob("node[0-9]*")):
        seen = text(node / "cpulist")
        if not seen:
            continue  # a node of memory alone
        cpu = cpus / f"cpu{min(cpu_list(seen))}"
        count = number(cpu / "thermal_throttle/package_throttle_total_time_ms")
        if count is not None:
            packages[number(cpu / "topology/physical_package_id") or 0] = count
    return list(packages.values())


def judge(change: SampleChange) -> tuple[Result, ...]:
    """The count, and where the machine reports them, throttling since the previous run and the governor."""
    facts: HostCpuFacts = change.now.facts
    return (_count(facts), *_throttling(change), *_governor(facts))


def _count(facts: HostCpuFacts) -> Result:
    online = len(facts.online)
    offline = sorted(facts.present - facts.online)
    if offline and not facts.smt_off:
        summary = f"{len(offline)} CPUs are offline: {short_list(offline)}"
        return bad(CHECK_ID, "offline", Severity.DEGRADED, Remedy.REBOOT, summary, online=online)
    if facts.expected_cpus is not None and online < facts.expected_cpus:
        summary = f"{online} CPUs instead of {facts.expected_cpus}"
        return bad(CHECK_ID, "lost", Severity.DEGRADED, Remedy.REPLACE, summary, online=online)
    return good(CHECK_ID, f"{online} CPUs")


def _throttling(change: SampleChange) -> tuple[Result, ...]:
    now: HostCpuFacts = change.now.facts
    if now.throttled_ms is None:
        return ()
    before = change.before.facts.throttled_ms if change.before is not None else None
    if before is None or now.throttled_ms < before or change.seconds <= 0:
        return (good(CHECK_ID, "first sample of throttling", _CLOCK),)
    percent = (now.throttled_ms - before) / (change.seconds * 10 * now.packages)
    summary = f"CPUs were throttled by heat {percent:.0f} % of the time"
    if percent > THROTTLED_PERCENT:
        return (warning(CHECK_ID, "throttled", summary, _CLOCK, percent=round(percent, 1)),)
    return (good(CHECK_ID, summary, _CLOCK),)


def _governor(facts: HostCpuFacts) -> tuple[Result, ...]:
    if not facts.expected_governor or not facts.governor:
        return ()
    if facts.governor == facts.expected_governor:
        return (good(CHECK_ID, facts.governor, _GOVERNOR),)
    summary = f"the frequency governor is {facts.governor}, a good node has {facts.expected_governor}"
    return (warning(CHECK_ID, "governor", summary, _GOVERNOR),)


CHECK = Check(
    id=CHECK_ID,
    title="All CPUs are online and not throttled",
    needs=frozenset({Need.HOST}),
    interval_s=300,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REPLACE,
    gather=gather,
    judge=judge,
    compares=True,
    thresholds=(
        Threshold("throttled, warning", THROTTLED_PERCENT, "percent of the time", "our choice; GCM: below 1,498 MHz"),
    ),
)
