"""Weight of findings: those of proven checks and of new checks that the site has enabled count in full. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast.agent.findings.withheld_gpus import NOTE, WithheldGpus
from holdfast_checks.acting import Lists
from holdfast_checks.registry import Check
from holdfast_checks.result import Grade, Result, Severity, Verdict
from holdfast_checks.seen_right import SeenRight, recorded_only


@dataclass(frozen=True, slots=True)
class Weighed:
    """A result as it counts on this node. Weighing turns a :class:`Result` into this type, so that no result is weighed twice."""

    result: Result
    """The result as it is to be reported."""
    would: Grade | None = None
    """For a finding of an observing check: the grade that it would have had. None: the result counts in full."""
    recorded_only: bool = False
    """It would not count in full either if its check acted."""


@dataclass(slots=True)
class ResultTrust:
    """Weighs results. A new check observes first: its findings are warnings that name the grade they would have had."""

    checks: Mapping[str, Check]
    lists: Lists = field(default_factory=Lists)
    """The checks that act here; replaced when the controller sends others."""
    seen_right: SeenRight = field(default_factory=SeenRight)
    """Checks that treat an absence as a fault act only where they have once seen the component present."""
    withheld: WithheldGpus = field(default_factory=WithheldGpus)
    """GPUs that Slurm gives to no job: findings on them are warnings."""

    def acts(self, check: str) -> bool:
        """Whether the check's findings count in full. Those of a check unknown to the registry do: its results are the agent's own."""
        known = self.checks.get(check)
        if known is None:
            return check not in self.lists.observe_only
        return known.acts(self.lists.act_on, self.lists.observe_only)

    def weigh(self, result: Result) -> Weighed:
        """Weigh the result."""
        grade, why = result.grade, self._why_only_recorded(result)
        if grade is None or (self.acts(result.check) and not why):
            return Weighed(result)
        if grade.severity is Severity.WARNING:
            return Weighed(result)
        summary = "; ".join([result.summary, *why])
        return Weighed(replace(result, outcome=Grade.of(Severity.WARNING), summary=summary), grade, bool(why))

    def for_service(self, result: Result) -> Weighed:
        """Weigh the result for a validation: an UNKNOWN of an observing check does not keep a node out of service."""
        acts = self.acts(result.check) and not self._why_only_recorded(result)
        if result.verdict is Verdict.UNKNOWN and not acts:
            said = f"observes only; could not be asked: {result.summary}"
            return Weighed(replace(result, outcome=Verdict.SKIPPED, summary=said))
        return self.weigh(result)

    def _why_only_recorded(self, result: Result) -> list[str]:
        """Reasons, for operators, why this result counts for less than its check's results do; empty: it does not."""
        unproven = self.seen_right.unproven(result)
        return [*([recorded_only(unproven)] if unproven else []), *([NOTE] if self.withheld.holds(result) else [])]
