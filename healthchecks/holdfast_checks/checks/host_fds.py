"""``host.fds``: file handles of the machine that run out."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.per_host import limit_thresholds, near_limit
from holdfast_checks.probes.procfs import text, whole
from holdfast_checks.registry import Check, Context, Cost, Need, NotGathered
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "host.fds"


@dataclass(frozen=True, slots=True)
class HostFdsFacts:
    """``/proc/sys/fs/file-nr``."""

    used: int
    limit: int


def gather(context: Context) -> HostFdsFacts:
    """Raises NotGathered without the file."""
    path = context.settings.host.proc / "sys/fs/file-nr"
    words = (text(path) or "").split()
    numbers = [number for word in words if (number := whole(word)) is not None]
    if len(words) != 3 or len(numbers) != 3 or not numbers[2]:
        raise NotGathered(f"{path} cannot be read")
    return HostFdsFacts(numbers[0] - numbers[1], numbers[2])


def judge(facts: HostFdsFacts) -> tuple[Result, ...]:
    """At the limit, nothing on the node can open a file or a socket, root excepted."""
    summary = f"{facts.used} of {facts.limit} file handles are open"
    return near_limit(CHECK_ID, facts.used, facts.limit, summary, used=facts.used)


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
    thresholds=limit_thresholds("open"),
)
