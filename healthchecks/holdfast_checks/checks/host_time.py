"""``host.time``: the clock is synchronised, and its possible error is small.

Warnings only. A wrong clock spoils logs and, beyond munge's five minutes, the node's credentials; it is never a reason to doubt another
finding: the agent measures on CLOCK_MONOTONIC."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.per_host import good, warning
from holdfast_checks.probes.clock import STA_UNSYNC, TIME_ERROR, ClockState, clock_state
from holdfast_checks.registry import Check, Context, Cost, Need, Threshold
from holdfast_checks.result import NODE_COMPONENT, Remedy, Result, Severity
from holdfast_checks.settings import HostSettings

CHECK_ID = "host.time"
K, N = 3, 3
OFFSET_S = HostSettings().time_offset_s
ERROR_S = HostSettings().time_error_s


@dataclass(frozen=True, slots=True)
class HostTimeFacts:
    """The kernel's clock state, and the limits."""

    clock: ClockState
    offset_limit_s: float = OFFSET_S
    error_limit_s: float = ERROR_S


def gather(context: Context) -> HostTimeFacts:
    """Raises NotGathered where the kernel cannot be asked."""
    settings = context.settings.host
    return HostTimeFacts(clock_state(settings.clock_file), settings.time_offset_s, settings.time_error_s)


def judge(facts: HostTimeFacts) -> tuple[Result, ...]:
    """The kernel itself marks a clock unsynchronised when nothing has corrected it for some nine hours."""
    clock = facts.clock
    numbers = {"offset_s": round(clock.offset_s, 6), "max_error_s": round(clock.max_error_s, 3)}
    if clock.status & STA_UNSYNC or clock.state == TIME_ERROR:
        return (
            warning(
                CHECK_ID, "unsynchronised", "nothing keeps the clock right (STA_UNSYNC)", NODE_COMPONENT, **numbers
            ),
        )
    if abs(clock.offset_s) > facts.offset_limit_s:
        summary = f"the clock is {abs(clock.offset_s):.3g} s off, by its time service"
        return (warning(CHECK_ID, "offset", summary, NODE_COMPONENT, **numbers),)
    if clock.max_error_s > facts.error_limit_s:
        summary = f"the clock may be {clock.max_error_s:.3g} s off: nothing has corrected it for long"
        return (warning(CHECK_ID, "drifting", summary, NODE_COMPONENT, **numbers),)
    return (good(CHECK_ID, f"synchronised, at most {clock.max_error_s:.3g} s off", NODE_COMPONENT, **numbers),)


CHECK = Check(
    id=CHECK_ID,
    title="The clock is synchronised",
    needs=frozenset({Need.HOST}),
    interval_s=300,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    gather=gather,
    judge=judge,
    hysteresis=(K, N),
    thresholds=(
        Threshold("offset", OFFSET_S, "s", "our choice; EKS node monitoring agent: STA_UNSYNC alone"),
        Threshold(
            "possible error", ERROR_S, "s", "the kernel adds 0.5 ms each second (2.5 hours without a correction)"
        ),
        Threshold("samples", K, "samples", "a node that has just booted is not synchronised yet"),
    ),
)
