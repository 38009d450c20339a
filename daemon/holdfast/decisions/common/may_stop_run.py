"""Whether Holdfast may stop or requeue a job's run: the one rule, and the one place that builds the actions which do. Pure.

A topic collects the facts of its case and asks :func:`may_stop_run`. The answer is a :class:`MayStop`, without which none of the actions
below can be built, or a :class:`MayNotStop` with its kind. When to stop (after a save, within the restart budget) and what holds the step
back afterwards (brakes, pause, observe mode: ``decisions/brakes/guard.py``) is decided elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from holdfast.decisions.common import node_agents
from holdfast.decisions.common.consent import FAILED, NODE_LOST, Consent
from holdfast.decisions.common.node_drains import DrainedBy
from holdfast.model.actions.action import HoldJob, Requeue, SendOrder, SetDown, Verb
from holdfast.model.agents.report import AgentView
from holdfast.model.incidents.incident import Recovery
from holdfast.model.slurm.cluster import JobKey


class StopRefusal(Enum):
    """Reason why a run may not be stopped, or a job not requeued, now."""

    IN_HANDS = "in hands"
    """Its node is in an operator's hands: maintenance, reserved, resumed in doubt."""
    CANNOT = "cannot"
    """The job cannot be requeued, or not without harm."""
    NO_CONSENT = "no consent"
    """No one agreed that it is stopped before it fails."""
    NOT_AGAIN = "not again"
    """It has failed, and no one agreed that it starts again."""
    ONE_CAUSE = "one cause"
    """Its dead node is one of many that went silent together: the cause may be elsewhere."""
    OTHER_JOB = "other job"
    """The stop would hit another job as well, which may not be stopped."""
    UNFENCED = "unfenced"
    """Its old run on the dead node could still write."""
    TAKEN_OUT = "taken out"
    """Another user, or not Holdfast, took the node out of service."""
    DOWN = "down"
    """Its node is DOWN already, set by Holdfast."""
    SLURM_SETTLING = "slurm settling"
    """slurmctld has just started: what it set DOWN may return."""
    NO_JOB = "no job"
    """No job is on the node: a drain is enough."""
    NO_AGENT = "no agent"
    """No agent reports that could take the order."""
    ORDER_FIRST = "order first"
    """The order to the node's agent may still help, which stops no other job."""
    RECOVERING = "recovering"
    """A fault's recovery has a group of the elastic job in its hands."""
    CHANGED = "changed"
    """The elastic job's size changed a moment ago."""
    TIME_LEFT = "time left"
    """The group was asked to leave and still has time for it."""
    TOO_FEW = "too few"
    """The elastic job would have no legal size."""
    ACKNOWLEDGED = "acknowledged"
    """An operator acknowledged the incident, and takes care of it."""


@dataclass(frozen=True, slots=True)
class MayStop:
    """The permission. Made by :func:`may_stop_run` alone."""

    because: Consent | None = None
    """Ground for people and for the record, where the run is a recovery's."""


@dataclass(frozen=True, slots=True)
class MayNotStop:
    kind: StopRefusal
    text: str = ""
    """The fact behind it, for people; empty: the kind says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOnDeadNode:
    """A run on a dead node, under which the node is to be set DOWN."""

    completing: bool
    """It is over, and Slurm waits for the node: nothing is left to consent to."""
    consents: bool
    never_ended_by_slurm: bool
    """``SlurmdTimeout`` is 0: without Holdfast Slurm would never end it."""
    unfenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNode:
    """The dead node of a run, whose DOWN is to stop it. Asked alone where the run's stop was allowed before."""

    run: RunOnDeadNode
    one_cause: str | None
    """Many nodes that went silent together, this one among them, for people."""
    other_job: str | None
    """Another job on the node that may not be stopped, and why, for people."""
    taken_out: str | None
    """Another user who took the node out of service before it was DOWN, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyRun:
    """A run with a fault on one of its nodes, one that hangs, or one that failed."""

    failed: bool
    """It is over: only the question is left whether the job starts again."""
    in_hands: bool
    cannot: str | None
    """Reason why the job cannot be requeued, or not without harm, for people."""
    consent: Consent | None
    lost: LostNode | None
    """Set if the fault is the death of its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadNode:
    """A dead node that is to be set DOWN, which ends all runs on it."""

    drained_by: DrainedBy | None
    down: bool
    slurm_settled: bool
    runs: tuple[RunOnDeadNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverTasks:
    """A requeued job's tasks that do not end, on a node whose agent is to end them."""

    agent: bool
    drained_by_us: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckNode:
    """A living node that holds a requeued job COMPLETING, and is to be set DOWN for it."""

    order_in_vain: bool
    """There is no agent that could end the tasks, or its order did not help."""
    alone: bool
    """No other node holds the job, and no other job of the node would be stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupToShrink:
    """A group that is to leave its elastic job, for the job's right size."""

    settled: bool
    recovering: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAsked:
    """A group that was asked to leave, and is to be requeued because it is still there."""

    not_reached: bool
    """No order could be delivered."""
    overdue: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowGroup:
    """A group that slows its elastic job down, and is to be asked to leave."""

    legal_without: bool
    acknowledged: bool


RunFacts = (
    FaultyRun | LostNode | RunOnDeadNode | DeadNode | LeftoverTasks | StuckNode | GroupToShrink | GroupAsked | SlowGroup
)


def may_stop_run(facts: RunFacts) -> MayStop | MayNotStop:
    """Whether the run, or all runs of the node, may be stopped now. Of several refusals the first counts."""
    match facts:
        case FaultyRun():
            return _faulty(facts)
        case LostNode():
            return _by_down(facts)
        case RunOnDeadNode():
            return _on_dead_node(facts)
        case DeadNode():
            return _dead_node(facts)
        case LeftoverTasks(agent=agent, drained_by_us=ours):
            return _first((StopRefusal.NO_AGENT, not agent), (StopRefusal.TAKEN_OUT, not ours))
        case StuckNode(order_in_vain=in_vain, alone=alone):
            return _first((StopRefusal.ORDER_FIRST, not in_vain), (StopRefusal.OTHER_JOB, not alone))
        case GroupToShrink(settled=settled, recovering=recovering):
            return _first((StopRefusal.CHANGED, not settled), (StopRefusal.RECOVERING, recovering))
        case GroupAsked(not_reached=not_reached, overdue=overdue):
            return _first((StopRefusal.TIME_LEFT, not (not_reached or overdue)))
        case SlowGroup(legal_without=legal, acknowledged=acknowledged):
            return _first((StopRefusal.TOO_FEW, not legal), (StopRefusal.ACKNOWLEDGED, acknowledged))


def allowed_before(_recovery: Recovery) -> MayStop:
    """Permission of a recovery that has it: what Slurm did not take is ordered again, and the rest of its job follows."""
    return MayStop()


def ground_of(run: FaultyRun) -> Consent | None:
    """Ground for stopping or recovering the run; None: there is none."""
    if run.failed:
        return FAILED if run.consent is not None else None
    if run.lost is None:
        return run.consent
    return NODE_LOST if _may_lose(run.lost.run) else None


def _faulty(run: FaultyRun) -> MayStop | MayNotStop:
    if run.in_hands and not run.failed:
        return MayNotStop(StopRefusal.IN_HANDS)
    if run.cannot is not None:
        return MayNotStop(StopRefusal.CANNOT, run.cannot)
    ground = ground_of(run)
    if ground is None:
        return MayNotStop(StopRefusal.NOT_AGAIN if run.failed else StopRefusal.NO_CONSENT)
    waits = None if run.failed or run.lost is None else _by_down(run.lost)
    return waits if isinstance(waits, MayNotStop) else MayStop(ground)


def _by_down(lost: LostNode) -> MayStop | MayNotStop:
    if lost.one_cause is not None:
        return MayNotStop(StopRefusal.ONE_CAUSE, lost.one_cause)
    if lost.run.unfenced:
        return MayNotStop(StopRefusal.UNFENCED)
    if lost.other_job is not None:
        return MayNotStop(StopRefusal.OTHER_JOB, lost.other_job)
    return MayStop() if lost.taken_out is None else MayNotStop(StopRefusal.TAKEN_OUT, lost.taken_out)


def _may_lose(run: RunOnDeadNode) -> bool:
    return run.completing or run.consents or run.never_ended_by_slurm


def _on_dead_node(run: RunOnDeadNode) -> MayStop | MayNotStop:
    return _first((StopRefusal.NO_CONSENT, not _may_lose(run)), (StopRefusal.UNFENCED, run.unfenced))


def _dead_node(node: DeadNode) -> MayStop | MayNotStop:
    by = node.drained_by
    own = _first(
        (StopRefusal.TAKEN_OUT, by is DrainedBy.FOREIGN), (StopRefusal.DOWN, by is DrainedBy.OURS and node.down)
    )
    if isinstance(own, MayNotStop):
        return own
    if by is DrainedBy.SLURM and node.down:  # Slurm has ended them: the DOWN only becomes Holdfast's, to be taken back
        return _first((StopRefusal.SLURM_SETTLING, not node.slurm_settled))
    if not node.runs:
        return MayNotStop(StopRefusal.NO_JOB)
    refused = (answer for answer in map(_on_dead_node, node.runs) if isinstance(answer, MayNotStop))
    return next(refused, MayStop())


def _first(*refusals: tuple[StopRefusal, bool]) -> MayStop | MayNotStop:
    return next((MayNotStop(why) for why, holds in refusals if holds), MayStop())


# The actions


def requeue(_may: MayStop, job: JobKey, restarts: int) -> Requeue:
    """Stop this run and queue the job again."""
    return Requeue(job, restarts)


def hold_job(_may: MayStop, job: JobKey, reason: str) -> HoldJob:
    """Stop the job's run and keep it from starting again: its restart budget is used up."""
    return HoldJob(job, reason)


def set_down(_may: MayStop, node: str, reason: str, jobs: tuple[int, ...], *, node_dead: bool) -> SetDown:
    """End these jobs' runs on the node by setting it DOWN."""
    return SetDown(node, reason, jobs, node_dead=node_dead)


def end_leftovers(_may: MayStop, agent: AgentView, expires_s: float, args: Mapping[str, Any]) -> SendOrder:
    """Order to end what a requeued job still has on the agent's node."""
    return node_agents.order_to(agent, Verb.END_JOB, expires_s, args)


def ask_to_leave(_may: MayStop, agent: AgentView, expires_s: float, args: Mapping[str, Any]) -> SendOrder:
    """Order to a group's launcher to leave its elastic job."""
    return node_agents.order_to(agent, Verb.LEAVE, expires_s, args)
