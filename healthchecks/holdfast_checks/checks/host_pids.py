"""``host.pids``: process ids or threads that run out. Nothing could be started then, slurmstepd included."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.per_host import limit_thresholds, near_limit
from holdfast_checks.probes.procfs import number, text, whole
from holdfast_checks.registry import Check, Context, Cost, Need, NotGathered
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "host.pids"


@dataclass(frozen=True, slots=True)
class HostPidsFacts:
    """Threads of the whole machine; each takes an id."""

    threads: int
    limit: int
    limit_name: str
    """Which of the two limits is the lower one."""


def gather(context: Context) -> HostPidsFacts:
    """The fourth word of loadavg counts all threads: no process has to be read. Raises NotGathered."""
    proc = context.settings.host.proc
    words = (text(proc / "loadavg") or "").split()
    threads = whole(words[3].partition("/")[2]) if len(words) > 3 else None
    limits = {name: number(proc / "sys/kernel" / name) for name in ("pid_max", "threads-max")}
    known = {name: limit for name, limit in limits.items() if limit}
    if threads is None or not known:
        raise NotGathered(f"{proc}: no count of threads or no limit")
    name = min(known, key=known.__getitem__)
    return HostPidsFacts(threads, known[name], name)


def judge(facts: HostPidsFacts) -> tuple[Result, ...]:
    """By the lower of the two limits."""
    summary = f"{facts.threads} threads, {facts.limit_name} is {facts.limit}"
    return near_limit(CHECK_ID, facts.threads, facts.limit, summary, threads=facts.threads)


CHECK = Check(
    id=CHECK_ID,
    title="Process ids and threads are left",
    needs=frozenset({Need.HOST}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    hysteresis=(2, 3),
    thresholds=limit_thresholds("threads"),
)
