"""Output of results, and their exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict

from holdfast_checks.registry import Check
from holdfast_checks.result import Result, Severity, Verdict

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
"""Nagios exit codes."""
_WORST_LAST = (OK, UNKNOWN, WARNING, CRITICAL)


def exit_code(results: Iterable[Result]) -> int:
    """The worst of the results as a Nagios exit code; UNKNOWN is worse than OK and milder than a finding."""
    return worst(map(code_of, results))


def worst(codes: Iterable[int]) -> int:
    """Of Nagios exit codes; OK of none."""
    return max(codes, key=_WORST_LAST.index, default=OK)


def code_of(result: Result) -> int:
    """Of one result that counts in full."""
    if result.bad:
        failed = result.verdict is Verdict.FAILED and result.severity is not Severity.WARNING
        return CRITICAL if failed or result.severity is Severity.FATAL else WARNING
    return UNKNOWN if result.verdict is Verdict.UNKNOWN else OK


def line(result: Result, note: str = "") -> str:
    """A result for people."""
    remedy = f" [{result.severity}, {result.remedy}]" if result.bad else ""
    told = f" ({note})" if note else ""
    return f"{result.verdict.upper():<8} {result.check:<20} {result.component}: {result.summary}{remedy}{told}"


def described(check: Check) -> dict[str, object]:
    """A check as JSON."""
    return {
        "id": check.id,
        "title": check.title,
        "needs": sorted(need.value for need in check.needs),
        "interval_s": check.interval_s,
        "deadline_s": check.deadline_s,
        "cost": check.cost,
        "severity": check.severity,
        "remedy": check.remedy,
        "hysteresis": list(check.hysteresis),
        "observe": check.observe,
        "thresholds": [asdict(threshold) for threshold in check.thresholds],
    }


def say(text: str) -> None:
    """One line of output."""
    sys.stdout.write(text + "\n")
