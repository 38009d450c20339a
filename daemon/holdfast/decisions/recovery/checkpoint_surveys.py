"""Surveys of checkpoint directories, each by one agent: that of the job's first node that reports, never all of them. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from holdfast.decisions.common import job_checkpoints, node_agents
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Proposal, Verb
from holdfast.model.book import World
from holdfast.model.elastic_jobs.elastic import declares_elastic
from holdfast.model.incidents.incident import Recovery, RecoveryPhase
from holdfast.model.slurm.cluster import Job

SOONER = 10
"""A recovered run that has not shown from which step it resumed is read this many times as often."""
MOST = 64
"""Directories that one agent is to read, of all its users in turn: it reads no more (``agent/orders/survey_plan.py``). A path may be long,
and an answer to an agent has to stay below 1 MiB."""
_ORDER_S = 15.0
"""An order that no agent has fetched after this long comes too late to help."""

NamedDirectory = dict[str, str | int | float]
"""A directory as the answer to a heartbeat names it."""


def named(world: World) -> dict[str, list[NamedDirectory]]:
    """Node → what its agent reads now and then."""
    found: dict[str, list[NamedDirectory]] = {}
    every_s, view = world.policy.job.survey_s, world.view
    if view is None or every_s <= 0:
        return found
    jobs = (view.jobs[number] for number in sorted(world.book.checkpoints) if number in view.jobs)
    for job in jobs:
        what = _what(world, job)
        node = _reader(world, job) if what is not None and job.state == "RUNNING" else None
        if node is not None and what is not None:
            pause_s = every_s / SOONER if _goes_on_unseen(world, job) else every_s
            found.setdefault(node, []).append(what | {"every_s": pause_s})
    return {node: _in_turn(directories) for node, directories in found.items()}


def _in_turn(directories: list[NamedDirectory]) -> list[NamedDirectory]:
    """At most :data:`MOST`, so that no user's many jobs keep another user's from being read."""
    if len(directories) <= MOST:
        return directories
    seen: Counter[str | int | float] = Counter()
    turns = []
    for number, each in enumerate(directories):
        turns.append((seen[each["uid"]], number))
        seen[each["uid"]] += 1
    return [directories[number] for _, number in sorted(turns)[:MOST]]


def ask(world: World, job: Job, recovery: Recovery) -> list[Proposal]:
    """Have the directory read now that the run is over, or about to be; once for each recovery."""
    what = _what(world, job)
    if what is None or world.policy.job.survey_s <= 0 or recovery.checkpoint_known:
        return []
    cause = world.book.incidents.get(recovery.incident_id)
    node = _reader(world, job, not_on=cause.node if cause is not None else "")
    agent = node_agents.agent_of(world, node) if node is not None else None
    if agent is None or asked_at(world, recovery) is not None:
        return []
    step = steps.survey(agent.node, recovery.job, recovery.restarts_before)
    action = node_agents.order_to(agent, Verb.SURVEY, _ORDER_S, what)
    return [Proposal(recovery.incident_id, step, action, f"which checkpoints of job {job.key} are complete", order=5)]


def may_answer(world: World, recovery: Recovery) -> bool:
    """Whether an agent was asked and can still report what it finds."""
    asked = _asked(world, recovery)
    return asked is not None and asked.state not in (IntentState.FAILED, IntentState.REFUSED)


def asked_at(world: World, recovery: Recovery) -> datetime | None:
    """When the directory was to be read for this recovery; None: it was not."""
    asked = _asked(world, recovery)
    return None if asked is None else asked.planned_at


def _asked(world: World, recovery: Recovery) -> Intent | None:
    wanted = {steps.survey(node, recovery.job, recovery.restarts_before) for node in recovery.nodes_before}
    mine = (i for i in world.book.intents_of(recovery.incident_id) if i.planned_at >= recovery.created_at)
    return next((i for i in mine if i.step in wanted and i.state is not IntentState.WITHHELD), None)


def _what(world: World, job: Job) -> NamedDirectory | None:
    """Groups of an elastic job are many and report their steps: none of them is read."""
    mine = None if declares_elastic(job.comment) else job_checkpoints.checkpoint_of(world, job)
    if mine is None:
        return None
    return {"job_id": mine.job_id, "uid": mine.uid, "restarts": job.restarts, "dir": mine.directory}


def _reader(world: World, job: Job, not_on: str = "") -> str | None:
    """The first node of the job whose agent reports, one with a fault last; None: no agent does."""
    reporting = [node for node in job.nodes if node_agents.agent_of(world, node) is not None]
    return next(iter(sorted(reporting, key=lambda node: node == not_on)), None)


def _goes_on_unseen(world: World, job: Job) -> bool:
    recovery = world.book.recovery_of(job.key, job.restarts - 1)
    return recovery is not None and recovery.phase is RecoveryPhase.RUNNING
