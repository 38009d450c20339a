"""``host.zombies``: zombie processes, whose parent does not wait for them. They keep process ids, and a driver's state with them."""

from __future__ import annotations

from holdfast_checks.per_host import bad, good, warning
from holdfast_checks.probes.procfs import Scan, scan, short_list
from holdfast_checks.registry import Check, Context, Cost, Need, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "host.zombies"
WARNING_COUNT = 1000
DEGRADED_COUNT = 2000


def gather(context: Context) -> Scan:
    """Raises NotGathered, OSError."""
    return scan(context.settings.host.proc)


def judge(seen: Scan) -> tuple[Result, ...]:
    """By their number."""
    summary = f"{seen.zombies} zombies"
    if seen.zombies < WARNING_COUNT:
        return (good(CHECK_ID, summary),)
    summary += f", such as {short_list(seen.zombie_names)}"
    if seen.zombies < DEGRADED_COUNT:
        return (warning(CHECK_ID, "many", summary, zombies=seen.zombies),)
    return (bad(CHECK_ID, "too_many", Severity.DEGRADED, Remedy.REBOOT, summary, zombies=seen.zombies),)


CHECK = Check(
    id=CHECK_ID,
    title="Few zombie processes",
    needs=frozenset({Need.HOST}),
    interval_s=300,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    hysteresis=(2, 2),
    thresholds=(
        Threshold("zombies, warning", WARNING_COUNT, "processes", "gpud: degraded at 1,000"),
        Threshold("zombies, degraded", DEGRADED_COUNT, "processes", "gpud: unhealthy at 2,000"),
    ),
)
