"""May the job be restarted once more? Pure.

The budget looks at progress: a job that advances may go on for ever; one that fails again and again at the same checkpoint, or that
breaks one node after another, is held."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.model.book import World
from holdfast.model.incident import ABOUT_JOBS, Incident, IncidentKind, Recovery, RecoveryPhase


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job must not be followed any further."""

    text: str
    suspect: bool
    """The job itself is the suspect; its nodes are not."""


def refuses(world: World, incident: Incident, recovery: Recovery) -> Refusal | None:
    """Why the job must not be restarted once more; None: it may be."""
    earlier = sorted(
        (
            r
            for r in world.book.recoveries.values()
            if (r.job.cluster, r.job.job_id, r.uid) == (recovery.job.cluster, recovery.job.job_id, recovery.uid)
            and r.restarts_before < recovery.restarts_before
            and r.phase not in (RecoveryPhase.LEFT_ALONE, RecoveryPhase.AWAITING_CONSENT)
            and not _machine_went(world, r)
        ),
        key=lambda r: r.restarts_before,
    )
    return _suspect(world, incident, earlier, recovery) or _no_progress(world, earlier, recovery)


def _machine_went(world: World, past: Recovery) -> bool:
    """It was stopped for what the provider announced: no failure."""
    cause = world.book.incidents.get(past.incident_id)
    return cause is not None and cause.goes_at is not None


def _no_progress(world: World, earlier: list[Recovery], recovery: Recovery) -> Refusal | None:
    """Three failures without a newer checkpoint (this one included) stop the loop."""
    stuck = 1
    for past in reversed(earlier):
        if past.checkpoint_step != recovery.checkpoint_step:
            break
        stuck += 1
    if stuck < world.policy.job.restarts_without_progress:
        return None
    at = (
        "no checkpoint at all"
        if recovery.checkpoint_step is None
        else f"no checkpoint newer than step {recovery.checkpoint_step}"
    )
    return Refusal(f"{stuck} failures with {at}: held; when it is mended: {_let_go(recovery)}", suspect=False)


def _suspect(world: World, incident: Incident, earlier: list[Recovery], recovery: Recovery) -> Refusal | None:
    """Faults of one class on different nodes under one job: the job is the suspect."""
    since = world.now - timedelta(seconds=world.policy.job.suspect_window_s)
    nodes = {incident.node}
    for past in earlier:
        cause = world.book.incidents.get(past.incident_id)
        if cause is not None and _same_class(cause, incident) and not cause.dead and past.created_at >= since:
            nodes.add(cause.node)
    if incident.dead or len(nodes) < world.policy.job.suspect_nodes:
        return None
    text = (
        f"{incident.check} on {len(nodes)} nodes ({','.join(sorted(nodes))}) under this job: "
        f"the job is the suspect and is held; when it is mended: {_let_go(recovery)}"
    )
    return Refusal(text, suspect=True)


def _same_class(one: Incident, other: Incident) -> bool:
    """Faults of nodes by their check; what is about the job itself by its kind, as its check changes while it is looked into."""
    if one.kind is not other.kind:
        return False
    return one.kind in (*ABOUT_JOBS, IncidentKind.PAIR) or one.check == other.check


def _let_go(recovery: Recovery) -> str:
    """How the owner starts a held job: Slurm keeps a requeued one back for two minutes more after its release."""
    return f"scontrol release {recovery.job}; scontrol update jobid={recovery.job} StartTime=now"
