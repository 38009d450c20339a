"""Counters that only grow, judged by how fast: one table of rules a check. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast_checks.registry import Threshold
from holdfast_checks.result import Remedy, Result, Scalar, Severity

CounterValues = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CounterRule:
    """A counter that grows at least this fast is bad."""

    counter: str
    per_s: float
    """0: any growth at all."""
    meaning: str
    source: str
    severity: Severity = Severity.WARNING
    remedy: Remedy = Remedy.NONE
    event: bool = False
    """Each growth is an event that nothing but repair or an operator clears; False: over when it grows no more."""
    at_least: int = 1
    """Growth below this is never bad, so that a short time between two samples does not turn one event into a high rate."""

    def broken_by(self, growth: int, seconds: float) -> bool:
        return growth >= self.at_least and seconds > 0 and growth / seconds >= self.per_s

    @property
    def threshold(self) -> Threshold:
        """For the catalogue."""
        return Threshold(self.counter, self.per_s, "per s" if self.per_s else "per s (any growth)", self.source)


def growth(before: CounterValues | None, now: CounterValues) -> dict[str, int] | None:
    """How much each counter has grown; None: there is no baseline yet, or one went down (the driver was reloaded)."""
    if before is None:
        return None
    grown = {name: value - before[name] for name, value in now.items() if name in before}
    return None if any(more < 0 for more in grown.values()) else grown


def judge(
    check: str,
    component: str,
    pci: str | None,
    rules: Sequence[CounterRule],
    grown: Mapping[str, int] | None,
    seconds: float,
) -> Result:
    """The first rule of the table that is broken; the other broken rules, as its evidence."""
    if grown is None:
        return Result.ok(check, component, summary="first sample", pci=pci, sticky=True)
    broken = [rule for rule in rules if rule.broken_by(grown.get(rule.counter, 0), seconds)]
    if not broken:
        return Result.ok(check, component, pci=pci, sticky=True)
    worst = broken[0]
    evidence: dict[str, Scalar] = {rule.counter: grown[rule.counter] for rule in broken}
    return Result.finding(
        check,
        worst.severity,
        worst.remedy,
        component,
        code=worst.counter,
        summary=f"{component}: {worst.meaning} ({grown[worst.counter]} more in {seconds:.0f} s)",
        evidence={**evidence, "seconds": round(seconds, 1)},
        pci=pci,
        sticky=not worst.event,
    )


def thresholds(rules: Iterable[CounterRule]) -> tuple[Threshold, ...]:
    """Of a table of rules."""
    return tuple(rule.threshold for rule in rules)
