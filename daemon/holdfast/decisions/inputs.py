"""Inputs of a turn, and a substitute for each one that makes a decision raise. Pure.

Substitutes follow the rule for unreadable records (``store/standins.py``): nothing is lost, nothing is done twice, and leaving an input out
never makes an action more likely. An input that occupies no node is left out; one that occupies a node stays, without the free text that a
decision may fail on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from holdfast.model.actions.action import Intent, IntentState
from holdfast.model.agents.report import AgentView
from holdfast.model.book import Book, NodeRecord, World
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState, Recovery, RecoveryPhase
from holdfast.model.incidents.transitions import NewIncident, close, open_incident
from holdfast.model.machine import ProviderView
from holdfast.model.slurm.cluster import ClusterView, Job, Node
from holdfast_checks.result import Remedy, Severity

NO_DECISION = "Holdfast cannot decide about it"


class InputKind(StrEnum):
    """Kinds of input, in the order in which they are tried: the most harmless to leave out first."""

    FINDING = "finding"
    """Left out."""
    ORDER_OUTCOME = "order_outcome"
    """The order counts as not answered yet."""
    AGENT = "agent"
    """Counts as reporting, but not as healthy."""
    CHECKPOINT = "checkpoint"
    """What one node reported about a job: left out."""
    SUPPRESSION = "suppression"
    """Left out: its findings lead to incidents."""
    PROVIDER_NOTICE = "provider_notice"
    """Left out."""
    NODE_RECORD = "node_record"
    """The node keeps its machine."""
    MARK = "mark"
    """Left out: the drain counts as another's."""
    RECOVERY = "recovery"
    """The job is left to its owner."""
    INCIDENT = "incident"
    """Held for an operator."""
    JOB = "job"
    """Stays where it is, without what its user wrote; it is not requeued."""
    NODE = "node"
    """Stays as it is; a drain counts as another's."""


@dataclass(frozen=True, slots=True)
class Input:
    """Names one input of a turn."""

    part: InputKind
    key: str
    node: str = ""
    """Node that it is about; empty: about none, or about many."""
    what: str = ""
    """For people: the check of a finding, the step of an order."""

    @property
    def text(self) -> str:
        """``finding 17 of n3 (gpu.xid)``, for people."""
        of = f" of {self.node}" if self.node else ""
        return f"{self.part.value.replace('_', ' ')} {self.key}{of}" + (f" ({self.what})" if self.what else "")


@dataclass(frozen=True, slots=True)
class _Kind:
    found: Callable[[World], Iterable[Input]]
    """Newest first, where that is known."""
    without: Callable[[World, Collection[str]], World]
    """Replaces the inputs with these keys."""


def inputs(world: World, part: InputKind) -> tuple[Input, ...]:
    """All inputs of this part."""
    return tuple(_KINDS[part].found(world))


def without(world: World, left_out: Iterable[Input]) -> World:
    """The world with substitutes for these inputs. Inputs that it does not contain change nothing."""
    keys: dict[InputKind, set[str]] = {}
    for each in left_out:
        keys.setdefault(each.part, set()).add(each.key)
    for part in InputKind:
        if part in keys:
            world = _KINDS[part].without(world, keys[part])
    return world


def _book(world: World, **changed: object) -> World:
    return replace(world, book=replace(world.book, **changed))  # type: ignore[arg-type]


def _findings(world: World) -> Iterator[Input]:
    newest_first = sorted(world.book.findings.values(), key=lambda f: (f.incident_id is not None, -f.id))
    return (Input(InputKind.FINDING, str(f.id), f.node, f.check) for f in newest_first)


def _no_findings(world: World, keys: Collection[str]) -> World:
    return _book(world, findings={n: f for n, f in world.book.findings.items() if str(n) not in keys})


def _outcomes(world: World) -> Iterator[Input]:
    answered = (i for i in world.book.intents.values() if i.result)
    newest_first = sorted(answered, key=lambda i: (i.planned_at, i.key), reverse=True)
    return (Input(InputKind.ORDER_OUTCOME, i.key, i.action.target.node or "", i.kind) for i in newest_first)


def _no_outcomes(world: World, keys: Collection[str]) -> World:
    return _book(world, intents={k: _unanswered(i) if k in keys else i for k, i in world.book.intents.items()})


def _unanswered(intent: Intent) -> Intent:
    return replace(intent, state=IntentState.STARTED, finished_at=None, result={}, outcome=NO_DECISION)


def _agents(world: World) -> Iterator[Input]:
    every = (a for _, agents in sorted(world.agents.items()) for a in agents)
    return (Input(InputKind.AGENT, f"{a.node}/{a.instance_id}", a.node, a.agent_version) for a in every)


def _plain_agents(world: World, keys: Collection[str]) -> World:
    def plain(agent: AgentView) -> AgentView:
        if f"{agent.node}/{agent.instance_id}" not in keys:
            return agent
        return AgentView(agent.node, agent.instance_id, agent.boot_id, last_heard=world.now, first_heard=world.now)

    return replace(world, agents={node: tuple(map(plain, agents)) for node, agents in world.agents.items()})


def _claims(world: World) -> Iterator[Input]:
    for job, claims in sorted(world.book.checkpoints.items(), reverse=True):
        yield from (Input(InputKind.CHECKPOINT, f"{job}/{node}", node, f"job {job}") for node in sorted(claims))


def _no_claims(world: World, keys: Collection[str]) -> World:
    kept = {
        job: {node: claim for node, claim in claims.items() if f"{job}/{node}" not in keys}
        for job, claims in world.book.checkpoints.items()
    }
    return _book(world, checkpoints=kept)


def _notices(world: World) -> Iterator[Input]:
    notices = world.book.provider.notices if world.book.provider is not None else ()
    return (Input(InputKind.PROVIDER_NOTICE, f"{n.instance_id}/{n.code}", n.node, n.kind.value) for n in notices)


def _no_notices(world: World, keys: Collection[str]) -> World:
    provider: ProviderView | None = world.book.provider
    if provider is None:
        return world
    kept = tuple(n for n in provider.notices if f"{n.instance_id}/{n.code}" not in keys)
    return _book(world, provider=replace(provider, notices=kept))


def _records(world: World) -> Iterator[Input]:
    return (Input(InputKind.NODE_RECORD, name, name) for name in sorted(world.book.nodes))


def _plain_records(world: World, keys: Collection[str]) -> World:
    nodes = world.book.nodes.items()
    return _book(world, nodes={n: NodeRecord(n, r.instance_id) if n in keys else r for n, r in nodes})


def _recoveries(world: World) -> Iterator[Input]:
    newest_first = sorted(world.book.recoveries.values(), key=lambda r: (r.created_at, r.id), reverse=True)
    return (Input(InputKind.RECOVERY, r.id, what=r.phase.value) for r in newest_first)


def _left_recoveries(world: World, keys: Collection[str]) -> World:
    def left(recovery: Recovery) -> Recovery:
        return replace(recovery, phase=RecoveryPhase.LEFT_ALONE, note=NO_DECISION, consent="", ground=None)

    return _book(world, recoveries={k: left(r) if k in keys else r for k, r in world.book.recoveries.items()})


def _incidents(world: World) -> Iterator[Input]:
    newest_first = sorted(world.book.incidents.values(), key=lambda i: i.id, reverse=True)
    return (Input(InputKind.INCIDENT, i.id, i.node, i.check) for i in newest_first)


def _held_incidents(world: World, keys: Collection[str]) -> World:
    return _book(world, incidents={k: _held(i) if k in keys else i for k, i in world.book.incidents.items()})


def _held(incident: Incident) -> Incident:
    new = NewIncident(
        id=incident.id,
        kind=IncidentKind.UNREADABLE,
        node=incident.node,
        severity=Severity.DEGRADED,
        remedy=Remedy.HUMAN,
        check=incident.check,
        headline=f"incident {incident.id}: {NO_DECISION}",
        fault_at=incident.fault_at,
        note="nothing is done about the node until an operator closes the incident",
    )
    made, _ = open_incident(new, IncidentState.AWAITING_HUMAN, incident.opened_at)
    if not incident.open:
        made, _ = close(made, incident.closed_at or incident.opened_at, NO_DECISION)
    return replace(made, operated=incident.operated)


def _jobs(world: World) -> Iterator[Input]:
    jobs = world.view.jobs if world.view is not None else {}
    return (Input(InputKind.JOB, str(number), what=str(jobs[number].user)) for number in sorted(jobs, reverse=True))


def _plain_jobs(world: World, keys: Collection[str]) -> World:
    def plain(job: Job) -> Job:
        parts = tuple(map(plain, job.parts))
        said = {"name": "", "comment": "", "admin_comment": "", "work_dir": "", "stdout": ""}
        return replace(job, requeue=False, parts=parts, **said)  # type: ignore[arg-type]

    return _view(world, lambda v: replace(v, jobs={n: plain(j) if str(n) in keys else j for n, j in v.jobs.items()}))


def _nodes(world: World) -> Iterator[Input]:
    return (Input(InputKind.NODE, name, name) for name in sorted(world.view.nodes if world.view is not None else ()))


def _plain_nodes(world: World, keys: Collection[str]) -> World:
    def plain(node: Node) -> Node:
        return replace(node, reason=NO_DECISION, reason_user="holdfast") if node.out_of_service else node

    return _view(world, lambda v: replace(v, nodes={k: plain(n) if k in keys else n for k, n in v.nodes.items()}))


def _view(world: World, changed: Callable[[ClusterView], ClusterView]) -> World:
    return world if world.view is None else replace(world, view=changed(world.view))


def _kept(part: InputKind, of: Callable[[Book], Mapping[str, object]], field: str) -> _Kind:
    """Kind of input kept in a mapping, whose entries are simply left out."""

    def kept(world: World, keys: Collection[str]) -> World:
        return _book(world, **{field: {k: each for k, each in of(world.book).items() if k not in keys}})

    def found(world: World) -> Iterator[Input]:
        return (Input(part, key, key if part is InputKind.MARK else "") for key in sorted(of(world.book)))

    return _Kind(found, kept)


_KINDS: Mapping[InputKind, _Kind] = {
    InputKind.FINDING: _Kind(_findings, _no_findings),
    InputKind.ORDER_OUTCOME: _Kind(_outcomes, _no_outcomes),
    InputKind.AGENT: _Kind(_agents, _plain_agents),
    InputKind.CHECKPOINT: _Kind(_claims, _no_claims),
    InputKind.SUPPRESSION: _kept(InputKind.SUPPRESSION, lambda b: b.suppressions, "suppressions"),
    InputKind.PROVIDER_NOTICE: _Kind(_notices, _no_notices),
    InputKind.NODE_RECORD: _Kind(_records, _plain_records),
    InputKind.MARK: _kept(InputKind.MARK, lambda b: b.marks, "marks"),
    InputKind.RECOVERY: _Kind(_recoveries, _left_recoveries),
    InputKind.INCIDENT: _Kind(_incidents, _held_incidents),
    InputKind.JOB: _Kind(_jobs, _plain_jobs),
    InputKind.NODE: _Kind(_nodes, _plain_nodes),
}
