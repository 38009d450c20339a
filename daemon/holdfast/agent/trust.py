"""Whose findings count in full: proven checks, and the new ones that the site has switched on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from holdfast_checks.registry import Check
from holdfast_checks.result import Remedy, Result, Severity, Verdict

ALL = "*"
_PLANNED = "notice"
"""Of a warning with this in its evidence the controller makes a planned stop (``docs/planned-stops.md``)."""


@dataclass(frozen=True, slots=True)
class Trust:
    """A new check observes first: what it finds is a warning, with what it would have called for in its evidence."""

    checks: Mapping[str, Check]
    act_on: frozenset[str] = frozenset()
    """Ids that the site trusts; ``*``: all."""
    observe_only: frozenset[str] = frozenset()

    def acts(self, check: str) -> bool:
        """Whether the check's findings count in full. One that the registry does not know does: its results are the agent's own."""
        if check in self.observe_only:
            return False
        known = self.checks.get(check)
        return known is None or not known.observe or ALL in self.act_on or check in self.act_on

    def weigh(self, result: Result) -> Result:
        """The result as it is to be reported."""
        if not result.bad or self.acts(result.check):
            return result
        if result.severity is Severity.WARNING and _PLANNED not in result.evidence:
            return result
        would = {"would_severity": str(result.severity or ""), "would_remedy": result.remedy.value}
        return replace(
            result,
            verdict=Verdict.DEGRADED,
            severity=Severity.WARNING,
            remedy=Remedy.NONE,
            evidence={**result.evidence, "observe": True, **would},
        )

    def for_service(self, result: Result) -> Result:
        """The result as it counts in a validation: what an observing check could not ask keeps no node from serving."""
        if result.verdict is Verdict.UNKNOWN and not self.acts(result.check):
            return replace(
                result, verdict=Verdict.SKIPPED, summary=f"observes only; could not be asked: {result.summary}"
            )
        return self.weigh(result)
