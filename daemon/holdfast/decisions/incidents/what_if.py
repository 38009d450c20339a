"""Recorded findings under another policy: which nodes it would have drained that were not, and the reverse. Pure.

Only what the change of the policy changes is counted: a finding counts as it was recorded, unless its check acts under one of the two
policies and not under the other. Brakes, pauses, suppressions and other hands are not replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from holdfast.decisions.common.check_policy import checks_for
from holdfast.decisions.common.node_policy import policy_for
from holdfast.decisions.incidents.correlate import NO_INCIDENT, acts
from holdfast.model.agents.report import Finding, SeenFinding
from holdfast.model.incidents.observed import never_in_full
from holdfast.model.operators.proposals import StepKind
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import Node
from holdfast_checks.acting import CheckPolicy
from holdfast_checks.result import Remedy, Severity

ActsBy = Callable[[str, CheckPolicy], bool]
"""Whether a check of this id acts where this policy holds."""


class WhatIfOutcome(IntEnum):
    """What a fault leads to; the higher, the more."""

    WATCHED = 0
    """It calls for no drain."""
    RECORDED = 1
    """It calls for a drain, and only the record says so: mode observe, or a node that is never touched."""
    ASKED = 2
    """An operator is asked (mode propose)."""
    DRAINED = 3


@dataclass(frozen=True, slots=True)
class WhatIfFault:
    """A fault that the other policy would have treated otherwise."""

    node: str
    incident_id: str | None
    at: datetime
    """When the finding that makes the difference was received first."""
    check: str
    code: str
    severity: Severity
    remedy: Remedy
    """What it calls for where its check acts."""
    times: int
    before: WhatIfOutcome
    after: WhatIfOutcome
    why: str


@dataclass(frozen=True, slots=True)
class _Judged:
    seen: SeenFinding
    before: WhatIfOutcome
    after: WhatIfOutcome
    why: str


def what_if(
    findings: Iterable[SeenFinding], now: Policy, then: Policy, nodes: Mapping[str, Node], acts_by: ActsBy
) -> tuple[WhatIfFault, ...]:
    """Oldest first. ``nodes``: as Slurm shows them now, for the tables that go by partition or feature."""
    faults: dict[str, list[_Judged]] = {}
    for seen in findings:
        finding = seen.finding
        if not finding.consequence:
            alone = finding.incident_id in (None, NO_INCIDENT)
            name = f"finding {finding.id}" if alone else str(finding.incident_id)
            faults.setdefault(name, []).append(_judged(seen, now, then, nodes.get(finding.node), acts_by))
    found = (_fault(judged) for judged in faults.values())
    return tuple(sorted((each for each in found if each is not None), key=lambda each: (each.at, each.node)))


def _judged(seen: SeenFinding, now: Policy, then: Policy, node: Node | None, acts_by: ActsBy) -> _Judged:
    finding = seen.finding
    did, would = (acts_by(finding.check, checks_for(finding.node, node, each)) for each in (now, then))
    recorded = acts(finding.severity, finding.remedy)
    called = recorded
    if would and not did and not never_in_full(finding.evidence):
        called = acts(*_in_full(finding))
    elif did and not would:
        called = False
    before, after = _outcome(finding, node, now, calls=recorded), _outcome(finding, node, then, calls=called)
    return _Judged(seen, before, after, _why(finding, node, now, then, did=did, would=would))


def _in_full(finding: Finding) -> tuple[Severity, Remedy]:
    return finding.would_severity or finding.severity, finding.would_remedy or finding.remedy


def _outcome(finding: Finding, node: Node | None, policy: Policy, *, calls: bool) -> WhatIfOutcome:
    if not calls:
        return WhatIfOutcome.WATCHED
    here = policy_for(finding.node, node, policy)
    if here.never_touch or here.mode is Mode.OBSERVE:
        return WhatIfOutcome.RECORDED
    return WhatIfOutcome.ASKED if StepKind.DRAIN in here.asks else WhatIfOutcome.DRAINED


def _why(finding: Finding, node: Node | None, now: Policy, then: Policy, *, did: bool, would: bool) -> str:
    if did is not would:
        off = finding.check in checks_for(finding.node, node, then).off  # rule kind-not-check: a site lists checks
        return f"{finding.check} would {'act' if would else 'be off' if off else 'only observe'}"
    before, after = (policy_for(finding.node, node, each) for each in (now, then))
    return f"{after.why} instead of {before.why}"


def _fault(judged: list[_Judged]) -> WhatIfFault | None:
    """The incident's findings together: a node that was drained for one of them was drained."""
    before, after = max(each.before for each in judged), max(each.after for each in judged)
    if before is after:
        return None
    more = after > before
    deciding = [each for each in judged if (each.after is after if more else each.before is before)]
    first = min(deciding, key=lambda each: (each.seen.finding.received_at, each.seen.finding.id))
    finding, (severity, remedy) = first.seen.finding, _in_full(first.seen.finding)
    return WhatIfFault(
        finding.node,
        None if finding.incident_id == NO_INCIDENT else finding.incident_id,
        finding.received_at,
        finding.check,
        finding.code,
        severity,
        remedy,
        first.seen.repeats + 1,
        before,
        after,
        first.why,
    )


def policy_changes(nodes: Mapping[str, Node], now: Policy, then: Policy) -> dict[str, tuple[str, ...]]:
    """Node → what the other policy changes there, for people; nodes where it changes nothing are left out."""
    found = {name: tuple(_changes(name, node, now, then)) for name, node in nodes.items()}
    return {name: lines for name, lines in found.items() if lines}


def _changes(name: str, node: Node, now: Policy, then: Policy) -> Iterable[str]:
    mine, others = (checks_for(name, node, each) for each in (now, then))
    yield from _lists("act_on", mine.lists.act_on, others.lists.act_on)
    yield from _lists("observe_only", mine.lists.observe_only, others.lists.observe_only)
    yield from _lists("checks_off", mine.off, others.off)
    for key in sorted({*mine.thresholds, *others.thresholds}):
        before, after = (_number(each.thresholds.get(key)) for each in (mine, others))
        if before != after:
            yield f"{key}: {before} → {after}"
    was, would_be = (policy_for(name, node, each) for each in (now, then))
    if was.mode is not would_be.mode:
        yield f"mode: {was.mode.value} → {would_be.mode.value}"
    if was.never_touch is not would_be.never_touch:
        yield "never_touch: " + ("from now on" if would_be.never_touch else "no longer")
    yield from _lists("rungs", was.rungs, would_be.rungs)
    yield from _lists("steps that wait for an accept", was.asks, would_be.asks)
    yield from _limits(_own_limits(name, node, now), _own_limits(name, node, then))


def _own_limits(name: str, node: Node, policy: Policy) -> dict[str, int]:
    """Brakes and budgets of the node's sets, by ``SET KEY``."""
    mine = (each for each in policy.nodes if each.has(name, node))
    return {f"{each.name} {key}": most for each in mine for key, most in {**each.brakes, **each.budgets}.items()}


def _limits(before: Mapping[str, int], after: Mapping[str, int]) -> Iterable[str]:
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield f"limit of set {key}: {before.get(key, 'none')} → {after.get(key, 'none')}"


def _lists(name: str, before: Iterable[str], after: Iterable[str]) -> Iterable[str]:
    old, new = {str(each) for each in before}, {str(each) for each in after}
    words = [*(f"+{each}" for each in sorted(new - old)), *(f"-{each}" for each in sorted(old - new))]
    if words:
        yield f"{name}: {' '.join(words)}"


def _number(value: float | None) -> str:
    return "as agent.toml has it" if value is None else f"{value:g}"
