"""Restart budget: whether a job may be restarted once more. Pure.

The budget depends on progress: a job that advances may restart without limit; one that repeatedly fails at the same checkpoint, or that
breaks one node after another, is held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import sqrt

from holdfast.decisions.common import mounts
from holdfast.decisions.common.owner_words import names
from holdfast.decisions.job_ends import series
from holdfast.model.actions import steps
from holdfast.model.actions.action import IntentState
from holdfast.model.book import World
from holdfast.model.incidents.incident import ABOUT_JOBS, Incident, IncidentKind, Recovery, RecoveryPhase
from holdfast.model.policies.policy import JobPolicy

_FEW = 8
"""Most jobs named, the first ones."""
_SAME_FILE = timedelta(seconds=2)
"""Two surveys of one file agree on its time to within this: each reckons it from the moment at which it was reported."""


@dataclass(frozen=True, slots=True)
class BudgetRefusal:
    """Reason why a job must not be recovered any more."""

    text: str
    suspect: bool
    """The job itself is the suspect; its nodes are not."""


def refuses(world: World, incident: Incident, recovery: Recovery) -> BudgetRefusal | None:
    """Reason why the job must not be restarted once more; None: it may be."""
    earlier, others = _counted(world, recovery), _of_its_program(world, recovery)
    return _suspect(world, incident, earlier, others, recovery) or _no_progress(world, incident, earlier, recovery)


def _counted(world: World, recovery: Recovery) -> list[Recovery]:
    """The job's failures before this one that count, oldest first."""
    earlier = sorted(
        (
            r
            for r in world.book.recoveries.values()
            if (r.job.cluster, r.job.job_id, r.uid) == (recovery.job.cluster, recovery.job.job_id, recovery.uid)
            and r.restarts_before < recovery.restarts_before
            and not _left_as_it_was(r)
            and not _machine_went(world, r)
            and not _of_a_stall(world, r)
        ),
        key=lambda r: r.restarts_before,
    )
    return _since_its_release(world, earlier)


def _of_its_program(world: World, recovery: Recovery) -> list[Recovery]:
    """Failures of other jobs that run the same program, since one of them was last released."""
    related = [r for r in world.book.recoveries.values() if series.related(r, recovery)]
    released = max((r.released_at for r in related if r.released_at is not None), default=None)
    return [
        r
        for r in related
        if r.job.job_id != recovery.job.job_id
        and (released is None or r.created_at > released)
        and not _left_as_it_was(r)
        and not _machine_went(world, r)
    ]


def _since_its_release(world: World, earlier: list[Recovery]) -> list[Recovery]:
    """Failures that count: none from before a hold that its owner or an operator has released, since they checked the job."""
    for number in reversed(range(len(earlier))):
        if earlier[number].phase is RecoveryPhase.HELD and _was_held(world, earlier[number]):
            return earlier[number + 1 :]
    return earlier


def _was_held(world: World, recovery: Recovery) -> bool:
    """Slurm took the hold, as far as it is remembered: it may have been away until the job ran again."""
    step = steps.hold_job(recovery.job, recovery.restarts_before)
    attempts = world.book.attempts(recovery.incident_id, step)
    return not attempts or any(i.state is IntentState.DONE for i in attempts)


def _left_as_it_was(past: Recovery) -> bool:
    """Nothing was done to its run: no ground was ever found on which to stop it, or it could not be requeued."""
    never = past.phase is RecoveryPhase.GONE and past.ground is None
    return never or past.phase in (RecoveryPhase.LEFT_ALONE, RecoveryPhase.AWAITING_CONSENT)


def _machine_went(world: World, past: Recovery) -> bool:
    """It was stopped for what the provider announced: no failure."""
    cause = world.book.incidents.get(past.incident_id)
    return cause is not None and cause.goes_at is not None


def _of_a_stall(world: World, past: Recovery) -> bool:
    """It hung around the time at which jobs stopped together, before that was seen."""
    cause = world.book.incidents.get(past.incident_id)
    return cause is not None and cause.kind is IncidentKind.HANG and mounts.during_a_stall(world, cause.fault_at)


def must_be_known(world: World, incident: Incident, recovery: Recovery) -> bool:
    """Whether the job is restarted or held by what its newest checkpoint is, which is not known yet: it has made no progress before."""
    if recovery.checkpoint_known:
        return False
    supposed = replace(recovery, checkpoint_known=True)
    earlier = _counted(world, recovery)
    if earlier and recovery.checkpoint_step is None:  # nothing was seen since: suppose that it saved nothing
        supposed = replace(
            supposed, checkpoint_step=earlier[-1].checkpoint_step, checkpoint_at=earlier[-1].checkpoint_at
        )
    return _no_progress(world, incident, earlier, supposed) is not None


def _no_progress(world: World, incident: Incident, earlier: list[Recovery], recovery: Recovery) -> BudgetRefusal | None:
    """Three failures without a newer checkpoint (this one included) stop the loop. What is not known counts for nothing."""
    if not recovery.checkpoint_known:
        return _dies_early(world, incident, earlier, recovery)
    causes: list[Incident | None] = [incident]
    for past in reversed(earlier):
        if not past.checkpoint_known or _newer(recovery, past):
            break
        causes.append(world.book.incidents.get(past.incident_id))
    stuck = _failures_of_the_job(world.policy.job, causes, len(recovery.nodes_before))
    if stuck < world.policy.job.restarts_without_progress:
        return None
    return BudgetRefusal(
        f"{stuck} failures with {_newest(recovery)}: the job is held; once the cause is fixed: {_let_go(world, recovery)}",
        suspect=False,
    )


def _newest(recovery: Recovery) -> str:
    if recovery.checkpoint_step is not None:
        return f"no checkpoint newer than step {recovery.checkpoint_step}"
    at = recovery.checkpoint_at
    return "no checkpoint at all" if at is None else f"no checkpoint newer than the one of {at:%Y-%m-%d %H:%M:%S} UTC"


def _failures_of_the_job(policy: JobPolicy, causes: Sequence[Incident | None], nodes: int) -> int:
    """Number of these failures that the job may have caused. A node that fell silent or lost power does not count, even if an operator
    rebooted it, unless more nodes did so under this job than chance explains."""
    deaths = [cause for cause in causes if cause is not None and (cause.dead or cause.kind is IncidentKind.SILENCE)]
    by_chance = len({cause.node for cause in deaths}) <= most_by_chance(policy, nodes, programs_doing=False)
    return len(causes) - len(deaths) if by_chance else len(causes)


def _newer(recovery: Recovery, past: Recovery) -> bool:
    """Whether another checkpoint was the newest then. If names contain no steps (``last.ckpt``), the time of writing decides."""
    if recovery.checkpoint_step is not None or past.checkpoint_step is not None:
        return recovery.checkpoint_step != past.checkpoint_step
    if recovery.checkpoint_at is None or past.checkpoint_at is None:
        return recovery.checkpoint_at != past.checkpoint_at
    return abs(recovery.checkpoint_at - past.checkpoint_at) > _SAME_FILE


def _dies_early(world: World, incident: Incident, earlier: list[Recovery], recovery: Recovery) -> BudgetRefusal | None:
    """Limit for jobs whose checkpoints are not known: runs in a row that ended minutes after their start."""
    policy = world.policy.job
    if not _ended_early(policy, recovery):
        return None
    causes: list[Incident | None] = [incident]
    for past in reversed(earlier):
        if past.checkpoint_known or not _ended_early(policy, past):
            break
        causes.append(world.book.incidents.get(past.incident_id))
    early = _failures_of_the_job(policy, causes, len(recovery.nodes_before))
    if early < policy.quick_deaths:
        return None
    text = (
        f"{early} runs in a row ended within {policy.quick_death_s / 60:.0f} min of their start, and nothing is known of the job's "
        f"checkpoints: the job is held; once the cause is fixed: {_let_go(world, recovery)}"
    )
    return BudgetRefusal(text, suspect=False)


def _ended_early(policy: JobPolicy, run: Recovery) -> bool:
    return run.started_at is not None and run.created_at - run.started_at <= timedelta(seconds=policy.quick_death_s)


def _suspect(
    world: World, incident: Incident, earlier: list[Recovery], others: list[Recovery], recovery: Recovery
) -> BudgetRefusal | None:
    """Faults of one class on more nodes than chance explains under one job, or under all that run one program: the job is the suspect.

    ``others``: what happened to other jobs that run it. What a job says of itself (a hang) counts for that job alone."""
    past = earlier if incident.kind in ABOUT_JOBS else [*earlier, *others]
    same = [(r, cause) for r in past if (cause := _same_fault(world, incident, r)) is not None]
    nodes = {incident.node, *(cause.node for _, cause in same)}
    jobs = sorted({r.job.job_id for r, _ in same} - {recovery.job.job_id})
    has = series.nodes_of(world, recovery) if jobs else len(recovery.nodes_before)
    most = most_by_chance(world.policy.job, has, programs_doing=_may_be_its_doing(incident))
    if incident.dead or len(nodes) <= most:
        return None
    text = (
        names(f"{incident.check} {incident.code}", 2)
        + f" on {len(nodes)} nodes ({','.join(sorted(nodes))}) under {_these(jobs)} within "
        f"{world.policy.job.suspect_window_s / 3600:.0f} h; chance explains {most} at most: "
        f"the job is the suspect and is held; once it is fixed: {_let_go(world, recovery)}"
    )
    return BudgetRefusal(text, suspect=True)


def _same_fault(world: World, incident: Incident, past: Recovery) -> Incident | None:
    """The fault of then, where it is of the same class and young enough to count."""
    since = world.now - timedelta(seconds=world.policy.job.suspect_window_s)
    cause = world.book.incidents.get(past.incident_id)
    counts = cause is not None and _same_class(cause, incident) and not cause.dead and past.created_at >= since
    return cause if counts else None


def _these(others: list[int]) -> str:
    if not others:
        return "this job"
    named = ", ".join(map(str, others[:_FEW])) + (" …" if len(others) > _FEW else "")
    return f"this job and job{'s' * (len(others) > 1)} {named} of the same array or script"


def most_by_chance(policy: JobPolicy, nodes: int, *, programs_doing: bool) -> int:
    """Number of a job's nodes that may have a fault of one class within ``policy.suspect_window_s`` before the job is the suspect.

    ``nodes``: how many it has. ``programs_doing``: a program can cause this fault. Random faults follow a Poisson distribution, with the
    mean m = nodes x days x ``faults_per_node_day`` and the standard deviation sqrt(m); up to three of these above the mean count as chance.
    2 nodes: m = 0.01, no more; 2,000 nodes: m = 13, 23 more."""
    mean = nodes * policy.suspect_window_s / 86_400 * policy.faults_per_node_day
    least = policy.suspect_nodes if programs_doing else policy.suspect_nodes_hardware
    return least - 1 + int(mean + 3 * sqrt(mean))


def _may_be_its_doing(incident: Incident) -> bool:
    """Faults that the job reports of itself, or that programs cause; a job hardly ever causes any others."""
    return incident.kind in ABOUT_JOBS or incident.by_program


def _same_class(one: Incident, other: Incident) -> bool:
    """Class of a failure: check and code for a fault of a node; the kind for an incident about the job itself, as its check changes during
    the investigation."""
    if one.kind is not other.kind:
        return False
    if one.kind in (*ABOUT_JOBS, IncidentKind.PAIR):
        return True
    return one.check == other.check and (one.code == other.code or "" in (one.code, other.code))


def _let_go(world: World, recovery: Recovery) -> str:
    """Commands by which the owner starts a held job: Slurm delays a requeued one for two more minutes after its release. An array's element
    is named by its task: one element has the array's own id, which would name them all."""
    job = world.view.jobs.get(recovery.job.job_id) if world.view is not None else None
    name = job.shown_id if job is not None and job.continues(recovery.job) else str(recovery.job)
    return f"scontrol release {name}; scontrol update jobid={name} StartTime=now"
