"""``net.memlock``: jobs may lock enough memory for EFA. They cannot get more than slurmd itself may lock."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.checks.host_slurmd import wanted
from holdfast_checks.probes.rdma import efa_devices
from holdfast_checks.probes.slurmd import find
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "net.memlock"
WANTED_GIB = 16.0
_ROW = "Max locked memory"
_UNLIMITED = float("inf")
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class NetMemlockFacts:
    """slurmd's limits on locked memory; infinity: none."""

    soft_bytes: float
    hard_bytes: float
    wanted_gib: float


def gather(context: Context) -> NetMemlockFacts:
    """Raises NotApplicable without EFA or where the site switched it off, NotGathered without a slurmd."""
    settings = context.settings
    if not settings.network.memlock_gib:
        raise NotApplicable("network.memlock_gib is 0")
    if not efa_devices(settings.sysfs):
        raise NotApplicable("this node has no EFA device")
    slurmd = find(wanted(settings))
    if slurmd is None:
        raise NotGathered("no slurmd among the processes")
    text = (settings.proc / str(slurmd) / "limits").read_text(encoding="ascii", errors="replace")
    limits = parse(text)
    if limits is None:
        raise NotGathered(f"no {_ROW!r} among the limits of process {slurmd}")
    return NetMemlockFacts(*limits, settings.network.memlock_gib)


def parse(text: str) -> tuple[float, float] | None:
    """(soft, hard) in bytes from ``/proc/PID/limits``; None: not there."""
    for line in text.splitlines():
        words = line.removeprefix(_ROW).split()
        if line.startswith(_ROW) and len(words) >= 2:
            soft, hard = (_UNLIMITED if word == "unlimited" else float(word) for word in words[:2])
            return soft, hard
    return None


def judge(facts: NetMemlockFacts) -> tuple[Result, ...]:
    """The hard limit binds every job; a low soft one only those that do not raise it."""
    wanted = facts.wanted_gib * _GIB
    if facts.soft_bytes >= wanted:
        return (Result.ok(CHECK_ID, "slurmd", sticky=True),)
    hard = facts.hard_bytes < wanted
    low = facts.hard_bytes if hard else facts.soft_bytes
    return (
        Result.finding(
            CHECK_ID,
            Severity.DEGRADED if hard else Severity.WARNING,
            Remedy.HUMAN if hard else Remedy.NONE,
            "slurmd",
            code="hard" if hard else "soft",
            summary=f"slurmd may lock {low / _GIB:.3g} GiB of memory, EFA wants {facts.wanted_gib:g}: set LimitMEMLOCK=infinity",
            evidence={"limit_bytes": round(low)},
            sticky=True,
        ),
    )


CHECK = Check(
    id=CHECK_ID,
    title="slurmd may lock enough memory for EFA",
    needs=frozenset({Need.NETWORK, Need.HOST}),
    interval_s=300,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.HUMAN,
    gather=gather,
    judge=judge,
    hysteresis=(2, 2),
    thresholds=(Threshold("locked memory", WANTED_GIB, "GiB", "awslabs health check; network.memlock_gib"),),
)
