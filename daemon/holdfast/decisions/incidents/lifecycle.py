"""Lifecycle of open incidents: each is moved to the state that the world shows. Pure; each step goes through
:mod:`holdfast.model.incidents.transitions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from holdfast.decisions.common import attempted_steps, node_agents, node_drains, node_incidents, slurm_view
from holdfast.decisions.common.may_stop_run import StopRefusal
from holdfast.decisions.common.node_drains import DrainedBy
from holdfast.decisions.death import fencing
from holdfast.decisions.incidents import correlate
from holdfast.decisions.incidents.in_service import in_service
from holdfast.decisions.machines import replacement, serving_now
from holdfast.decisions.machines.machine_proof import refused_unproven
from holdfast.decisions.nodes import hands_off, returns, slurm_drains, stays_down
from holdfast.decisions.repair import (
    dropped_orders,
    failed_launches,
    machine_gone,
    not_shown,
    repair_progress,
    validation,
)
from holdfast.decisions.repair.ladder import Rung, choose, next_allowed, next_rung
from holdfast.decisions.repair.repair import evidence_settled
from holdfast.decisions.repair.steps_done import done
from holdfast.decisions.repair.validation import ValidationFailure
from holdfast.model.actions import steps
from holdfast.model.actions.action import LIVES, Intent, IntentState, Reboot, Replace, StopStart, TellOwner, Terminate
from holdfast.model.book import Change, NodeRecord, World
from holdfast.model.event import ATTEMPT_FAILED, FAILURE, Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import Moved, close, move, remark
from holdfast.model.slurm.cluster import ClusterView, Node

_S = IncidentState


def follow_incidents(world: World) -> Change:
    """Move every open incident as far as the world allows."""
    view = slurm_view.fresh_view(world)
    incidents: list[Incident] = []
    nodes: list[NodeRecord] = []
    events: list[Event] = []
    for incident in world.book.open_incidents():
        after, seen = _follow(world, view, incident)
        after = dropped_orders.ended(world, incident, after)
        if after == incident:
            continue
        incidents.append(after)
        if not after.open and incident.took_node_out:
            back = returns.at_the_end(world, view, incident)
            nodes += [back] if isinstance(back, NodeRecord) else []
            events += [back] if isinstance(back, Event) else []
        events += seen
    return Change(incidents=tuple(incidents), nodes=tuple(nodes), events=tuple(events))


def _follow(world: World, view: ClusterView | None, incident: Incident) -> Moved:
    if incident.kind in (IncidentKind.UNREADABLE, IncidentKind.DISPUTED):
        return incident, []
    if incident.state is _S.WATCHING:
        return _watching(world, incident)
    if view is None or incident.state is _S.SUSPECTED:
        return incident, []
    if incident.acknowledged:
        if incident.state is not _S.OPEN:
            return incident, []
        return move(incident, _S.WATCHING, world.now, "acknowledged: an operator took it over")
    if incident.node not in view.nodes:
        return not_shown.follow(world, incident)
    if incident.state in (_S.REPAIRING, _S.VALIDATING) and repair_progress.of_another_release(incident):
        note = f"on the rung {incident.rung!r}, which this release does not know: the progress of the repair is unknown"
        return move(repair_progress.attempt_over(incident), _S.AWAITING_HUMAN, world.now, note)
    return _follow_node(world, view, incident)


def _follow_node(world: World, view: ClusterView, incident: Incident) -> Moved:
    """An incident whose node Slurm shows."""
    if (back := in_service(world, view, incident)) is not None:
        return back
    if node_drains.drained_by(world, view.nodes[incident.node]) in (DrainedBy.OURS, DrainedBy.FOREIGN):
        if incident.drain_lost_at is not None and incident.state is not _S.AWAITING_HUMAN:
            incident = replace(incident, note="")  # it said that the node is not shown
        incident = replace(incident, drain_lost_at=None)
    if (held := _held(world, view, incident)) is not None:
        return held
    if (void := dropped_orders.follow(world, view, incident)) is not None:
        return void
    if (other := machine_gone.exchanged(world, view, incident)) is not None:
        return other
    follow = _FOLLOW.get(incident.state)
    return follow(world, view, incident) if follow is not None else (incident, [])


def _held(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    """An incident whose node is in other hands stays where it is, unless it cleared or an operator resumed the node. None: not held."""
    hands = hands_off.holds(world, incident)
    if hands is None:
        if incident.state is not _S.OPEN or machine_gone.begun(world, incident):
            return None
        if incident.ordered is not None:
            return None
        if hands_off.nothing_left(world, incident):
            return close(incident, world.now, "seen while the node was in maintenance: nothing of it is still so")
        return machine_gone.no_longer_serves(world, incident)
    if incident.state is _S.OPEN:
        mine = node_incidents.findings_of(world, incident)
        if mine and not incident.dead and incident.ordered is None and all(f.cleared_at is not None for f in mine):
            return close(incident, world.now, "it cleared before anything was done")
    elif incident.state is _S.VALIDATING and not view.nodes[incident.node].out_of_service:
        return None
    return replace(incident, note=hands.text), []


def _watching(world: World, incident: Incident) -> Moved:
    if incident.follows_run or (incident.pair_probed and world.policy.suspects.probe):
        return incident, []  # about a job: hangs, stragglers and suspects see it through
    if incident.kind in (IncidentKind.HELD_JOB, IncidentKind.STALL):
        return incident, []  # held_jobs and stalls see them through
    if stays_down.is_about(incident):
        return incident, []
    mine = [f for f in world.book.findings.values() if f.incident_id == incident.id]
    if mine and not incident.notice and all(f.cleared_at is not None for f in mine):
        return close(incident, world.now, "every finding has cleared")
    if machine_gone.of_another_machine(world, incident):
        return close(incident, world.now, "its machine no longer serves the node")
    sticky = incident.notice != "" or any(
        f.sticky and f.cleared_at is None and not serving_now.over(world, incident, f) for f in mine
    )
    newest = max((f.received_at for f in mine), default=incident.opened_at)
    if not sticky and world.frozen is None and world.now - newest > timedelta(seconds=world.policy.watch_s):
        return close(incident, world.now, "nothing more was seen")
    return incident, []


def _open(world: World, view: ClusterView, incident: Incident) -> Moved:
    node = view.nodes[incident.node]
    by = node_drains.drained_by(world, node)  # a DOWN of Slurm's own is made ours first, so that we may take it back
    foreign = by is DrainedBy.FOREIGN and slurm_drains.recognised(world, node) is None
    contained = foreign or by is DrainedBy.OURS
    if contained:
        detail = {"by": by, "state": node.base_state, "reason": node.reason}
        event = Event(
            world.now,
            EventKind.NODE_OUT,
            incident.id,
            incident.node,
            text=f"out of service: {node.reason}",
            detail=detail,
        )
        return _after([event], move(incident, _S.CONTAINED, world.now, note=""))
    mine = node_incidents.findings_of(world, incident)
    done_to_it = (i for i in world.book.intents_of(incident.id) if not isinstance(i.action, TellOwner))
    untouched = incident.ordered is None and not any(i.is_attempt for i in done_to_it)
    if mine and untouched and all(f.cleared_at is not None for f in mine):
        return close(incident, world.now, "it cleared before anything was done")
    if (
        _silent(incident)
        and not machine_gone.begun(world, incident)
        and node_agents.agent_of(world, incident.node) is not None
    ):
        return _heard_again(world, incident)
    return incident, []


def _silent(incident: Incident) -> bool:
    """It is about a node that does not report: dead, or witnessed and not dead."""
    return incident.dead or incident.kind is IncidentKind.SILENCE


def _heard_again(world: World, incident: Incident) -> Moved:
    """The incident of a node that was thought dead without consequences: the fault that it had before remains, if any. A warning in the
    agent's first report takes no node out of service: it is watched like any other."""
    note = "the agent reported again before anything was done"
    found = correlate.as_found(world, incident)
    if found is None:
        return close(incident, world.now, note)
    if not _acts(incident, found):
        return move(found, _S.WATCHING, world.now, f"not dead: {note}")
    return replace(found, note=note), [remark(incident, world.now, f"not dead: {note}")]


def _acts(incident: Incident, found: Incident) -> bool:
    """Whether what is left of a node's death is a fault that takes the node out of service."""
    return incident.kind is not IncidentKind.SILENCE or correlate.acts(found.severity, found.remedy)


def _contained(world: World, view: ClusterView, incident: Incident) -> Moved:
    if (back := _reports_again(world, view, incident)) is not None:
        return back
    if (
        incident.dead
        and view.jobs_on(incident.node)
        and not node_drains.drained_by_others(world, view.nodes[incident.node])
    ):
        return replace(incident, note=_why_not_down(world, view, incident)), []
    choice = choose(world, view, incident)
    match choice.rung:
        case Rung.WAIT:
            return replace(incident, note=choice.reason), []
        case Rung.VALIDATE:
            return move(incident, _S.VALIDATING, world.now, choice.reason)
        case Rung.HUMAN:
            return move(incident, _S.AWAITING_HUMAN, world.now, choice.reason)
        case rung:
            if evidence_settled(world, incident):
                return move(replace(incident, rung=rung.value), _S.REPAIRING, world.now, choice.reason)
            return replace(incident, note="collecting evidence"), []


def _why_not_down(world: World, view: ClusterView, incident: Incident) -> str:
    for job in view.jobs_on(incident.node):
        waits = fencing.keeps_waiting(world, view, incident, job)
        if waits is StopRefusal.NO_CONSENT:
            return f"dead; job {job.shown_id} did not opt in: waits until Slurm sets the node DOWN, at SlurmdTimeout"
        if waits is StopRefusal.UNFENCED:
            return (
                f"dead; the old run of job {job.shown_id} could still write: make sure that the machine is off, then scontrol update "
                f"nodename={incident.node} state=down (holdfast runbook cannot-fence); otherwise Slurm sets it DOWN at SlurmdTimeout"
            )
    return "dead; waits until it is set DOWN"


def _reports_again(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    """A node thought dead reports, and its machine was not touched: it is validated and returned, or is left with the fault that it had.
    None: it does not report, or its machine is being ended already."""
    if not _silent(incident) or incident.resumed_in_doubt or machine_touched(world, incident):
        return None
    if node_drains.drained_by_others(world, view.nodes[incident.node]):
        return None
    agent = node_agents.agent_of(world, incident.node, incident.serving_id or None)
    if agent is None:
        return None
    found = correlate.as_found(world, incident)
    if found is not None and _acts(incident, found):
        note = "the agent reported again: the node is not dead"
        again = replace(found, note=note), [remark(incident, world.now, note)]
        return again if incident.state is _S.CONTAINED else None  # it has another fault: its repair continues
    if not incident.dead and incident.repair_attempt:
        return None  # it has reported before: it is on the ladder for what its validation found
    held = bool(view.jobs_on(incident.node))
    if held and agent.boot_id != incident.boot_id:
        return None  # it was rebooted: proved once Slurm has released its jobs
    back = repair_progress.attempt_over(incident) if incident.rung else incident
    back = replace(back, dead=False, rung="", validated_at=world.now if held else None)
    how = "its job runs on, it is returned without a test" if held else "it is tested, then returned"
    return move(back, _S.VALIDATING, world.now, f"it reports again, and its machine was not touched: {how}")


def _old_machine_back(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    """The machine of a node thought dead reports while another one was launched for it: it keeps the node, and what was launched is given
    back (the attempt is over). Where it answers and does not report, an operator decides. None: neither."""
    new = replacement.new_instance(world, incident)
    if not incident.dead or new is None or machine_touched(world, incident):
        return None
    if (back := _reports_again(world, view, incident)) is not None:
        return back
    ended = attempted_steps.last(world.book.attempts(incident.id, steps.terminate(incident.serving_id)))
    if ended is None or ended.result.get(LIVES) is not True or ended.attempt < world.policy.action_attempts:
        return None
    why = f"{incident.serving_id} lives and its agent does not report, so that {new}, launched in its place, is not used and ended"
    return move(repair_progress.attempt_over(incident), _S.AWAITING_HUMAN, world.now, why)


def machine_touched(world: World, incident: Incident) -> bool:
    """Whether a step has started that ends, stops or restarts the machine that serves the node."""
    return any(
        isinstance(i.action, Terminate | Replace | StopStart | Reboot)
        and i.action.instance_id == incident.serving_id
        and i.state in (IntentState.STARTED, IntentState.DONE)
        for i in world.book.intents_of(incident.id)
    )


def _taken_over(world: World, incident: Incident, node: Node) -> Moved:
    """Another user took the node over while it was being repaired: what was launched for it is given back (the attempt is over)."""
    note = (
        f"{node_drains.who_drained(world, node)} took the node over ({node.reason!r}): theirs to repair and to resume"
    )
    return move(repair_progress.attempt_over(incident), _S.AWAITING_HUMAN, world.now, note)


def _repairing(world: World, view: ClusterView, incident: Incident) -> Moved:
    if node_drains.drained_by_others(world, view.nodes[incident.node]):
        return _taken_over(world, incident, view.nodes[incident.node])
    if (back := _reports_again(world, view, incident)) is not None:
        return back
    failed = validation.failure(world, incident)
    if failed is not None:
        return _next_attempt(world, incident, failed)
    unproven = _unproven(world, incident, repair_progress.attempts(world, incident))
    if unproven is not None:
        return move(repair_progress.attempt_over(incident), _S.AWAITING_HUMAN, world.now, unproven.outcome)
    up = repair_progress.machine_up(world, incident)
    if up is None:
        return incident, []
    beside = replacement.new_instance(world, incident) is not None
    other = up.instance_id != incident.serving_id
    text = f"agent of the {'new machine' if other else 'machine'} {up.instance_id} reports"
    detail = {"instance_id": up.instance_id, "boot_id": up.boot_id, "rung": repair_progress.rung_of(incident).value}
    event = Event(world.now, EventKind.INSTANCE_UP, incident.id, incident.node, text=text, detail=detail)
    machine = up.instance_id if other and not beside else incident.machine
    return _after([event], move(replace(incident, machine=machine), _S.VALIDATING, world.now, note=""))


def _unproven(world: World, incident: Incident, tries: tuple[Intent, ...]) -> Intent | None:
    """The last attempt, if it was refused because its machine was not proved to be the node's, or has failed for that longer than a launch
    may take."""
    latest = attempted_steps.last(tries)
    if latest is None or not refused_unproven(latest.result):
        return None
    since = hands_off.since_window(world, incident, tries[0].planned_at) or world.now
    waited = world.now - since > timedelta(seconds=world.policy.repair.launch_timeout_s)
    return latest if latest.state is IntentState.REFUSED or (latest.state is IntentState.FAILED and waited) else None


def _validating(world: World, view: ClusterView, incident: Incident) -> Moved:
    undrain = attempted_steps.last(world.book.attempts(incident.id, steps.undrain(incident.node)))
    if undrain is not None and undrain.state is IntentState.REFUSED:
        return close(incident, world.now, f"left to the operator: {undrain.outcome}")
    if undrain is not None and undrain.settled and not view.nodes[incident.node].out_of_service:
        by = "" if undrain.state is IntentState.DONE else ", put there by others or by a step whose answer was lost"
        return close(incident, world.now, f"{done(world, incident).text}; back in service{by}")
    if node_drains.drained_by_others(world, view.nodes[incident.node]):
        return _taken_over(world, incident, view.nodes[incident.node])
    if undrain is None and (back := _old_machine_back(world, view, incident)) is not None:
        return back
    ended = attempted_steps.last(world.book.attempts(incident.id, steps.terminate(incident.instance_id)))
    if ended is not None and ended.state is IntentState.REFUSED:
        return move(repair_progress.attempt_over(incident), _S.AWAITING_HUMAN, world.now, ended.outcome)
    named = replacement.new_instance(world, incident)
    unnamed = (
        _unproven(world, incident, world.book.attempts(incident.id, steps.assign(named))) if named is not None else None
    )
    if unnamed is not None:
        return move(repair_progress.attempt_over(incident), _S.AWAITING_HUMAN, world.now, unnamed.outcome)
    failed = validation.failure(world, incident)
    if failed is not None and undrain is None:
        return _next_attempt(world, incident, failed)
    if undrain is None and (why := validation.undecided(world, incident)) is not None:
        return move(repair_progress.attempt_over(incident), _S.AWAITING_HUMAN, world.now, why)
    checked, proved = validation.validation(world, incident), validation.proved_at(world, incident)
    if checked is not None and proved is not None and incident.validated_at is None and undrain is None:
        event = Event(proved, EventKind.NODE_VALIDATED, incident.id, incident.node, text=checked.outcome)
        note = f"{done(world, incident).text}; it is returned after the quiet time and the hand-over"
        return replace(incident, validated_at=proved, note=note), [event]
    return incident, []


def _next_attempt(world: World, incident: Incident, failure: ValidationFailure) -> Moved:
    """Climb the ladder: another rung, another machine, or an operator."""
    why = failure.text
    machine = failed_launches.successor(world, incident) or incident.machine
    failed = replace(incident, note=why, validated_at=None, machine=machine)
    if machine_gone.brought_by_others(world, incident):
        text = f"{incident.serving_id}, which another hand put in the place of {incident.instance_id}: {why}"
        return move(repair_progress.attempt_over(failed), _S.AWAITING_HUMAN, world.now, text)
    choice = next_rung(world, failed) if world.view is None else next_allowed(world, world.view, failed)
    if choice.rung is Rung.WAIT:
        return replace(incident, note=choice.reason), []
    human = choice.rung is Rung.HUMAN
    failed = repair_progress.attempt_over(failed)
    text = f"attempt {failed.repair_attempt} failed: {why}; {choice.reason if human else f'next: {choice.rung.value}'}"
    detail = {ATTEMPT_FAILED: failed.repair_attempt, FAILURE: failure.what.value}
    if human:
        note = why if choice.repeats_note else choice.reason
        return _after([remark(failed, world.now, text, detail)], move(failed, _S.AWAITING_HUMAN, world.now, note))
    failed = replace(failed, rung=choice.rung.value)
    if incident.state is _S.REPAIRING:
        return move(failed, _S.REPAIRING, world.now, why, text=text, detail=detail)
    return _after([remark(failed, world.now, text, detail)], move(failed, _S.REPAIRING, world.now, why))


def _after(events: list[Event], step: Moved) -> Moved:
    """The step, with what was seen before it."""
    return step[0], [*events, *step[1]]


def _awaiting_human(world: World, view: ClusterView, incident: Incident) -> Moved:
    return _reports_again(world, view, incident) or (incident, [])


_FOLLOW: dict[IncidentState, Callable[[World, ClusterView, Incident], Moved]] = {
    _S.OPEN: _open,
    _S.CONTAINED: _contained,
    _S.REPAIRING: _repairing,
    _S.VALIDATING: _validating,
    _S.AWAITING_HUMAN: _awaiting_human,
}
