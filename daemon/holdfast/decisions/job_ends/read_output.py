"""Orders to read job output: the last lines of a failed job, once, by the agent of the node that its script ran on. Pure."""

from __future__ import annotations

from holdfast.decisions.common import node_agents, slurm_view
from holdfast.decisions.common.part import Part
from holdfast.decisions.job_ends import run_ends
from holdfast.model import steps
from holdfast.model.action import Proposal, Verb
from holdfast.model.book import World
from holdfast.model.ids import UPKEEP
from holdfast.model.job_ends import JobEnd, Reading

AT_A_TIME = 16
"""Most orders in flight; the others wait, and count as not read when their time is over."""
READ_S = 5.0
"""The agent gives up after this: a file server may hang."""


def read_outputs(world: World) -> Part:
    """One order for each end whose output is to be read."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    waiting = [end for _, end in sorted(world.book.ends.items()) if end.reading is Reading.PENDING]
    asked = {end.id for end in waiting if run_ends.order_of(world, end) is not None}
    proposals: list[Proposal] = []
    for end in [end for end in waiting if end.id not in asked][: max(0, AT_A_TIME - len(asked))]:
        job = view.jobs.get(end.job.job_id)
        job = job if job is not None and job.run == end.run else None
        host = job.batch_host if job is not None and job.batch_host else end.nodes[0]
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


def _begins_at(world: World, end: JobEnd) -> int:
    """Size of the file when an earlier run of the job had ended: a job that is queued again appends to it."""
    earlier = (e for e in world.book.ends.values() if e.job == end.job and e.restarts < end.restarts)
    same = [e for e in earlier if e.output == end.output and e.output_bytes is not None]
    return max(same, key=lambda e: e.restarts).output_bytes or 0 if same else 0
