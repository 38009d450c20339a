"""Record of how runs of jobs ended, and why as far as known, made while Slurm still shows them. Pure.

The end of each run that failed, was ended or was lost is recorded once. The last lines of a failed job's output come from the agent of the
node that its script ran on (:mod:`.read_output`); until they have arrived, or their time is over, the cause is open."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.common import attempted_steps, node_agents, slurm_view
from holdfast.decisions.job_ends.attribution import faults_of
from holdfast.decisions.job_ends.exit_codes import slurm_error_of
from holdfast.decisions.job_ends.why_died import classify
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent
from holdfast.model.agents import answers
from holdfast.model.book import Change, World
from holdfast.model.elastic_jobs.elastic import declares_elastic
from holdfast.model.ids import UPKEEP
from holdfast.model.jobs.job_ends import Cause, JobEnd, Reading
from holdfast.model.jobs.output_path import OutputOf, as_given, filled_in
from holdfast.model.policies.lookback import JOB_ENDS_S
from holdfast.model.slurm.cluster import ClusterView, Job

MOST, MOST_OF_A_USER = 1000, 200
"""Ends within :data:`JOB_ENDS_S` that are put on record."""
WAIT_S = 10.0
"""Longest wait for the output: a recovery of the job waits as well."""
STALE_S = 30.0
"""Output that is so much older than the end was not written because of it: an error that the program caught and lived through. Two
machines' clocks may differ by some seconds; srun and slurmstepd write their lines in the second of the end."""
_OPEN_S = 600.0
"""Time in which a late finding may still explain an end."""
_UNTOLD = frozenset({"COMPLETED"})


def follow_job_ends(world: World) -> Change:
    """Record the ends that are new, take in what was read of outputs, and conclude."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Change()
    changed = []
    for end in (*_known(world), *_new(world, view)):
        after = _concluded(world, view, _read(world, end))
        if after != world.book.ends.get(end.id):
            changed.append(after)
    return Change(ends=tuple(changed))


def end_of(world: World, job: Job) -> JobEnd | None:
    """The end of the run that Slurm shows; where none is on record, as Slurm shows it. None: it is not over."""
    known = world.book.ends.get(job.run.text)
    if known is not None or job.end_time is None or job.state not in slurm_view.ENDED | slurm_view.FAILED:
        return known
    return replace(_seen(world, job, job.end_time), reading=Reading.UNREADABLE)


def shown(world: World, view: ClusterView, job: Job) -> JobEnd | None:
    """The same for people, with the cause; None as well where it completed, which needs none."""
    end = end_of(world, job) if job.state not in _UNTOLD else None
    return end if end is None or end.id in world.book.ends else _concluded(world, view, end)


def speaks_for_its_nodes(world: World, job: Job) -> bool:
    """Whether it is known that the run died of something else than its nodes."""
    end = end_of(world, job)
    return end is not None and end.cause not in (Cause.NODE, Cause.UNKNOWN)


def undecided(world: World, job: Job) -> bool:
    """Whether its output is still being read."""
    end = world.book.ends.get(job.run.text)
    return end is not None and end.reading is Reading.PENDING


def order_of(world: World, end: JobEnd) -> Intent | None:
    """The newest order to read its output."""
    return attempted_steps.last(world.book.attempts(UPKEEP, steps.read_output(end.job, end.restarts)))


def path_to_read(end: JobEnd, job: Job | None) -> str:
    """For the agent, which fills in Slurm's patterns itself: it knows its host's name. ``job``: the run, where Slurm still shows it."""
    return job.stderr or job.stdout if job is not None else as_given(end.output)


def _known(world: World) -> list[JobEnd]:
    since = world.now - timedelta(seconds=_OPEN_S)
    return [e for _, e in sorted(world.book.ends.items()) if e.seen_at > since or e.reading is Reading.PENDING]


def _new(world: World, view: ClusterView) -> list[JobEnd]:
    since = world.now - timedelta(seconds=JOB_ENDS_S)
    found: list[JobEnd] = []
    users = Counter(e.uid for e in world.book.ends.values())
    for _, job in sorted(view.jobs.items()):
        over = job.state in (slurm_view.ENDED | slurm_view.FAILED) - _UNTOLD and bool(job.nodes)
        if not over or job.end_time is None or job.end_time < since or job.run.text in world.book.ends:
            continue
        if users.total() >= MOST or users[job.uid] >= MOST_OF_A_USER:
            continue
        users[job.uid] += 1
        found.append(_seen(world, job, job.end_time))
    return found


def _seen(world: World, job: Job, ended_at: datetime) -> JobEnd:
    stdout, output = (_file(job, path) for path in (job.stdout, job.stderr or job.stdout))
    end = JobEnd(
        job=job.key,
        restarts=job.restarts,
        user=job.user,
        uid=job.uid,
        name=job.name,
        nodes=job.nodes,
        slurm_state=job.state,
        exit_code=job.exit_code,
        reason=job.reason,
        ended_at=ended_at,
        seen_at=world.now,
        started_at=job.start_time if job.nodes else None,
        slurm_error=job.slurm_error,
        output=output,
        stdout=stdout if stdout != output else "",
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
    )
    if job.state not in slurm_view.FAILED or slurm_error_of(
        end
    ):  # if the script never started, the content is another job's
        return end
    why_not = _why_not_read(world, job)
    return replace(end, reading=Reading.PENDING if why_not is None else Reading.UNREADABLE, reading_note=why_not or "")


def _file(job: Job, path: str) -> str:
    """Path of the output file as a user sees it. The agent knows the host's own name, if it differs from the node's."""
    host = job.batch_host or next(iter(job.nodes), "")
    names = OutputOf(job.key.job_id, job.name, job.user, host, job.array_job_id, job.array_task_id, job.restarts)
    return filled_in(path, names)


def _why_not_read(world: World, job: Job) -> str | None:
    """Reason why its output cannot be read; None: it can."""
    if not world.policy.job.read_output:
        return "[jobs] read_output is off"
    if not job.batch or not (job.stderr or job.stdout):
        return "Slurm knows no file of it"
    if node_agents.agent_of(world, job.batch_host or job.nodes[0]) is None:
        return f"no agent of {job.batch_host or job.nodes[0]} reports"
    return None


def _read(world: World, end: JobEnd) -> JobEnd:
    """The end with the agent's answer."""
    if end.reading is not Reading.PENDING:
        return end
    order = order_of(world, end)
    if order is not None and order.settled:
        end = replace(end, output=answers.output_path(order.result) or end.output)
        said = answers.output_read(order.result)
        if said is not None:
            read = replace(end, reading=Reading.READ, output_bytes=answers.output_size_bytes(order.result))
            before_s = _silent_before_end_s(end, order)
            if before_s > STALE_S:
                return replace(read, reading_note=f"nothing was written to it in its last {before_s:.0f} s")
            return replace(read, clues=said)
        return replace(
            end, reading=Reading.UNREADABLE, reading_note=order.outcome[:200] or "its node's agent could not"
        )
    if world.now - end.seen_at >= timedelta(seconds=WAIT_S):
        return replace(end, reading=Reading.UNREADABLE, reading_note=f"no answer from its node within {WAIT_S:.0f} s")
    return end


def _silent_before_end_s(end: JobEnd, order: Intent) -> float:
    """Time before its end at which the run last wrote to the file, in s; 0: not known."""
    quiet_s = answers.output_quiet_s(order.result)
    if quiet_s is None or order.finished_at is None:
        return 0.0
    return (end.ended_at - order.finished_at).total_seconds() + quiet_s


def _concluded(world: World, view: ClusterView, end: JobEnd) -> JobEnd:
    if end.reading is Reading.PENDING:
        return end
    job = view.jobs.get(end.job.job_id)
    faults = faults_of(world, job if job is not None and job.run == end.run else None, end)
    died = classify(end, faults, of_elastic=_of_elastic(end, job))
    return replace(end, cause=died.cause, text=died.text, incident_id=died.incident_id)


def _of_elastic(end: JobEnd, job: Job | None) -> bool:
    """Whether the job declares that it is elastic, in any run of it; once Slurm has forgotten it, what was concluded stays."""
    if job is None or job.uid != end.uid:
        return end.cause is Cause.STOPPED
    return declares_elastic(job.comment)
