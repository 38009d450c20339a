"""Policy of checks of a node, by ``[checks]`` and the ``[[nodes]]`` tables. Pure.

A table only makes checks less active: a check observes, or is off, if ``[checks]`` or any table of the node says so; a table's ``act_on``
takes checks away from those that act; and of several values of a threshold the mildest counts.
While Slurm does not show a node, each table that goes by partition or feature counts as having it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce

from holdfast.model.agents.report import Finding
from holdfast.model.book import World
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import Node
from holdfast_checks.acting import ALL, CheckPolicy, Lists, flat
from holdfast_checks.result import Remedy, Severity

SITE = "[checks]"


class SaidKind(StrEnum):
    """What is said of a check or a threshold."""

    OBSERVES = "observes"
    """It only reports warnings."""
    OFF = "off"
    """It is not run."""
    ACTS = "acts"
    """A new check that acts; by a node set: one of those that still do."""
    THRESHOLD = "threshold"


@dataclass(frozen=True, slots=True)
class SaidOfChecks:
    """One thing that the policy of checks says, and who says it."""

    name: str
    """Id of a check, or ``TABLE.KEY`` of a threshold."""
    value: float | None
    """Of a threshold; None: it is said of a check."""
    by: str
    """``[checks]``, or the name of a node set."""
    counts: bool
    """Whether it decides; False: another one is more cautious."""
    what: SaidKind


def checks_for(name: str, node: Node | None, policy: Policy) -> CheckPolicy:
    """The policy of the node's checks. ``node``: as Slurm shows it; None: it is not known."""
    return reduce(_with, _sets(name, node, policy), policy.checks)


class Versions:
    """Versions of the policies of many nodes; those of the same tables have the same one."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._known: dict[tuple[str, ...], str] = {}

    def __call__(self, name: str, node: Node | None) -> str:
        sets = _sets(name, node, self._policy)
        key = tuple(each.name for each in sets)
        if key not in self._known:
            self._known[key] = reduce(_with, sets, self._policy.checks).version
        return self._known[key]


def said_of_checks(name: str, node: Node | None, policy: Policy) -> Iterator[SaidOfChecks]:
    """Everything that is said of the node's checks."""
    total = checks_for(name, node, policy)
    for each in said_everywhere(replace(policy, nodes=tuple(_sets(name, node, policy)))):
        yield replace(each, counts=_counts(each, total))


def _counts(said: SaidOfChecks, total: CheckPolicy) -> bool:
    match said.what:
        case SaidKind.THRESHOLD:
            return said.value == total.thresholds[said.name]
        case SaidKind.ACTS:
            acting = (
                said.name in total.lists.act_on or ALL in total.lists.act_on
            )  # rule kind-not-check: a site lists checks
            return acting and said.name not in (*total.lists.observe_only, *total.off)
        case SaidKind.OBSERVES:
            return said.name not in total.off
        case SaidKind.OFF:
            return True


def said_everywhere(policy: Policy) -> Iterator[SaidOfChecks]:
    """Everything that ``[checks]`` and the node sets say; which of it counts depends on the node."""
    yield from _said(SITE, policy.checks)
    for each in policy.nodes:
        yield from _said(
            each.name, CheckPolicy(Lists(each.act_on, each.observe_only), flat(each.thresholds), each.checks_off)
        )


def _said(by: str, mine: CheckPolicy) -> Iterator[SaidOfChecks]:
    yield from (SaidOfChecks(check, None, by, True, SaidKind.ACTS) for check in mine.lists.act_on)
    yield from (SaidOfChecks(check, None, by, True, SaidKind.OBSERVES) for check in mine.lists.observe_only)
    yield from (SaidOfChecks(check, None, by, True, SaidKind.OFF) for check in mine.off)
    yield from (SaidOfChecks(key, value, by, True, SaidKind.THRESHOLD) for key, value in mine.thresholds.items())


def weighed(world: World) -> World:
    """The world with each finding as it counts (:func:`observed`)."""
    policy = world.policy
    if not _silences(policy.checks) and not any(each.observe_only or each.checks_off for each in policy.nodes):
        return world
    findings = {number: observed(world, finding) for number, finding in world.book.findings.items()}
    return replace(world, book=replace(world.book, findings=findings))


def observed(world: World, finding: Finding) -> Finding:
    """The finding as it counts: where the policy says that its check only observes on this node, or is off, a warning that calls for
    nothing. An agent that has the policy reports it so, or not at all; one of an earlier release, or one that does not have it yet, does
    not."""
    if finding.severity is Severity.WARNING:
        return finding
    if finding.check not in _surely_observing(world, finding.node):  # rule kind-not-check: a site lists checks
        return finding
    return replace(
        finding,
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        would_severity=finding.would_severity or finding.severity,
        would_remedy=finding.would_remedy or finding.remedy,
    )


def undecided(world: World, finding: Finding) -> bool:
    """Whether the finding has to wait until Slurm shows the node: a table that may have it says that its check only observes."""
    if observed(world, finding).severity is Severity.WARNING or _shown(world, finding.node) is not None:
        return False
    may_observe = _silences(checks_for(finding.node, None, world.policy))
    return finding.check in may_observe  # rule kind-not-check: a site lists checks


def _surely_observing(world: World, name: str) -> tuple[str, ...]:
    """Of a node that Slurm does not show, only what needs no partition or feature to be known."""
    node, policy = _shown(world, name), world.policy
    if node is not None:
        return _silences(checks_for(name, node, policy))
    sure = (each for each in policy.nodes if each.has_by_name(name))
    return _silences(reduce(_with, sure, policy.checks))


def _silences(policy: CheckPolicy) -> tuple[str, ...]:
    """Checks whose findings call for nothing."""
    return (*policy.lists.observe_only, *policy.off)


def _shown(world: World, name: str) -> Node | None:
    return world.view.nodes.get(name) if world.view is not None else None


def _sets(name: str, node: Node | None, policy: Policy) -> Iterable[NodeSet]:
    return [each for each in policy.nodes if _speaks(each) and each.has(name, node)]


def _speaks(each: NodeSet) -> bool:
    return bool(each.observe_only or each.thresholds or each.checks_off or each.act_on)


def _with(policy: CheckPolicy, each: NodeSet) -> CheckPolicy:
    return policy.restricted(each.observe_only, flat(each.thresholds), off=each.checks_off, act_on=each.act_on)
