"""Note for a job's owner in a file alongside the job's output: one for each recovery, once the job runs again or failed to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from holdfast.decisions.common import node_agents
from holdfast.decisions.common.user_orders import MOST_OF_A_USER_ON_A_NODE, of_users_on_nodes
from holdfast.decisions.recovery import owner_note
from holdfast.decisions.recovery.not_back import not_back
from holdfast.decisions.recovery.started_again import by_holdfast
from holdfast.model.actions import steps
from holdfast.model.actions.action import Proposal, SendOrder, Verb
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, Recovery, RecoveryPhase
from holdfast.model.jobs.opt_in import NO_NOTES_WORD, wants_notes
from holdfast.model.jobs.output_path import users_own
from holdfast.model.policies.lookback import STEP_HOUR_S
from holdfast.model.slurm.cluster import ClusterView, Job

AT_A_TIME, MOST_OF_A_USER = 16, 4
"""Most orders in flight, in all and of one user's jobs, whose files may not answer; the others wait."""
_EXPIRES_S = 300.0
"""An agent that has not taken the order by then does not write it."""
_WRITE_S = 5.0
_MOST_CHARS = 2000
"""An agent takes no more."""


def leave(world: World, view: ClusterView) -> list[Proposal]:
    """Orders for the notes that are due. A run that began more than an hour ago gets none: the store forgets who was given one."""
    if not world.policy.job.owner_file:
        return []
    flying = [i for i in world.book.intents.values() if not i.settled and _is_note(i.action)]
    of_user = Counter(i.action.args["uid"] for i in flying if isinstance(i.action, SendOrder))
    there = of_users_on_nodes(world)
    proposals: list[Proposal] = []
    for recovery in sorted(world.book.recoveries.values(), key=lambda r: r.id):
        due = _due(world, view, recovery)
        if due is None or len(flying) + len(proposals) >= AT_A_TIME or of_user[recovery.uid] >= MOST_OF_A_USER:
            continue
        place = (recovery.uid, due.action.target.node)
        if there[place] >= MOST_OF_A_USER_ON_A_NODE:
            continue
        there[place] += 1
        of_user[recovery.uid] += 1
        proposals.append(due)
    return proposals


def _is_note(action: object) -> bool:
    return isinstance(action, SendOrder) and action.verb is Verb.JOB_NOTE


def _due(world: World, view: ClusterView, recovery: Recovery) -> Proposal | None:
    job, incident = view.jobs.get(recovery.job.job_id), world.book.incidents.get(recovery.incident_id)
    if job is None or incident is None or not _may_have(job) or not owner_note.in_the_next_run(recovery, job):
        return None
    lines = _lines(world, view, incident, recovery, job)
    agent = node_agents.agent_of(world, job.batch_host or job.nodes[0])
    step = steps.leave_job_note(recovery.job, recovery.restarts_before)
    if not lines or agent is None or world.book.attempts(incident.id, step, recovery.job):
        return None
    order = node_agents.order_to(agent, Verb.JOB_NOTE, _EXPIRES_S, _args(incident, recovery, job, lines))
    what = "runs again" if job.state == "RUNNING" else "failed to run again"
    return Proposal(incident.id, step, order, f"job {job.shown_id} {what}: its owner reads why", order=90)


def _may_have(job: Job) -> bool:
    return bool(job.nodes) and job.batch and job.uid != 0 and bool(_output(job)) and wants_notes(job.comment)


def _output(job: Job) -> str:
    """The output whose folder the file goes to; empty: none is in a folder of the user's."""
    return next((path for path in (job.stdout, job.stderr) if path and users_own(path)), "")


def _lines(world: World, view: ClusterView, incident: Incident, recovery: Recovery, job: Job) -> tuple[str, ...]:
    """What its owner is to read now; empty: nothing."""
    if recovery.phase is RecoveryPhase.RESUMED and job.state == "RUNNING":
        recent = job.start_time is not None and world.now - job.start_time < timedelta(seconds=STEP_HOUR_S)
        if not recent or not by_holdfast(world, recovery):
            return ()
        first = owner_note.recovered(world, incident, recovery, job)
        return (first, *owner_note.how_to_resume(world, recovery, job))
    over = not_back(world, view, incident, recovery, job)
    return over.lines(world, incident, recovery) if over is not None else ()


def _args(incident: Incident, recovery: Recovery, job: Job, lines: Sequence[str]) -> dict[str, object]:
    mark = f"job {job.shown_id}, run {recovery.restarts_before}, incident {incident.id}"
    array = {"array_job_id": job.array_job_id, "array_task_id": job.array_task_id} if job.array_job_id else {}
    return {
        "job_id": job.key.job_id,
        "uid": job.uid,
        "path": _output(job),
        "name": job.name,
        "user": job.user,
        "restarts": job.restarts,
        "deadline_s": _WRITE_S,
        "mark": mark,
        "text": _text(lines, job, mark),
        **array,
    }


def _text(said: Sequence[str], job: Job, mark: str) -> str:
    """The lines in the file, printable: names in it are users' words."""
    lines = (
        f"Holdfast: {mark}",
        *said,
        f"Read on: scontrol show job {job.shown_id}; squeue -j {job.shown_id}; {owner_note.why_command(job)}",
        f"For no such notes: sbatch --comment=holdfast,{NO_NOTES_WORD}",
    )
    return "\n".join("".join(c if c.isprintable() else " " for c in line)[:600] for line in lines)[:_MOST_CHARS]
