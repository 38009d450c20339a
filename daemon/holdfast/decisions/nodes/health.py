"""Health of a node: one verdict with its reason, for people and for other automation. Pure.

Unknown is not unhealthy: a node that nothing is known of is neither good nor bad. Whether it is in service is a separate answer, since a
healthy node may be drained by an operator, and a node with a fault may still serve until its jobs end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.decisions.common.node_agents import agent_of
from holdfast.decisions.common.node_drains import drained_by_others
from holdfast.decisions.common.slurm_view import fresh_view
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.nodes.foreign_drains import said
from holdfast.model.agents.report import AgentView
from holdfast.model.book import NodeRecord, World
from holdfast.model.incidents.fleet import natural
from holdfast.model.incidents.incident import ABOUT_JOBS, NOT_OF_A_NODE, Incident, IncidentKind, IncidentState
from holdfast.model.slurm.cluster import Node
from holdfast_checks.result import Severity
from holdfast_checks.words import unknown_reads_as


@unknown_reads_as("unknown", "the node counts as neither healthy nor unhealthy")
class Health(StrEnum):
    """The values are part of the API and do not change."""

    HEALTHY = "healthy"
    """Its agent reports, its checks have run, and none of them calls for action."""
    DEGRADED = "degraded"
    """It has a fault for which it is taken out of service once its jobs end."""
    UNHEALTHY = "unhealthy"
    """It has a fault that harms jobs now, or it is dead."""
    UNKNOWN = "unknown"
    """Nothing current is known of it: its agent is silent, or a record cannot be read."""
    NOT_EVALUATED = "not_evaluated"
    """It is not judged: no agent, in maintenance, powered off, or its checks have not all run yet."""


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """The verdict on one node."""

    health: Health
    reason: str
    """One line for people; never empty."""
    since: datetime | None
    """Since when this is so; None: not known."""
    in_service: bool | None
    """Whether Slurm starts jobs there, or would; None: Slurm does not show it, or its state is not current."""
    incident_id: str = ""
    """Open incident that the verdict is from; empty: it is from none."""


@dataclass(frozen=True, slots=True)
class _Case:
    """One node that is judged."""

    world: World
    name: str
    node: Node | None
    """As Slurm shows it now; None: it does not, or its answer is old."""
    incidents: tuple[Incident, ...]
    """Open ones."""

    @property
    def record(self) -> NodeRecord | None:
        return self.world.book.nodes.get(self.name)


_Verdict = tuple[Health, str, datetime | None, str]
_NOT_JUDGED = frozenset(
    {
        hands_off.Hands.MAINT,
        hands_off.Hands.RESERVED,
        hands_off.Hands.REBOOT,
        hands_off.Hands.POWER_SAVING,
        hands_off.Hands.WINDOW,
    }
)
_GRAVITY = {Severity.FATAL: 2, Severity.DEGRADED: 1, Severity.WARNING: 0}


def health_of(world: World, name: str) -> NodeHealth | None:
    """The verdict; None: neither Slurm, an agent nor the store knows such a node."""
    view, mine = fresh_view(world), world.book.open_on(name)
    shown = view is not None and name in view.nodes
    if not shown and name not in world.book.nodes and name not in world.agents and not mine:
        return None
    return _judged(_Case(world, name, view.nodes.get(name) if view is not None else None, mine))


def health_of_all(world: World) -> dict[str, NodeHealth]:
    """The verdict on each node that Slurm shows or an agent reports from; by name, as people count."""
    view = fresh_view(world)
    nodes = view.nodes if view is not None else {}
    incidents: dict[str, list[Incident]] = {}
    for _, incident in sorted(world.book.incidents.items()):
        if incident.open:
            incidents.setdefault(incident.node, []).append(incident)
    names = sorted({*nodes, *world.agents, *incidents}, key=natural)
    return {n: _judged(_Case(world, n, nodes.get(n), tuple(incidents.get(n, ())))) for n in names}


def _judged(case: _Case) -> NodeHealth:
    health, reason, since, incident_id = next(v for rule in _RULES if (v := rule(case)) is not None)
    return NodeHealth(health, reason, since, _in_service(case.node), incident_id)


def _in_service(node: Node | None) -> bool | None:
    return None if node is None or node.unknown else not node.out_of_service and not node.asleep


def _unreadable(case: _Case) -> _Verdict | None:
    found = next((i for i in case.incidents if i.kind in NOT_OF_A_NODE), None)
    return None if found is None else (Health.UNKNOWN, found.headline, found.opened_at, found.id)


def _in_other_hands(case: _Case) -> _Verdict | None:
    hands = hands_off.on(case.world, case.name)
    if hands is None or hands.hands not in _NOT_JUDGED:
        return None
    record = case.record
    return Health.NOT_EVALUATED, hands.whose, record.hands_since if record is not None and record.hands else None, ""


def _of_incident(case: _Case) -> _Verdict | None:
    """The gravest open incident that is about the node itself."""
    mine = [i for i in case.incidents if i.kind not in ABOUT_JOBS and _accuses(i)]
    if not mine:
        return None
    worst = max(mine, key=lambda i: (i.dead, _GRAVITY[i.severity], i.id))
    health = Health.UNHEALTHY if worst.dead or worst.severity is Severity.FATAL else Health.DEGRADED
    note = f"; {worst.note}" if worst.note else ""
    return health, f"{worst.headline} ({worst.state.value}{note})", worst.fault_at, worst.id


def _accuses(incident: Incident) -> bool:
    """Whether its node is known to be bad; a suspicion and a warning are not enough."""
    if incident.kind is IncidentKind.SILENCE:
        return incident.dead
    if incident.only_ordered:
        return False
    grave = incident.severity is not Severity.WARNING
    return incident.dead or (grave and incident.state not in (IncidentState.SUSPECTED, IncidentState.WATCHING))


def _suspected(case: _Case) -> _Verdict | None:
    mine = (i for i in case.incidents if i.kind not in ABOUT_JOBS)
    found = [i for i in mine if i.state is IncidentState.SUSPECTED or i.kind is IncidentKind.SILENCE]
    return (Health.UNKNOWN, found[0].headline, found[0].opened_at, found[0].id) if found else None


def _unheard(case: _Case) -> _Verdict | None:
    if agent_of(case.world, case.name) is not None:
        return None
    record, agents = case.record, case.world.agents.get(case.name, ())
    if agents:
        last = max(agents, key=lambda a: a.last_heard)
        return Health.UNKNOWN, "its agent does not report", last.last_heard, ""
    if record is None or not record.boot_id:
        return Health.NOT_EVALUATED, "no agent of Holdfast has ever reported from it", None, ""
    if case.world.frozen is not None:
        return Health.UNKNOWN, "the controller has just started and its agent has not reported to it yet", None, ""
    return Health.UNKNOWN, "its agent has not reported since the controller started", case.world.listening_since, ""


def _by_slurm(case: _Case) -> _Verdict | None:
    """slurmctld has it DOWN while its agent reports: no check says why."""
    node = case.node
    if node is None or not node.down_by_slurm:
        return None
    return Health.UNKNOWN, f"Slurm set it DOWN ({node.reason}) while its agent reports", node.reason_time, ""


def _reporting(case: _Case) -> _Verdict:
    agent = agent_of(case.world, case.name)
    assert agent is not None  # noqa: S101 - else _unheard has the verdict
    if not agent.all_ok and not agent.failing:
        return Health.NOT_EVALUATED, "its checks have not all run since its agent started", agent.first_heard, ""
    return Health.HEALTHY, _fine(case, agent), agent.first_heard, ""


def _fine(case: _Case, agent: AgentView) -> str:
    record, node = case.record, case.node
    drained = node is not None and drained_by_others(case.world, node)
    shown = record.shown if record is not None else None
    by = f"; {said(shown)}" if drained and shown is not None and shown.out else ""
    if agent.failing:
        failing = ", ".join(agent.failing[:5])
        mine = (i for i in case.world.book.incidents.values() if i.node == case.name)
        if (fault := unrepaired(mine, agent)) is not None:
            return f"put back before incident {fault.id} was repaired; these checks fail: {failing}{by}"
        return f"nothing calls for action; these checks only warn, only observe or are suppressed: {failing}{by}"
    return f"all checks are OK{by}"


def unrepaired(incidents: Iterable[Incident], agent: AgentView) -> Incident | None:
    """The newest fault of the agent's node that was closed under this agent without a proof that it is repaired, while a check fails,
    whichever; None: there is none. ``incidents``: of the node."""
    if not agent.failing:
        return None
    faults = (i for i in incidents if i.kind is IncidentKind.FAULT and i.severity is not Severity.WARNING)
    unproved = (
        i for i in faults if not i.open and i.validated_at is None and (i.closed_at or i.opened_at) > agent.first_heard
    )
    return max(unproved, key=lambda i: i.id, default=None)


_RULES: tuple[Callable[[_Case], _Verdict | None], ...] = (
    _unreadable,
    _in_other_hands,
    _of_incident,
    _suspected,
    _unheard,
    _by_slurm,
    _reporting,
)
"""In the order of their weight; the first one that has a verdict gives it."""
