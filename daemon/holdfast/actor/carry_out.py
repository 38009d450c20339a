"""Carry out one intent: check the facts again, do it, report the outcome. The only module that changes external systems.

Every step may be repeated after a crash: it finds out from the external system what was already done, and does not do it again."""

from __future__ import annotations

import logging
import re
from datetime import timedelta

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from holdfast import unexpected
from holdfast.actor import machine_steps
from holdfast.actor.adapters import (
    NotProven,
    NotYetProven,
    Outside,
    StepRefused,
    done,
    foreign,
    jobs_on,
    prove_hands_on,
)
from holdfast.decisions.common import node_drains, slurm_view
from holdfast.decisions.common.het_jobs import stragglers, whole
from holdfast.decisions.nodes import slurm_drains
from holdfast.model.actions.action import (
    Action,
    AdoptSpare,
    AllowNodes,
    Assign,
    CheckInstance,
    Drain,
    DropHold,
    HoldJob,
    HoldNodes,
    Intent,
    IntentState,
    Launch,
    Notify,
    PromoteSpare,
    Reboot,
    Release,
    Replace,
    ReportFault,
    Requeue,
    SendOrder,
    SetDown,
    StopStart,
    TakeOverDrain,
    TellOwner,
    Terminate,
    Undrain,
    UnknownAction,
)
from holdfast.model.book import NodeMark
from holdfast.model.errors import LeaderFencedOff, NotFound, NotPermitted, OutsideError, Rejected, Unavailable
from holdfast.model.ids import held_reason, hold_of_name, incident_of_job_hold, incident_of_reason, is_reason
from holdfast.model.operators.maintenance import LONGEST, RESERVATION, KeepWindow
from holdfast.model.operators.node_orders import DrainForOperator, ReleaseForOperator
from holdfast.model.policies.resizing import DelayStart, SetThrottle
from holdfast.model.slurm.cluster import HOLDING_STATES, Job, JobKey, Node
from holdfast.ports import IntentOutcome, Scheduler

log = logging.getLogger(__name__)

AT_NODES = (
    Drain,
    SetDown,
    Undrain,
    PromoteSpare,
    AdoptSpare,
    Launch,
    Terminate,
    Assign,
    Replace,
    Reboot,
    StopStart,
)
"""Steps at a node or its machine: none of them is done while an operator has taken the node over."""
STEP = "step"
"""Part of this process that carries out steps (:mod:`holdfast.unexpected`)."""
_CLOCKS_DIFFER_S = 3600.0
"""Tolerance for clock differences: a window may have been made by another head node."""
RELEASE_PATIENCE_S = 3.0
"""A release is refused while the job is COMPLETING (facts: 0.3 to 2 s): it is retried at once for this long."""


def carry_out(intent: Intent, outside: Outside) -> IntentOutcome:
    """Carry out the intent, or find that it is already done. Never raises for an answer of an external system."""
    try:
        if isinstance(intent.action, AT_NODES) and intent.state is not IntentState.STARTED:
            prove_hands_on(intent.action.node, outside)
        return _perform(intent.action, intent.incident_id, outside)
    except NotProven as unproven:
        return IntentOutcome(IntentState.REFUSED, str(unproven), result=unproven.result)
    except StepRefused as refusal:
        return IntentOutcome(IntentState.REFUSED, str(refusal))
    except NotYetProven as unproven:
        return IntentOutcome(IntentState.FAILED, str(unproven), retryable=True, result=unproven.result)
    except (Unavailable, NotPermitted) as error:
        return IntentOutcome(IntentState.FAILED, str(error), retryable=True)
    except OutsideError as error:
        return IntentOutcome(IntentState.FAILED, str(error), retryable=_may_pass(intent.action, outside))
    except LeaderFencedOff:
        raise
    except Exception as error:  # noqa: BLE001 - a step that is never settled would be begun again and again
        unexpected.failed(STEP, error, intent.key)
        return IntentOutcome(IntentState.FAILED, f"unexpected: {type(error).__name__}: {error}"[:300], retryable=True)


def _may_pass(action: Action, outside: Outside) -> bool:
    """Whether a rejected step may succeed later: its node is not in slurm.conf for now, or Slurm does not drain or resume it yet
    (INVALID_REG: less memory or fewer GPUs than slurm.conf says; a temporary state)."""
    if isinstance(action, Drain | Undrain):
        return True
    node = action.target.node
    if node is None:
        return False
    try:
        return not machine_steps.in_slurm(node, outside)
    except OutsideError:
        return False


def _perform(action: Action, incident: str, outside: Outside) -> IntentOutcome:  # noqa: C901 - one line a step
    match action:
        case Drain():
            return _drain(action, incident, outside)
        case SetDown():
            return _set_down(action, incident, outside)
        case Undrain():
            return _undrain(action, outside)
        case HoldNodes():
            return _hold_nodes(action, outside)
        case PromoteSpare():
            return _promote(action, outside)
        case Requeue():
            return _requeue(action, outside)
        case Release():
            return _release(action, outside)
        case DelayStart():
            return _delay_start(action, outside)
        case SetThrottle():
            return _set_throttle(action, outside)
        case AllowNodes():
            return _allow_nodes(action, outside)
        case DropHold():
            return _drop_hold(action, outside)
        case KeepWindow():
            return _keep_window(action, outside)
        case DrainForOperator():
            return _drain_for_operator(action, outside)
        case ReleaseForOperator():
            return _release_for_operator(action, outside)
        case HoldJob():
            return _hold_job(action, outside)
        case TellOwner():
            return _tell_owner(action, outside)
        case Launch():
            return machine_steps.launch(action, incident, outside)
        case Terminate():
            return machine_steps.terminate(action, incident, outside)
        case Assign():
            return machine_steps.assign(action, incident, outside)
        case Replace():
            return machine_steps.replace(action, incident, outside)
        case Reboot():
            return machine_steps.reboot(action, incident, outside)
        case StopStart():
            return machine_steps.stop_start(action, incident, outside)
        case ReportFault():
            return machine_steps.report_fault(action, outside)
        case CheckInstance():
            return machine_steps.check(action, outside)
        case AdoptSpare():
            return _adopt(action, outside)
        case Notify():
            outside.notifier.notify(action.subject, action.body)
            return done("sent")
        case UnknownAction():
            raise Rejected(f"this release does not know the action {action.kind}")
        case SendOrder():
            raise Rejected("orders are handed out by the API, not by the actor")


def _mark(node: Node, fallback: str = "") -> NodeMark:
    incident = incident_of_reason(node.reason) or fallback
    return NodeMark(node.name, incident, node.reason, node.reason_user, node.reason_time)


def _prove_ours(reason: str) -> None:
    """Raises StepRefused for words that are not ours: HyperPod obeys some (``Action:Replace``), and any others read like an operator's."""
    if incident_of_reason(reason) is None:
        raise StepRefused(f"{reason[:80]!r} is not a drain reason of Holdfast")


def _drain(action: Drain, incident: str, outside: Outside) -> IntentOutcome:
    _prove_ours(action.reason)
    node = outside.scheduler.node(action.node)
    takes_over = action.over is not None and node.given_reason == action.over and _may_take_over(action, outside)
    if foreign(node, outside, action.reason, held_reason(incident)) and not takes_over:
        raise _taken(node)
    if takes_over or not node.draining:
        outside.scheduler.drain(action.node, action.reason)
        node = outside.scheduler.node(action.node)
    if not node.draining:
        raise Unavailable(f"Slurm accepted the drain of {action.node} but does not show it")
    if foreign(node, outside, action.reason, held_reason(incident)):
        raise _taken(node)
    return IntentOutcome(IntentState.DONE, f"drained: {node.reason}", mark=_mark(node))


def _may_take_over(action: Drain, outside: Outside) -> bool:
    """Whether the drain that the step names is one to take over: Slurm's own, or an operator's by an order. Raises StepRefused."""
    if isinstance(action, TakeOverDrain):
        _prove_orders_taken(outside)
        return True
    return action.over is not None and slurm_drains.is_slurms(action.over.text)


def _taken(node: Node) -> StepRefused:
    return StepRefused(
        f"{node.reason_user or 'another user'} has taken the node out: {node.reason or 'no reason given'!r} stays"
    )


def _set_down(action: SetDown, incident: str, outside: Outside) -> IntentOutcome:
    _prove_ours(action.reason)
    node = outside.scheduler.node(action.node)
    if foreign(node, outside, action.reason, held_reason(incident)):
        raise _taken(node)
    if not (node.down and node.draining):
        _no_other_job(action, outside)
        outside.scheduler.set_down(action.node, action.reason)
        node = outside.scheduler.node(action.node)
    return IntentOutcome(IntentState.DONE, f"DOWN and DRAIN: {node.reason}", mark=_mark(node))


def _no_other_job(action: SetDown, outside: Outside) -> None:
    """Refuse where a job started on the node since the decision: it is unknown whether its old run can write. Raises Unavailable."""
    if action.jobs is None:
        return
    here = jobs_on(action.node, outside)
    new = [str(j.key) for j in here if j.key.job_id not in action.jobs and j.state != "COMPLETING"]
    if new:
        raise Unavailable(f"job {','.join(new)} started on {action.node} after the decision; will be re-evaluated")


def _undrain(action: Undrain, outside: Outside) -> IntentOutcome:
    node = outside.scheduler.node(action.node)
    mark = outside.marks().get(action.node)
    if not node.out_of_service:
        return IntentOutcome(IntentState.DONE, "in service already", drop_mark=action.node)
    if mark is None or not is_reason(mark.reason, action.mark):
        raise StepRefused("the store has no record of a drain by Holdfast on this node")
    if not node_drains.is_marked(mark, node) or (incident_of_reason(node.reason) is None and not node.down_by_slurm):
        raise StepRefused(f"the drain is no longer ours: {node.reason!r} by {node.reason_user} at {node.reason_time}")
    outside.scheduler.undrain(action.node)
    _record_machine(action, outside.scheduler)
    return IntentOutcome(IntentState.DONE, "back in service", drop_mark=action.node)


_INSTANCE = re.compile("i-[0-9a-f]{4,17}")
"""EC2's have 8 or 17 digits; other providers' machines have no instance id."""


def _record_machine(action: Undrain, scheduler: Scheduler) -> None:
    """Have Slurm show which instance of EC2 serves the node now. The node is in service, whether it does or not."""
    if not _INSTANCE.fullmatch(action.machine):
        return
    try:
        scheduler.set_instance_id(action.node, action.machine)
    except OutsideError as error:
        log.warning("event=instance_id_not_recorded node=%s instance=%s error=%s", action.node, action.machine, error)


def _drain_for_operator(action: DrainForOperator, outside: Outside) -> IntentOutcome:
    """No mark: the drain is the operator's, so Holdfast takes it back only by an operator's order."""
    _prove_orders_taken(outside)
    if not action.reason.startswith("operator ") or slurm_drains.is_slurms(action.reason):  # rule prose: our own form
        raise StepRefused(f"{action.reason[:80]!r} does not name the operator who ordered the drain")
    node = outside.scheduler.node(action.node)
    if node.draining and is_reason(node.reason, action.reason):
        return done("drained already")
    if foreign(node, outside):
        raise _taken(node)
    outside.scheduler.drain(action.node, action.reason)
    if not outside.scheduler.node(action.node).draining:
        raise Unavailable(f"Slurm accepted the drain of {action.node} but does not show it")
    return done(f"drained: {action.reason}")


def _prove_orders_taken(outside: Outside) -> None:
    """Raises StepRefused where the site takes no orders for nodes through Holdfast."""
    if not outside.node_orders:
        raise StepRefused("this site takes no such orders through Holdfast (actor.node_orders = false): use scontrol")


def _release_for_operator(action: ReleaseForOperator, outside: Outside) -> IntentOutcome:
    _prove_orders_taken(outside)
    node = outside.scheduler.node(action.node)
    if not node.out_of_service:
        return done("in service already")
    if node.given_reason != action.over:
        raise StepRefused(
            f"its drain is another one now: {node.reason!r} by {node.reason_user}; look, then order it again"
        )
    outside.scheduler.undrain(action.node)
    node = outside.scheduler.node(action.node)
    if (
        node.out_of_service and node.given_reason == action.over
    ):  # where nodes are held by reservations, others' drains stay
        text = f"Slurm still shows its drain: {node.reason!r} by {node.reason_user}"
        raise StepRefused(f"{text}; end it by: scontrol update NodeName={action.node} State=RESUME")
    return done("back in service")


def _hold_nodes(action: HoldNodes, outside: Outside) -> IntentOutcome:
    """The name is one of ours, it ends in time, and the job's owner alone gets the nodes. Raises StepRefused."""
    if incident_of_job_hold(action.reservation) is None:
        raise StepRefused(f"{action.reservation!r} is not a hold name of Holdfast")
    if not 0 < action.duration_s <= LONGEST.total_seconds():
        raise StepRefused(f"a hold of {action.duration_s} s is not allowed: {LONGEST.days} days at most")
    owner = _job(action.job, outside).user
    if owner != action.user and (owner.isdecimal() or action.user.isdecimal()):
        raise Unavailable(f"the name service cannot resolve {owner} and {action.user} now")
    if owner != action.user:
        raise StepRefused(f"job {action.job} is {owner}'s, not {action.user}'s")
    outside.scheduler.create_reservation(
        action.reservation,
        action.nodes,
        users=(action.user,),
        duration_s=action.duration_s,
        hold_for_job=True,
        over=outside.spare_reservation,
    )
    return done(f"{len(action.nodes)} nodes kept for job {action.job}")


def _drop_hold(action: DropHold, outside: Outside) -> IntentOutcome:
    """Raises StepRefused for every reservation but a hold of ours."""
    if incident_of_job_hold(action.reservation) is None and hold_of_name(action.reservation) is None:
        raise StepRefused(f"{action.reservation!r} is not a hold name of Holdfast")
    outside.scheduler.delete_reservation(action.reservation)
    return done(f"reservation {action.reservation} is gone")


def _promote(action: PromoteSpare, outside: Outside) -> IntentOutcome:
    """The hold already names the spare (reservations may overlap), so no other job can take it when it leaves the pool."""
    with outside.pool:
        try:
            pool = outside.scheduler.reservation(outside.spare_reservation).nodes
        except NotFound:  # the last one takes the reservation with it
            return done(f"{action.node} left the spare pool, no spare is left")
        left = tuple(n for n in pool if n != action.node)
        if left != pool:
            outside.scheduler.set_reservation_nodes(outside.spare_reservation, left)
    return done(f"{action.node} left the spare pool, {len(left)} spares left")


def _adopt(action: AdoptSpare, outside: Outside) -> IntentOutcome:
    name, scheduler = outside.spare_reservation, outside.scheduler
    scheduler.node(action.node)  # NotFound for ALL and for a list of nodes, which would be one to the actor's limits
    with outside.pool:
        try:
            pool = scheduler.reservation(name).nodes
        except NotFound:
            scheduler.create_reservation(name, (action.node,), users=("root",), duration_s=None)
            return done(f"{action.node} is the first of the spare pool")
        if action.node not in pool:
            scheduler.set_reservation_nodes(name, tuple(sorted({*pool, action.node})))
    return done(f"{action.node} is in the spare pool")


def _keep_window(action: KeepWindow, outside: Outside) -> IntentOutcome:
    name, scheduler, left = action.reservation, outside.scheduler, action.until - outside.clock.now()
    if (
        not name.startswith(RESERVATION) or left.total_seconds() > LONGEST.total_seconds() + _CLOCKS_DIFFER_S
    ):  # rule prose: the names of our own windows
        raise StepRefused(
            f"{name!r} until {action.until:%Y-%m-%d} is not a maintenance window of Holdfast: {RESERVATION}ID, {LONGEST.days} days at most"
        )
    if not action.nodes or left <= timedelta(0):
        scheduler.delete_reservation(name)
        return done(f"reservation {name} is gone")
    try:
        shown = scheduler.reservation(name)
    except NotFound:
        duration_s = int(left.total_seconds())
        scheduler.create_reservation(name, action.nodes, users=("root",), duration_s=duration_s, maint=True)
    else:
        if set(shown.nodes) != set(action.nodes):
            scheduler.set_reservation_nodes(name, action.nodes)
    return done(f"reservation {name} keeps {len(action.nodes)} nodes until {action.until:%Y-%m-%d %H:%M} UTC")


def _job(key: JobKey, outside: Outside) -> Job:
    """The job as Slurm shows it now; a heterogeneous job as one."""
    job = outside.scheduler.job(key.job_id)
    if job.het_leader == key.job_id:
        job = whole(outside.scheduler.components(key.job_id))
    if not job.continues(key):
        raise StepRefused(f"job id {key.job_id} belongs to another job now")
    return job


def _tell_owner(action: TellOwner, outside: Outside) -> IntentOutcome:
    job = _job(action.job, outside)
    ours = action.instead_of
    if ours is not None and job.admin_comment != ours:  # rule prose: whether it is ours, word for word
        return done("another user has changed the comment: it is kept")
    outside.scheduler.tell_owner(job.key.job_id, action.text)
    return done("owner notified")


def _requeue(action: Requeue, outside: Outside) -> IntentOutcome:
    job = _job(action.job, outside)
    if job.restarts > action.restarts:
        return _gather(action, job, outside)
    if job.state in slurm_view.ENDED:
        raise StepRefused(f"the job has already ended: {job.state}")
    if job.state == "COMPLETING":
        # Slurm would requeue it all the same, also one that its user has just cancelled.
        raise Unavailable("the job is ending; retried when Slurm shows how it ended")
    if job.state in ("PENDING", "REQUEUED"):
        return done(f"it is {job.state} already")
    if job.suspended:
        raise Unavailable("the job is suspended: not before it is resumed")
    try:
        outside.scheduler.requeue(action.job.job_id)
    except Rejected:
        if _job(action.job, outside).state in ("COMPLETING", "PENDING", "REQUEUED"):
            return done("it is being requeued already")
        raise
    return done("requeued")


def _gather(action: Requeue, job: Job, outside: Outside) -> IntentOutcome:
    """Requeue the remaining components of a heterogeneous job whose leader is in the queue again."""
    if not stragglers(job):
        return done("it was requeued already", restarts=job.restarts)
    try:
        outside.scheduler.requeue(action.job.job_id)
    except Rejected as refusal:  # Slurm refuses it for the leader, which is pending, and requeues the others
        log.debug("event=leader_not_requeued job=%s refusal=%r", action.job, str(refusal))
    left = stragglers(_job(action.job, outside))
    if left:
        raise Unavailable(f"component {left[0].key} is still {left[0].state}")
    return done("its other components are requeued, too")


def _release(action: Release, outside: Outside) -> IntentOutcome:
    job = _job(action.job, outside)
    if _started(action, job):
        return done(f"it is {job.state} already")
    if job.restarts < action.restarts:
        raise Unavailable("the run that was stopped is not over yet")
    _known(job)
    for part in job.components:
        _exclude(part, _exclusions(action, job, part), outside)
    if action.nodes is not None and job.state == "PENDING":
        outside.scheduler.set_num_nodes(action.job.job_id, action.nodes)
    patience = Retrying(
        stop=stop_after_delay(RELEASE_PATIENCE_S),
        wait=wait_fixed(0.1),
        retry=retry_if_exception_type(Rejected),
        sleep=outside.sleep,
    )
    try:
        patience(_let_start, action, outside)
    except RetryError as late:
        raise Unavailable(f"the job is still COMPLETING: {late.last_attempt.exception()}") from late
    after = _job(action.job, outside)
    soon = outside.clock.now() + timedelta(seconds=5)
    if after.state == "PENDING" and after.eligible_time is not None and after.eligible_time > soon:
        raise Unavailable(
            f"Slurm took the release, but the job may not start before {after.eligible_time:%H:%M:%S} UTC"
        )
    return done("released")


def _started(action: Release, job: Job) -> bool:
    return job.restarts > action.restarts or (
        job.restarts == action.restarts and job.state in HOLDING_STATES - {"COMPLETING"}
    )


def _let_start(action: Release, outside: Outside) -> None:
    """Release the job. Slurm refuses this for a job that it has just started on its own, which is what we wanted."""
    try:
        outside.scheduler.release(action.job.job_id, reservation=action.reservation)
    except Rejected:
        if not _started(action, _job(action.job, outside)):
            raise


def _exclusions(action: Release, job: Job, part: Job) -> tuple[str, ...]:
    """Nodes to exclude: each component of a heterogeneous job keeps what its user excluded for it."""
    if not job.parts:
        return action.exclude
    return tuple(sorted((set(part.excluded_nodes) & set(action.exclude)) | set(action.suspects)))


def _known(job: Job) -> None:
    """Never overwrite an exclusion list that could not be read just now. Raises Unavailable: it can be read again soon."""
    if not job.exclusions_known:
        raise Unavailable(f"the record of job {job.key} cannot be read now, nor which nodes its user excludes")


def _exclude(part: Job, nodes: tuple[str, ...], outside: Outside) -> None:
    """Set the excluded nodes, but never over a list that cannot be read: what its user excluded would be lost."""
    if not part.unreadable and set(nodes) != set(part.excluded_nodes):
        outside.scheduler.set_excluded_nodes(part.key.job_id, nodes)


def _delay_start(action: DelayStart, outside: Outside) -> IntentOutcome:
    job = _job(action.job, outside)
    if job.state != "PENDING" or job.restarts != action.restarts:
        raise StepRefused(f"the job is {job.state}: it started meanwhile")
    outside.scheduler.delay_start(action.job.job_id, action.delay_s)
    return done(f"it starts in {action.delay_s} s at the earliest, or when it is released")


def _set_throttle(action: SetThrottle, outside: Outside) -> IntentOutcome:
    job = _job(action.job, outside)
    if job.array_job_id != action.array_job_id:
        raise StepRefused(f"job {job.key} is not an element of array {action.array_job_id}")
    outside.scheduler.set_array_throttle(action.array_job_id, action.most)
    return done(f"{'all' if action.most is None else action.most} of its elements may run at a time")


def _allow_nodes(action: AllowNodes, outside: Outside) -> IntentOutcome:
    job = _job(action.job, outside)
    _known(job)
    if not set(job.excluded_nodes) & set(action.nodes):
        return done("it is not kept off them")
    if job.state != "PENDING":
        raise StepRefused(f"the job is {job.state}: its exclusions cannot be changed")
    for part in job.components:
        _exclude(part, tuple(n for n in part.excluded_nodes if n not in action.nodes), outside)
    return done(f"{','.join(action.nodes)} may serve it again")


def _hold_job(action: HoldJob, outside: Outside) -> IntentOutcome:
    job = _job(action.job, outside)
    if job.key != action.job:
        if job.state == "PENDING" and job.held:
            return done("it is held already")
        raise StepRefused(f"another run of the job is {job.state}: this one is over")
    outside.scheduler.hold(action.job.job_id, action.reason)
    outside.scheduler.tell_owner(action.job.job_id, action.reason)
    return done("held")
