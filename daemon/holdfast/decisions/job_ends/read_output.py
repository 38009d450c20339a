"""Orders to read job output: the last lines of a failed job, once, by the agent of the node that its script ran on. Pure."""

from __future__ import annotations

from collections import Counter

from holdfast.decisions.common import node_agents, slurm_view
from holdfast.decisions.common.part import Part
from holdfast.decisions.common.user_orders import MOST_OF_A_USER_ON_A_NODE, of_users_on_nodes
from holdfast.decisions.job_ends import run_ends
from holdfast.model.actions import steps
from holdfast.model.actions.action import Proposal, Verb
from holdfast.model.book import World
from holdfast.model.ids import UPKEEP
from holdfast.model.jobs.job_ends import JobEnd, Reading
from holdfast.model.slurm.cluster import ClusterView, Job

AT_A_TIME = 16
"""Most orders in flight; the others wait, and count as not read when their time is over."""
MOST_OF_A_USER = 12
"""Of these. A user's files may not answer at all: the rest is for the other users."""
READ_S = 5.0
"""The agent gives up after this: a file server may hang."""


def read_outputs(world: World) -> Part:
    """One order for each end whose output is to be read."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    proposals: list[Proposal] = []
    for end in _next(world, view):
        job, host = _seen(view, end)
        agent = node_agents.agent_of(world, host)
        if agent is None:
            continue
        args = {
            "job_id": end.job.job_id,
            "uid": end.uid,
            "path": run_ends.path_to_read(end, job),
            "name": end.name,
            "user": end.user,
            "restarts": end.restarts,
            "deadline_s": READ_S,
            "from_byte": _begins_at(world, end),
            **(
                {"array_job_id": job.array_job_id, "array_task_id": job.array_task_id}
                if job is not None and job.array_job_id
                else {}
            ),
        }
        order = node_agents.order_to(agent, Verb.OUTPUT, run_ends.WAIT_S, args)
        reason = f"job {end.job.job_id} failed: what do the last lines of its output say?"
        proposals.append(Proposal(UPKEEP, steps.read_output(end.job, end.restarts), order, reason, order=90))
    return Part(tuple(proposals))


def _seen(view: ClusterView, end: JobEnd) -> tuple[Job | None, str]:
    """The run, where Slurm still shows it, and the node that its script ran on."""
    job = view.jobs.get(end.job.job_id)
    job = job if job is not None and job.run == end.run else None
    return job, job.batch_host if job is not None and job.batch_host else end.nodes[0]


def _next(world: World, view: ClusterView) -> list[JobEnd]:
    """The ends to read now: of one user after another, so that none waits behind all of another's."""
    waiting = [end for _, end in sorted(world.book.ends.items()) if end.reading is Reading.PENDING]
    asked = [end for end in waiting if run_ends.order_of(world, end) is not None]
    of_user = Counter(end.uid for end in asked)
    there = of_users_on_nodes(world)
    left = [end for end in waiting if end not in asked]
    chosen: list[JobEnd] = []
    while len(asked) + len(chosen) < AT_A_TIME:
        free = [
            end
            for end in left
            if of_user[end.uid] < MOST_OF_A_USER
            and there[end.uid, _seen(view, end)[1]] < MOST_OF_A_USER_ON_A_NODE
            and end not in chosen
        ]
        if not free:
            break
        end = min(free, key=lambda each: of_user[each.uid])
        of_user[end.uid] += 1
        there[end.uid, _seen(view, end)[1]] += 1
        chosen.append(end)
    return chosen


def _begins_at(world: World, end: JobEnd) -> int:
    """Size of the file when an earlier run of the job had ended: a job that is queued again appends to it."""
    earlier = (e for e in world.book.ends.values() if e.job == end.job and e.restarts < end.restarts)
    same = [e for e in earlier if e.output == end.output and e.output_bytes is not None]
    return max(same, key=lambda e: e.restarts).output_bytes or 0 if same else 0
