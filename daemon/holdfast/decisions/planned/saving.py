"""Request to jobs to save before their machine goes. Pure.

A machine that goes at a known time does not harm its jobs until then. A job that takes a signal is asked to save, on all of its nodes and
once; it is stopped as soon as it has said so, or when the time is short. A job that takes no signal is stopped at once: the newest
checkpoint does not become newer by waiting."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.common import gpu_link, job_checkpoints, node_agents, node_incidents
from holdfast.decisions.planned import notices
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Proposal, SendOrder, Verb
from holdfast.model.actions.steps import Step
from holdfast.model.agents.report import AgentView
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.slurm.cluster import Job
from holdfast_checks.result import Severity

_ORDER_S = 60.0
"""An order that no agent has fetched after this long comes too late to help."""


def worth_asking(world: World, incident: Incident, job: Job) -> bool:
    """Whether the job takes a signal and there is time left for it to save."""
    mine = job_checkpoints.checkpoint_of(world, job)
    if mine is None or mine.save_signal is None or not notices.planned(world, incident) or faulty(world, job):
        return False
    return job.state == "RUNNING" and world.now < latest_stop(world, job, incident)


def faulty(world: World, job: Job) -> bool:
    """Whether the job holds something that is broken already: it may not be able to save, and must not wait for it."""
    return any(
        node_incidents.acting(i)
        and i.severity is Severity.FATAL
        and i.node in job.nodes
        and gpu_link.hits(world, i, job)
        and not notices.planned(world, i)
        for i in world.book.open_incidents()
    )


def goes_at(world: World, job: Job, incident: Incident) -> datetime:
    """Time when the first of the job's machines goes; now if none does (any more)."""
    others = (i for i in world.book.open_incidents() if node_incidents.acting(i) and i.node in job.nodes)
    times = [i.goes_at for i in (incident, *others) if i.goes_at is not None]
    return min(times, default=world.now)


def latest_stop(world: World, job: Job, incident: Incident) -> datetime:
    """Latest time to stop the job so that its restart starts before its machine goes."""
    return goes_at(world, job, incident) - timedelta(seconds=world.policy.planned.margin_s)


def why_stop(world: World, incident: Incident, job: Job, recovery: Recovery) -> str | None:
    """Reason why a job that was asked to save is stopped now; None: it still has time."""
    mine = job_checkpoints.checkpoint_of(world, job)
    asked = orders_of(world, recovery)
    if mine is None or mine.save_signal is None:
        return "it takes no signal any more"
    if world.now >= latest_stop(world, job, incident):
        return "the time is short"
    if not asked:
        return None
    since = asked[0].planned_at
    if mine.saved_at is not None and mine.saved_at > since and mine.saved_step != recovery.checkpoint_step:
        return f"it has saved step {mine.saved_step}"
    if mine.save_s is not None and world.now >= since + timedelta(seconds=mine.save_s):
        return f"the {mine.save_s:g} s that it asked for are over"
    if all(i.settled and i.state is not IntentState.DONE for i in asked) and _all_asked(job, asked):
        return "none of its processes takes the signal"
    return None


def orders_of(world: World, recovery: Recovery) -> tuple[Intent, ...]:
    """The orders to save that were given for this recovery, oldest first; one from before it was for another job of that id."""
    mine = (i for i in world.book.intents_of(recovery.incident_id) if i.planned_at >= recovery.created_at)
    return tuple(i for i in mine if i.is_attempt and _is_of(recovery, i))


def ask(world: World, job: Job, recovery: Recovery, *, group: str) -> list[Proposal]:
    """One order to each node of the job whose agent reports; none is sent twice."""
    mine = job_checkpoints.checkpoint_of(world, job)
    if mine is None or mine.save_signal is None:
        return []
    proposals = []
    asked = {i.step for i in orders_of(world, recovery)}
    for part in job.components:
        for node in part.nodes:
            step = _step(recovery, node)
            agent = node_agents.agent_of(world, node)
            if agent is None or step in asked:
                continue
            action = order(agent, part, mine.save_signal)
            reason = f"job {job.key} is asked to save before its machine goes"
            proposals.append(Proposal(recovery.incident_id, step, action, reason, group=group, order=5))
    return proposals


def order(agent: AgentView, part: Job, signal: str) -> SendOrder:
    """Order the job's processes on the agent's node to save."""
    args = {"job_id": part.key.job_id, "uid": part.uid, "signal": signal}
    return node_agents.order_to(agent, Verb.SAVE, _ORDER_S, args)


def _is_of(recovery: Recovery, intent: Intent) -> bool:
    return isinstance(intent.action, SendOrder) and intent.step == _step(recovery, intent.action.node)


def _step(recovery: Recovery, node: str) -> Step:
    return steps.save(node, recovery.job, recovery.restarts_before)


def _all_asked(job: Job, asked: tuple[Intent, ...]) -> bool:
    told = {i.action.node for i in asked if isinstance(i.action, SendOrder)}
    return {n for part in job.components for n in part.nodes} <= told
