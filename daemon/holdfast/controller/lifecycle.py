"""Incidents move on with what the world shows. Pure; the one door to an incident's state, checked against the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from holdfast.controller import correlate, facts, replacement, rungs, stillborn, validation
from holdfast.controller.decide.repair import evidence_settled, undrain_step
from holdfast.controller.ladder import Rung, choose, next_rung
from holdfast.model.action import IntentState, SetDown, Terminate
from holdfast.model.book import Change, World
from holdfast.model.cluster import ClusterView, Node
from holdfast.model.event import Event, EventKind
from holdfast.model.incident import Incident, IncidentState, legal

_S = IncidentState
Step = tuple[Incident, list[Event]]


def follow_incidents(world: World) -> Change:
    """Move every open incident as far as the world allows."""
    view = facts.fresh_view(world)
    incidents: list[Incident] = []
    events: list[Event] = []
    for incident in world.book.open_incidents():
        after, seen = _follow(world, view, incident)
        if after == incident:
            continue
        if after.state is not incident.state:
            after, moved = _move(world, incident, after)
            seen = [*seen, *moved]
        incidents.append(after)
        events += seen
    return Change(incidents=tuple(incidents), events=tuple(events))


def _move(world: World, before: Incident, after: Incident) -> Step:
    if not legal(before.state, after.state):
        raise AssertionError(f"incident {before.id}: {before.state} → {after.state} is not in the table")
    closed = after.state is _S.CLOSED
    after = replace(after, state_since=world.now, closed_at=world.now if closed else None)
    text = f"{before.state.value} → {after.state.value}" + (f" ({after.note})" if after.note else "")
    detail = {"from": before.state.value, "to": after.state.value}
    kind = EventKind.INCIDENT_CLOSED if closed else EventKind.INCIDENT_STATE
    return after, [Event(world.now, kind, after.id, after.node, text=text, detail=detail)]


def _follow(world: World, view: ClusterView | None, incident: Incident) -> Step:
    if incident.state is _S.WATCHING:
        return _watching(world, incident)
    if view is None or incident.state is _S.SUSPECTED:
        return incident, []
    if incident.acknowledged:
        watched = replace(incident, state=_S.WATCHING, note="acknowledged: an operator took it over")
        return (watched if incident.state is _S.OPEN else incident), []
    if incident.node not in view.nodes:
        return replace(incident, note=f"Slurm knows no node {incident.node}: check the agent's node name"), []
    follow = _FOLLOW.get(incident.state)
    return follow(world, view, incident) if follow is not None else (incident, [])


def _of_another_machine(world: World, incident: Incident) -> bool:
    """The node has another machine by now, and the one that it was seen on is not heard (as one under test would be)."""
    record = world.book.nodes.get(incident.node)
    serves = record.instance_id if record is not None else ""
    other = bool(serves and incident.instance_id and serves != incident.instance_id)
    return other and facts.agent_of(world, incident.node, incident.instance_id) is None


def _watching(world: World, incident: Incident) -> Step:
    if incident.check in (facts.HUNG, facts.STRAGGLER) or (incident.suspects and world.policy.suspects.probe):
        return incident, []  # about a job: hangs, stragglers and suspects see it through
    mine = [f for f in world.book.findings.values() if f.incident_id == incident.id]
    if mine and not incident.notice and all(f.cleared_at is not None for f in mine):
        return replace(incident, state=_S.CLOSED, note="every finding has cleared"), []
    if _of_another_machine(world, incident):
        return replace(incident, state=_S.CLOSED, note="its machine no longer serves the node"), []
    sticky = incident.notice != "" or any(f.sticky and f.cleared_at is None for f in mine)
    newest = max((f.received_at for f in mine), default=incident.opened_at)
    if not sticky and world.now - newest > timedelta(seconds=world.policy.watch_s):
        return replace(incident, state=_S.CLOSED, note="nothing more was seen"), []
    return incident, []


def _open(world: World, view: ClusterView, incident: Incident) -> Step:
    node = view.nodes[incident.node]
    by = facts.drained_by(node)  # a DOWN of Slurm's own is made ours first, so that we may take it back
    contained = by == "foreign" or (by == "ours" and (node.down or not incident.dead))
    if contained:
        detail = {"by": facts.drained_by(node), "state": node.base_state, "reason": node.reason}
        event = Event(
            world.now,
            EventKind.NODE_OUT,
            incident.id,
            incident.node,
            text=f"out of service: {node.reason}",
            detail=detail,
        )
        return replace(incident, state=_S.CONTAINED, note=""), [event]
    mine = [f for f in world.book.findings.values() if f.incident_id == incident.id and not f.consequence]
    untouched = not any(i.state is not IntentState.WITHHELD for i in world.book.intents_of(incident.id))
    if mine and untouched and all(f.cleared_at is not None for f in mine):
        return replace(incident, state=_S.CLOSED, note="it cleared before anything was done"), []
    if incident.dead and not _begun(world, incident) and facts.agent_of(world, incident.node) is not None:
        return _heard_again(world, incident)
    return incident, []


def _heard_again(world: World, incident: Incident) -> Step:
    """It was thought dead, and nothing came of that: what is left of the incident is the fault that it had before, if any."""
    note = "the agent was heard again before anything was done"
    found = correlate.as_found(world, incident)
    if found is None:
        return replace(incident, state=_S.CLOSED, note=note), []
    event = Event(world.now, EventKind.INCIDENT_STATE, incident.id, incident.node, text=f"not dead: {note}")
    return replace(found, note=note), [event]


def _begun(world: World, incident: Incident) -> bool:
    """Whether the node, or its machine, may have been taken already."""
    return any(
        isinstance(i.action, SetDown | Terminate) and i.state in (IntentState.STARTED, IntentState.DONE)
        for i in world.book.intents_of(incident.id)
    )


def _contained(world: World, view: ClusterView, incident: Incident) -> Step:
    node = view.nodes[incident.node]
    if not node.out_of_service:
        return _put_back(incident)
    if facts.died_while_drained(view, incident):
        if not _begun(world, incident) and facts.agent_of(world, incident.node) is not None:
            return _heard_again(world, incident)
        return replace(incident, note="it died while it was drained: waits until it is set DOWN"), []
    choice = choose(world, view, incident)
    match choice.rung:
        case Rung.WAIT:
            return replace(incident, note=choice.reason), []
        case Rung.VALIDATE:
            return replace(incident, state=_S.VALIDATING, note=choice.reason), []
        case Rung.HUMAN:
            return replace(incident, state=_S.AWAITING_HUMAN, note=choice.reason), []
        case rung:
            if evidence_settled(world, incident):
                return replace(incident, state=_S.REPAIRING, rung=rung.value, note=choice.reason), []
            return replace(incident, note="collecting evidence"), []


def _put_back(incident: Incident) -> Step:
    """An operator trusts the node: the incident is over at once, so that nobody's job on it counts as hurt, and a new fault as a new
    one. What was launched for it is terminated all the same (:mod:`decide.tidy`)."""
    return replace(incident, state=_S.CLOSED, note="somebody put the node back into service: theirs now"), []


def _taken_over(incident: Incident, node: Node) -> Step:
    """Somebody took the node over while it was being repaired: what was launched for it is given back (the attempt is over)."""
    note = f"{node.reason_user or 'somebody'} took the node over ({node.reason!r}): theirs to repair and to resume"
    return replace(incident, state=_S.AWAITING_HUMAN, repair_attempt=incident.repair_attempt + 1, note=note), []


def _repairing(world: World, view: ClusterView, incident: Incident) -> Step:
    if not view.nodes[incident.node].out_of_service:
        return _put_back(incident)
    if facts.drained_by(view.nodes[incident.node]) == "foreign":
        return _taken_over(incident, view.nodes[incident.node])
    failed = validation.failure(world, incident)
    if failed is not None:
        return _next_attempt(world, incident, failed)
    up = rungs.machine_up(world, incident)
    if up is None:
        return incident, []
    beside = replacement.new_instance(world, incident) is not None
    other = up.instance_id != incident.serving_id
    text = f"agent of the {'new machine' if other else 'machine'} {up.instance_id} is heard"
    detail = {"instance_id": up.instance_id, "boot_id": up.boot_id, "rung": rungs.rung_of(incident).value}
    event = Event(world.now, EventKind.INSTANCE_UP, incident.id, incident.node, text=text, detail=detail)
    machine = up.instance_id if other and not beside else incident.machine
    return replace(incident, state=_S.VALIDATING, machine=machine, note=""), [event]


def _validating(world: World, view: ClusterView, incident: Incident) -> Step:
    undrain = facts.last(world.book.attempts(incident.id, undrain_step(incident)))
    if undrain is not None and undrain.state is IntentState.REFUSED:
        return replace(incident, state=_S.CLOSED, note=f"left to the operator: {undrain.outcome}"), []
    if undrain is not None and undrain.state is IntentState.DONE and not view.nodes[incident.node].out_of_service:
        at = undrain.finished_at or world.now  # Slurm had answered by then; the view is read a little later
        event = Event(at, EventKind.NODE_RETURNED, incident.id, incident.node, text="back in service")
        return replace(incident, state=_S.CLOSED, note="repaired, validated, back in service"), [event]
    if undrain is None and not view.nodes[incident.node].out_of_service:
        return _put_back(incident)
    if facts.drained_by(view.nodes[incident.node]) == "foreign":
        return _taken_over(incident, view.nodes[incident.node])
    ended = facts.last(world.book.attempts(incident.id, f"Terminate/{incident.instance_id}"))
    if ended is not None and ended.state is IntentState.REFUSED:
        attempt = incident.repair_attempt + 1
        return replace(incident, state=_S.AWAITING_HUMAN, repair_attempt=attempt, note=ended.outcome), []
    failed = validation.failure(world, incident)
    if failed is not None and undrain is None:
        return _next_attempt(world, incident, failed)
    checked, proved = validation.validation(world, incident), validation.proved_at(world, incident)
    if checked is not None and proved is not None and incident.validated_at is None and undrain is None:
        event = Event(proved, EventKind.NODE_VALIDATED, incident.id, incident.node, text=checked.outcome)
        return replace(incident, validated_at=proved, note=_VALIDATED), [event]
    return incident, []


_VALIDATED = "validated; waits out the quiet time and the hand-over"


def _next_attempt(world: World, incident: Incident, why: str) -> Step:
    """Climb the ladder: another rung, another machine, or a human."""
    attempt = incident.repair_attempt + 1
    machine = stillborn.successor(world, incident) or incident.machine
    failed = replace(incident, note=why, validated_at=None, machine=machine)
    choice = next_rung(world, failed)
    if choice.rung is Rung.WAIT:
        return replace(incident, note=choice.reason), []
    human = choice.rung is Rung.HUMAN
    text = f"attempt {attempt} failed: {why}; {choice.reason if human else f'next: {choice.rung.value}'}"
    event = Event(world.now, EventKind.INCIDENT_STATE, incident.id, incident.node, text=text)
    after = replace(
        failed,
        state=_S.AWAITING_HUMAN if human else _S.REPAIRING,
        rung=incident.rung if human else choice.rung.value,
        repair_attempt=attempt,
        note=choice.reason if human and why not in choice.reason else why,
        state_since=world.now,
    )
    return after, [event]


def _awaiting_human(world: World, view: ClusterView, incident: Incident) -> Step:
    if not view.nodes[incident.node].out_of_service:
        return replace(incident, state=_S.CLOSED, note="an operator put the node back into service"), []
    return incident, []


_FOLLOW: dict[IncidentState, Callable[[World, ClusterView, Incident], Step]] = {
    _S.OPEN: _open,
    _S.CONTAINED: _contained,
    _S.REPAIRING: _repairing,
    _S.VALIDATING: _validating,
    _S.AWAITING_HUMAN: _awaiting_human,
}
