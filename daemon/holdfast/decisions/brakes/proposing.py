"""Steps that wait for an operator's accept, and those that may be done to no node of a set. Pure.

An accept lets the very step that was asked about through, once and for a time; it passes no brake, no budget and no proof of the actor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from holdfast.decisions.brakes.step_kinds import JOB_KINDS, kind_of, question
from holdfast.decisions.common.node_policy import NodePolicy, least_of
from holdfast.model.actions.action import HoldNodes, Intent, IntentState, Proposal
from holdfast.model.actions.steps import Step
from holdfast.model.book import Book, World
from holdfast.model.incidents.incident import Incident
from holdfast.model.operators.proposals import ProposalRecord, ProposalState, Question, StepKind
from holdfast.model.policies.policy import Mode


@dataclass(frozen=True, slots=True)
class Ask:
    """A proposal that an operator has to accept."""

    proposal: Proposal
    question: Question
    record: ProposalRecord | None
    """What is on record about it; None: it was not asked yet, or something else was."""


def policy_about(world: World, proposal: Proposal) -> NodePolicy:
    """What may be done, given every node that the step is about: the most restrictive counts."""
    return least_of(nodes_of(world, proposal), world)


def nodes_of(world: World, proposal: Proposal) -> tuple[str, ...]:
    """Nodes that the step is about: its own, the incident's, and all nodes of a job that it stops."""
    action, incident = proposal.action, world.book.incidents.get(proposal.incident_id)
    named = [action.target.node] if action.target.node else []
    named += [incident.node] if incident is not None and incident.node else []
    named += action.nodes if isinstance(action, HoldNodes) else ()
    return tuple(dict.fromkeys((*named, *_of_job(world, proposal))))


def _of_job(world: World, proposal: Proposal) -> tuple[str, ...]:
    """Nodes of the job that would be stopped; one that has ended is on none."""
    key = proposal.action.target.job
    job = world.view.jobs.get(key.job_id) if world.view is not None and key is not None else None
    if job is None or not proposal.stops_running_job:
        return ()
    return (*job.nodes, *(node for part in job.components for node in part.nodes))


def asked(world: World, policy: NodePolicy, proposal: Proposal) -> Ask | None:
    """What an operator has to accept before the step; None: nothing. A step of no open incident has an empty record for ever: it is never
    done while its kind is asked about."""
    if policy.mode is not Mode.PROPOSE:
        return None
    incident = world.book.incidents.get(proposal.incident_id)
    kind = kind_of(world.book, proposal.incident_id, proposal.action, stops=proposal.stops_running_job)
    if kind is None or kind not in policy.asks:
        return None
    if incident is None or not incident.open:
        return Ask(proposal, Question(kind, proposal.step.target), None)
    exact = question(kind, proposal.step, proposal.action, incident)
    if accepted(world.book, incident, proposal.step, exact, world.now):
        return None
    return Ask(proposal, exact, on_record(incident, exact))


def accepted(book: Book, incident: Incident, step: Step, exact: Question, now: datetime) -> bool:
    """Whether an operator's accept lets the step through now, or their order to replace that very machine."""
    return _ordered(incident, exact) or any(
        _lets_through(book, incident, step, exact, r, now) for r in incident.proposals
    )


def _ordered(incident: Incident, exact: Question) -> bool:
    """Whether an order stands for the accept: of the drain and the replacement of the machine that it names.

    What comes in its place was not seen when it was given, so that its return to service is asked about."""
    order = incident.ordered
    kinds = (StepKind.DRAIN, StepKind.REPLACE)
    return order is not None and exact.kind in kinds and exact.machine == order.instance_id


def _lets_through(
    book: Book, incident: Incident, step: Step, exact: Question, record: ProposalRecord, now: datetime
) -> bool:
    """Whether this accept lets the step through: for what was asked, in time, and not used up."""
    if record.status is not ProposalState.ACCEPTED or not record.question.covers(exact):
        return False
    at = record.answered_at
    if at is None or any(i.state is IntentState.DONE and i.planned_at >= at for i in book.planned(incident.id, step)):
        return False
    return now < record.until or _continues(book, incident, exact, record)


def _continues(book: Book, incident: Incident, exact: Question, record: ProposalRecord) -> bool:
    """Whether the step finishes what was begun under the accept: once another machine was launched, the exchange is completed."""
    if exact.kind is not StepKind.REPLACE or record.answered_at is None:
        return False
    return any(_began(i, record) for i in book.intents_of(incident.id))


def _began(intent: Intent, record: ProposalRecord) -> bool:
    launched = intent.kind in ("Launch", "Replace") and intent.state is IntentState.DONE
    return launched and record.answered_at is not None and intent.planned_at >= record.answered_at


_OPEN = (ProposalState.OPEN,)
_REFUSED = (ProposalState.DISMISSED, ProposalState.SNOOZED, ProposalState.EXPIRED)


def on_record(incident: Incident, exact: Question) -> ProposalRecord | None:
    """The newest proposal that stands for this step in this situation; None: it has to be asked."""
    for record in reversed(incident.proposals):
        if record.status in _OPEN and record.question == exact:
            return record
        same = record.question.resembles(exact) and not record.worse(incident.severity, dead=incident.dead)
        if record.status in _REFUSED and same:
            return record
        if record.status in (ProposalState.REOPENED, ProposalState.ACCEPTED) and record.question.resembles(exact):
            return None
    return None


def why_waits(ask: Ask, incident: Incident | None) -> str:
    """Reason why the step is not done now, for people."""
    kind, record = ask.question.kind, ask.record
    name = kind.value if kind is not None else "?"
    if incident is None or not incident.open:
        return f"mode propose: a step of kind {name!r} that belongs to no open incident cannot be proposed, and is not done"
    if record is None or record.status is ProposalState.OPEN:
        return f"mode propose: {name} waits for an operator's accept (holdfast proposals)"
    if record.status is ProposalState.SNOOZED:
        return f"mode propose: {name} was snoozed by {record.by} until {record.until:%Y-%m-%d %H:%M} UTC"
    if record.status is ProposalState.DISMISSED:
        return f"mode propose: {name} was dismissed by {record.by}{f': {record.why}' if record.why else ''}"
    return f"mode propose: no one answered the proposal to {record.what}; nothing is done (holdfast proposals)"


def subjects(world: World, proposals: Iterable[Proposal]) -> frozenset[tuple[str, Question]]:
    """Questions of all steps that are proposed this turn, by incident, whatever holds them back."""
    found = set()
    for proposal in proposals:
        incident = world.book.incidents.get(proposal.incident_id)
        kind = kind_of(world.book, proposal.incident_id, proposal.action, stops=proposal.stops_running_job)
        if incident is not None and kind is not None:
            found.add((incident.id, question(kind, proposal.step, proposal.action, incident)))
    return frozenset(found)


def job_of(ask: Ask) -> int | None:
    """Job that the step is about; None: it is about a node."""
    if ask.question.kind not in JOB_KINDS:
        return None
    key = ask.proposal.action.target.job
    number = (
        key.job_id if key is not None else ask.question.target.partition("r")[0]
    )  # rule prose: shown, never looked at
    return int(number) if str(number).isdecimal() else None
