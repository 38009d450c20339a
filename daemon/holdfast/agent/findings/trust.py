"""Whose findings count in full: proven checks, and the new ones that the site has switched on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast.agent.findings.withheld_gpus import NOTE, Withheld
from holdfast_checks.acting import Lists
from holdfast_checks.registry import Check
from holdfast_checks.result import Grade, Result, Severity, Verdict
from holdfast_checks.seen_right import SeenRight, recorded_only


@dataclass(frozen=True, slots=True)
class Weighed:
    """A result as it counts on this node. Weighing takes a :class:`Result` and gives this, so that no result is weighed twice."""

    result: Result
    """As it is to be reported."""
    would: Grade | None = None
    """Of a finding whose check only observes: what it would have called for. None: the result counts in full."""


@dataclass(slots=True)
class Trust:
    """A new check observes first: what it finds is a warning that says what it would have called for."""

    checks: Mapping[str, Check]
    lists: Lists = field(default_factory=Lists)
    """What acts here; replaced when the controller gives others."""
    seen_right: SeenRight = field(default_factory=SeenRight)
    """Checks that take an absence for a fault act only where they have once seen the thing in its place."""
    withheld: Withheld = field(default_factory=Withheld)
    """GPUs that Slurm gives to no job: what is found on them is a warning."""

    def acts(self, check: str) -> bool:
        """Whether the check's findings count in full. One that the registry does not know does: its results are the agent's own."""
        known = self.checks.get(check)
        if known is None:
            return check not in self.lists.observe_only
        return known.acts(self.lists.act_on, self.lists.observe_only)

    def weigh(self, result: Result) -> Weighed:
        """What the result counts for."""
        grade, why = result.grade, self._why_only_recorded(result)
        if grade is None or (self.acts(result.check) and not why):
            return Weighed(result)
        if grade.severity is Severity.WARNING:
            return Weighed(result)
        summary = "; ".join([result.summary, *why])
        return Weighed(replace(result, outcome=Grade.of(Severity.WARNING), summary=summary), grade)

    def for_service(self, result: Result) -> Weighed:
        """What the result counts for in a validation: what an observing check could not ask keeps no node from serving."""
        acts = self.acts(result.check) and not self._why_only_recorded(result)
        if result.verdict is Verdict.UNKNOWN and not acts:
            said = f"observes only; could not be asked: {result.summary}"
            return Weighed(replace(result, outcome=Verdict.SKIPPED, summary=said))
        return self.weigh(result)

    def _why_only_recorded(self, result: Result) -> list[str]:
        """Why this result counts for less than its check's results do, in words for people; empty: it does not."""
        unproven = self.seen_right.unproven(result)
        return [*([recorded_only(unproven)] if unproven else []), *([NOTE] if self.withheld.holds(result) else [])]
