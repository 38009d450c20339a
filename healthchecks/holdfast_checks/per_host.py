"""Helpers of the checks of the host: constructors of their results."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_checks.registry import Threshold
from holdfast_checks.result import NODE_COMPONENT, Remedy, Result, Scalar, Severity


def good(check: str, summary: str, component: str = NODE_COMPONENT, **evidence: Scalar) -> Result:
    """OK: what was found earlier of this component is over."""
    return Result.ok(check, component, summary=_line(summary), evidence=_clean(evidence), sticky=True)


def bad(
    check: str,
    code: str,
    severity: Severity,
    remedy: Remedy,
    summary: str,
    component: str = NODE_COMPONENT,
    **evidence: Scalar,
) -> Result:
    """A state of the host that lasts until a later OK."""
    return Result.finding(
        check, severity, remedy, component, code=code, summary=_line(summary), evidence=_clean(evidence), sticky=True
    )


def warning(check: str, code: str, summary: str, component: str = NODE_COMPONENT, **evidence: Scalar) -> Result:
    """Recorded, never acted on."""
    return bad(check, code, Severity.WARNING, Remedy.NONE, summary, component, **evidence)


def skipped(check: str, reason: str, component: str = NODE_COMPONENT) -> Result:
    """It does not apply to this component."""
    return Result.skipped(check, component, summary=_line(reason))


def unknown(check: str, reason: str, component: str = NODE_COMPONENT) -> Result:
    """This component could not be asked."""
    return Result.unknown(check, component, summary=_line(reason))


def _clean(evidence: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: _line(value) if isinstance(value, str) else value for name, value in evidence.items()}


def _line(text: str) -> str:
    """Names of processes and mounts are chosen by users: one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:300]


LIMIT_WARNING_PERCENT = 80.0
LIMIT_DEGRADED_PERCENT = 95.0


def near_limit(check: str, used: int, limit: int, summary: str, /, **evidence: Scalar) -> tuple[Result, ...]:
    """A result for a resource that the whole node shares and of which the kernel has a limited number."""
    percent = 100 * used / limit
    summary = f"{summary} ({percent:.0f} %)"
    if percent >= LIMIT_DEGRADED_PERCENT:
        return (bad(check, "exhausted", Severity.DEGRADED, Remedy.REBOOT, summary, NODE_COMPONENT, **evidence),)
    if percent >= LIMIT_WARNING_PERCENT:
        return (warning(check, "high", summary, NODE_COMPONENT, **evidence),)
    return (good(check, summary),)


def limit_thresholds(what: str) -> tuple[Threshold, ...]:
    """The thresholds of :func:`near_limit`."""
    return (
        Threshold(f"{what}, warning", LIMIT_WARNING_PERCENT, "percent", "gpud: degraded at 80 %"),
        Threshold(f"{what}, degraded", LIMIT_DEGRADED_PERCENT, "percent", "gpud: unhealthy at 95 %"),
    )
