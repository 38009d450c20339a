"""``host.fds``: are the machine's file handles running out?"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.per_host import bad, good, warning
from holdfast_checks.probes.procfs import text, whole
from holdfast_checks.registry import Check, Context, Cost, Need, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "host.fds"
WARNING_PERCENT = 80.0
DEGRADED_PERCENT = 95.0


@dataclass(frozen=True, slots=True)
class Facts:
    """``/proc/sys/fs/file-nr``."""

    used: int
    limit: int


def gather(context: Context) -> Facts:
    """Raises NotGathered without the file."""
    path = context.settings.host.proc / "sys/fs/file-nr"
    words = (text(path) or "").split()
    numbers = [number for word in words if (number := whole(word)) is not None]
    if len(words) != 3 or len(numbers) != 3 or not numbers[2]:
        raise NotGathered(f"{path} cannot be read")
    return Facts(numbers[0] - numbers[1], numbers[2])


def judge(facts: Facts) -> tuple[Result, ...]:
    """At the limit, nothing on the node can open a file or a socket, root excepted."""
    percent = 100 * facts.used / facts.limit
    summary = f"{facts.used} of {facts.limit} file handles are open ({percent:.0f} %)"
    if percent >= DEGRADED_PERCENT:
        return (bad(CHECK_ID, "exhausted", Severity.DEGRADED, Remedy.REBOOT, summary, used=facts.used),)
    if percent >= WARNING_PERCENT:
        return (warning(CHECK_ID, "high", summary, used=facts.used),)
    return (good(CHECK_ID, summary),)


CHECK = Check(
    id=CHECK_ID,
    title="File handles are left",
    needs=frozenset({Need.HOST}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    hysteresis=(2, 3),
    thresholds=(
        Threshold("open, warning", WARNING_PERCENT, "percent", "gpud: degraded at 80 %"),
        Threshold("open, degraded", DEGRADED_PERCENT, "percent", "gpud: unhealthy at 95 %"),
    ),
)
