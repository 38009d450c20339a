"""Repair of a node: the steps of its rung, hand-over, return to service. Pure.

Evidence first, then the rung of the ladder, validation, and the way back: adopted as a spare, undrained. A machine that was launched in
addition to the old one takes over in between: the old one is terminated, its name handed on. Each step waits until the one before is done;
a step that is done is never planned again."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.common import attempted_steps, node_agents, node_drains, node_incidents, slurm_view
from holdfast.decisions.common.may_stop_run import StopRefusal
from holdfast.decisions.common.part import Part
from holdfast.decisions.death import fencing, unfenced
from holdfast.decisions.machines import replacement
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.repair import not_shown, repair_progress, validation
from holdfast.decisions.repair.ladder import Rung, choose
from holdfast.decisions.repair.steps_done import done
from holdfast.decisions.repair.validation_parts import validate
from holdfast.decisions.spares.choose import returns_as_spare
from holdfast.model.actions import steps
from holdfast.model.actions.action import (
    Action,
    AdoptSpare,
    Assign,
    IntentState,
    Launch,
    Notify,
    Proposal,
    Reboot,
    Replace,
    ReportFault,
    SendOrder,
    StopStart,
    Terminate,
    Undrain,
    Verb,
)
from holdfast.model.actions.steps import Step
from holdfast.model.agents.report import AgentView
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.slurm.cluster import ClusterView


def repair(world: World) -> Part:
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    proposals: list[Proposal] = []
    for incident in world.book.open_incidents():
        if not node_incidents.acting(incident) or hands_off.holds(world, incident) is not None:
            continue
        shown = incident.node in view.nodes
        if not shown and not_shown.overdue(world, incident) and replacement.has_taken_over(world, incident):
            proposals += _tell_not_shown(world, incident)
        drained = shown and not node_drains.drain_missing(view, incident)
        if drained or incident.state is IncidentState.AWAITING_HUMAN or (shown and _proved(world, incident)):
            proposals += _repair(world, view, incident)
    return Part(tuple(proposals))


def _proved(world: World, incident: Incident) -> bool:
    """The machine that is to serve is validated, and the one before it ended: it needs no drain to be handed over."""
    return incident.validated_at is not None and replacement.has_taken_over(world, incident)


def _repair(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    match incident.state:
        case IncidentState.OPEN if incident.dead:
            return _unfenced(world, view, incident)
        case IncidentState.CONTAINED if node_drains.died_while_drained(world, view, incident) and view.jobs_on(
            incident.node
        ):
            return _unfenced(world, view, incident)
        case IncidentState.CONTAINED:
            return _first_step(world, view, incident)
        case IncidentState.REPAIRING:
            return _carry_on(world, view, incident)
        case IncidentState.VALIDATING:
            return validate(world, incident) or _return(world, view, incident)
        case IncidentState.AWAITING_HUMAN:
            return _tell(world, incident)
        case _:
            return []


def _step(
    world: World,
    incident: Incident,
    step: Step,
    action: Action,
    reason: str,
    *,
    first_s: float | None = None,
    longest_s: float | None = None,
) -> list[Proposal]:
    if not world.may_try(incident.id, step, first_s=first_s, longest_s=longest_s):
        return []
    return [Proposal(incident.id, step, action, reason, order=60)]


def _unfenced(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    """Notify an operator of a dead node under a job that consents and whose old run could still write."""
    waits = [
        job.shown_id
        for job in view.jobs_on(incident.node)
        if fencing.keeps_waiting(world, view, incident, job) is StopRefusal.UNFENCED
    ]
    if not waits or not unfenced.asked(world, incident):
        return []
    return _step(world, incident, steps.notify_unfenced(), unfenced.page(world, view, incident, waits), "cannot fence")


def _first_step(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    """Collect evidence before the hardware is released."""
    choice = choose(world, view, incident)
    if choice.rung in (Rung.WAIT, Rung.VALIDATE, Rung.HUMAN) or incident.dead:
        return []
    agent = node_agents.agent_of(world, incident.node, incident.instance_id or None)
    if agent is None:
        return []
    args = {"max_s": world.policy.repair.evidence_s, "incident": incident.id}
    action = node_agents.order_to(agent, Verb.EVIDENCE, world.policy.repair.evidence_s, args)
    return _step(world, incident, steps.collect_evidence(incident.node), action, f"evidence first: {choice.reason}")


def evidence_settled(world: World, incident: Incident) -> bool:
    """Whether the bundle has arrived, has failed, or its time is over; also true if there is no agent to ask."""
    attempts = world.book.attempts(incident.id, steps.collect_evidence(incident.node))
    latest = attempted_steps.last(attempts)
    if latest is None:
        return incident.dead or node_agents.agent_of(world, incident.node, incident.instance_id or None) is None
    since = hands_off.since_window(world, incident, latest.planned_at) or latest.planned_at
    waited = world.book.paused is None and world.now - since > timedelta(seconds=world.policy.repair.evidence_s)
    return latest.settled or waited


def _carry_on(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    """The one step of the rung. What the provider lacks just now is asked for again, ever more slowly; an operator was notified after the
    first."""
    if node_agents.unheard_yet(world, incident.node, incident.serving_id or None):
        return []
    step, action = repair_progress.step(world, incident), _action(world, view, incident)
    if step is None or action is None or repair_progress.machine_up(world, incident) is not None:
        return []
    reason = f"{repair_progress.rung_of(incident).value} of {incident.node}, attempt {incident.repair_attempt + 1}"
    policy = world.policy.repair
    longest_s = (
        policy.backoff_max_s if isinstance(action, Launch) else None
    )  # only a launch waits for capacity, for hours maybe
    proposals = _step(world, incident, step, action, reason, first_s=policy.backoff_s, longest_s=longest_s)
    failed = attempted_steps.last(world.book.attempts(incident.id, step))
    if isinstance(action, Launch | Replace) and failed is not None and failed.state is IntentState.FAILED:
        body = f"Launching a machine for {incident.node} failed: {failed.outcome}. Holdfast keeps trying, at growing intervals."
        proposals += _step(
            world,
            incident,
            steps.notify_no_machine(),
            Notify(f"{incident.node}: no machine yet", body, NoticeLevel.NEEDS_SOMEBODY, Topic.NO_MACHINE),
            failed.outcome,
        )
    return proposals + _courtesy(world, incident)


def _action(
    world: World, view: ClusterView, incident: Incident
) -> Launch | Replace | Reboot | StopStart | SendOrder | None:
    """What the rung does; None: nothing but to wait."""
    node, machine = incident.node, incident.serving_id
    token = f"{incident.id}-{incident.repair_attempt}"
    agent = node_agents.agent_of(world, node, machine or None)
    record = world.book.nodes.get(node)
    boot = agent.boot_id if agent is not None else incident.boot_id
    gpus = record.gpu_uuids if record is not None else frozenset[str]()
    slurmd = _slurmd_start(view, incident)
    match repair_progress.rung_of(incident):
        case Rung.RESET_GPU:
            return _reset(world, incident, agent) if agent is not None else None
        case Rung.REBOOT:
            provider = world.book.provider
            via_slurm = provider is not None and provider.slurm_reboots and not incident.dead
            return Reboot(node, machine, boot, token, via_slurm, slurmd)
        case Rung.STOP_START:
            return StopStart(node, machine, boot, token, gpus, slurmd)
        case Rung.WATCH:
            return None
        case _ if repair_progress.in_place(world, incident):
            return Replace(node, machine, boot, token, gpus, slurmd)
        case _:
            return Launch(node, token, machine)


def _reset(world: World, incident: Incident, agent: AgentView) -> SendOrder:
    limit_s = world.policy.repair.reset_timeout_s
    mine = [f for f in world.book.findings.values() if f.incident_id == incident.id and f.gpu_uuid is not None]
    args = {
        "gpus": sorted({str(f.gpu_uuid) for f in mine}),
        "minors": sorted(incident.gpu_minors or ()),
        "max_s": limit_s,
    }
    return node_agents.order_to(agent, Verb.RESET_GPU, limit_s, args)


def _courtesy(world: World, incident: Incident) -> list[Proposal]:
    """Report a hardware fault to the provider once, when it is about to get the machine back."""
    faulty = incident.goes_at is None and not incident.only_ordered
    told = world.policy.repair.report_faults and world.can.report_fault and faulty
    if not told or repair_progress.rung_of(incident) not in (Rung.STOP_START, Rung.REPLACE) or not incident.instance_id:
        return []
    action = ReportFault(incident.node, incident.instance_id, incident.fault_at, incident.headline)
    return _step(world, incident, steps.report_fault(incident.instance_id), action, "the provider may look into it")


def _return(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    """Validated: the old machine goes, the new one takes the name, the node goes back into service."""
    if not validation.quiet_since_validation(world, incident):
        return []
    new = replacement.new_instance(world, incident)
    if new is not None:
        handed = _hand_over(world, view, incident, new)
        if handed is not None:
            return handed
        if not _slurmd_is_new(world, view, incident):
            return []
    elif not repair_progress.slurmd_is_new(world, incident):
        return []
    adopted = attempted_steps.done(world.book.attempts(incident.id, steps.adopt_spare(incident.node))) is not None
    if not adopted and returns_as_spare(world, view, incident):
        return _step(
            world,
            incident,
            steps.adopt_spare(incident.node),
            AdoptSpare(incident.node),
            "it returns as a spare",
        )
    mark = world.book.marks.get(incident.node)
    if mark is None:
        return []
    reason = f"{done(world, incident).text}: back into service"
    back = Undrain(incident.node, mark.reason, new or _exchanged(world, incident))
    return _step(world, incident, steps.undrain(incident.node), back, reason)


def _exchanged(world: World, incident: Incident) -> str:
    """The machine that serves the node now, where it was exchanged in its place; empty: it is the one of the fault."""
    record = world.book.nodes.get(incident.node)
    serves = incident.machine or (record.instance_id if record is not None else "")
    return serves if serves != incident.instance_id else ""


def _hand_over(world: World, view: ClusterView, incident: Incident, new: str) -> list[Proposal] | None:
    """Terminate the old machine, then give its name to the new one. None: both are done."""
    old = incident.instance_id
    if old and attempted_steps.done(world.book.attempts(incident.id, steps.terminate(old))) is None:
        reason = f"its replacement {new} is validated"
        terminate = Terminate(old, incident.node, slurmd_started_at=_slurmd_start(view, incident))
        return _step(world, incident, steps.terminate(old), terminate, reason)
    if attempted_steps.done(world.book.attempts(incident.id, steps.assign(new))) is None:
        return _step(
            world,
            incident,
            steps.assign(new),
            Assign(new, incident.node),
            f"{new} takes the name {incident.node}",
        )
    return None


def _slurmd_is_new(world: World, view: ClusterView, incident: Incident) -> bool:
    """Whether Slurm is in contact with a slurmd that is not the old machine's.

    A machine that its provider takes away (spot) may be gone before its end is ordered: the slurmd that was seen then is its successor's
    already. It is, if it started after the announced time, or still responds long after the end."""
    node = view.nodes[incident.node]
    if not node.responding or node.slurmd_start_time is None:
        return False
    terminated = attempted_steps.done(world.book.attempts(incident.id, steps.terminate(incident.instance_id)))
    if terminated is None or not isinstance(terminated.action, Terminate):
        return True
    if node.slurmd_start_time != terminated.action.slurmd_started_at:
        return True
    after_it_went = incident.goes_at is not None and node.slurmd_start_time >= incident.goes_at
    return after_it_went or world.now - terminated.planned_at > timedelta(seconds=repair_progress.STEADY_S)


def _slurmd_start(view: ClusterView, incident: Incident) -> datetime | None:
    """Part of the plan, so that a crash between the termination and its record cannot mistake the new slurmd for the old one."""
    return view.nodes[incident.node].slurmd_start_time


def _tell_not_shown(world: World, incident: Incident) -> list[Proposal]:
    node, machine = incident.node, replacement.new_instance(world, incident)
    subject = f"{node} is repaired, and Slurm has not shown it for an hour"
    body = (
        f"{incident.headline}\n{machine} was launched for {node} and validated, and the machine before it is ended. Put {node} back into "
        f"slurm.conf: it is drained, tested and returned. If it left for good, close the incident and end {machine} yourself."
    )
    return _step(
        world,
        incident,
        steps.notify_not_shown(),
        Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.NOT_IN_SLURM),
        subject,
    )


def _tell(world: World, incident: Incident) -> list[Proposal]:
    body = f"{incident.headline}\n{incident.note}"
    notify = Notify(
        f"{incident.node} needs an operator: {incident.note}", body, NoticeLevel.NEEDS_SOMEBODY, Topic.AWAITING_HUMAN
    )
    return _step(world, incident, steps.notify_awaiting_human(incident.repair_attempt), notify, incident.note)
