"""Progress of the current rung of a repair, read from the incident's intents and agents. Pure.

Every rung is one step with the attempt in its name. It is done when the agent of a machine reports that was not there before: another
instance or another boot; for a GPU reset, when the agent reports the reset."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.common import attempted_steps, node_agents, slurm_view
from holdfast.decisions.machines import replacement
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.repair.ladder import Rung
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, Reboot, Replace, StopStart
from holdfast.model.actions.steps import Step
from holdfast.model.agents.report import AgentView
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast_checks.words import known

_STEP = {Rung.RESET_GPU: steps.reset_gpu, Rung.REBOOT: steps.reboot, Rung.STOP_START: steps.stop_start}
"""Rungs with their own step. A replacement has one of two, and what the provider repairs has none."""


def rung_of(incident: Incident) -> Rung:
    """The rung that a repair is on; incidents of before there were rungs are on the replacement."""
    return (known(Rung, incident.rung) or Rung.HUMAN) if incident.rung else Rung.REPLACE


def of_another_release(incident: Incident) -> bool:
    """Whether the repair is on a rung that this release does not know, so that its progress and its end are unknown."""
    return incident.rung != "" and known(Rung, incident.rung) is None


def attempt_over(incident: Incident) -> Incident:
    """The incident on its next attempt: what this one launched is given back (:mod:`.cleanup`)."""
    return replace(incident, repair_attempt=incident.repair_attempt + 1)


def in_place(world: World, incident: Incident) -> bool:
    """Whether this attempt replaces in place; one that has started continues as it started, whatever the provider can do by now."""
    node, attempt = incident.node, incident.repair_attempt
    if world.book.attempts(incident.id, steps.launch(node, attempt)):
        return False
    return bool(world.book.attempts(incident.id, steps.replace(node, attempt))) or not world.can.launch_first


def step(world: World, incident: Incident) -> Step | None:
    """The one step that does what the rung does; None: the provider or an operator does it, Holdfast nothing."""
    rung = rung_of(incident)
    if rung in (Rung.WATCH, Rung.HUMAN):
        return None
    node, attempt = incident.node, incident.repair_attempt
    if rung is Rung.REPLACE:
        return steps.replace(node, attempt) if in_place(world, incident) else steps.launch(node, attempt)
    return _STEP[rung](node, attempt)


def attempts(world: World, incident: Incident) -> tuple[Intent, ...]:
    """Attempts of the rung's step, oldest first."""
    mine = step(world, incident)
    return world.book.attempts(incident.id, mine) if mine is not None else ()


def machine_up(world: World, incident: Incident) -> AgentView | None:
    """The agent of the machine that this rung brought; None: it has not reported yet.

    An order whose answer was lost may have been carried out all the same: only the agent's report counts."""
    rung = rung_of(incident)
    if rung is Rung.WATCH:
        return _other_than(world, incident, incident.instance_id, incident.boot_id)
    tries = attempts(world, incident)
    if not tries:
        return None
    if rung is Rung.RESET_GPU:
        reset = attempted_steps.done(tries) is not None
        return node_agents.agent_of(world, incident.node, incident.serving_id or None) if reset else None
    action = tries[0].action
    if isinstance(action, Reboot | StopStart | Replace):
        same_id = not isinstance(action, Replace)
        return _other_than(world, incident, action.instance_id, action.boot_id, same_id=same_id)
    new = replacement.new_instance(world, incident)
    return node_agents.agent_of(world, incident.node, new) if new is not None else None


def _other_than(
    world: World, incident: Incident, instance_id: str, boot_id: str, *, same_id: bool = False
) -> AgentView | None:
    """The node's agent in another boot than that one (``same_id``: of that machine)."""
    agent = node_agents.agent_of(world, incident.node, instance_id if same_id and instance_id else None)
    return agent if agent is not None and (agent.instance_id, agent.boot_id) != (instance_id, boot_id) else None


def begun_at(world: World, incident: Incident) -> datetime | None:
    """Time when the step was done, from which the rung's time limit counts. None: it is not done."""
    if rung_of(incident) is Rung.WATCH:
        return incident.state_since
    done = attempted_steps.done(attempts(world, incident))
    return None if done is None else done.finished_at or done.planned_at


def patience_s(world: World, incident: Incident) -> float:
    """Longest time from the step to the first report of the machine, in seconds."""
    repair = world.policy.repair
    return {
        Rung.RESET_GPU: repair.reset_timeout_s,
        Rung.REBOOT: repair.reboot_timeout_s,
        Rung.STOP_START: repair.stop_start_timeout_s,
        Rung.WATCH: repair.watch_timeout_s,
    }.get(rung_of(incident), repair.launch_timeout_s)


def failure(world: World, incident: Incident) -> str | None:
    """Reason why the rung itself failed before a machine reported; None: it has not failed (yet)."""
    provider = world.book.provider
    if rung_of(incident) is Rung.WATCH and provider is not None and not provider.repairs_itself:
        return "the provider's automatic repair has been switched off"
    final = attempted_steps.failed_for_good(attempts(world, incident))
    if final is not None:
        return f"{_WORDS[rung_of(incident)]} failed: {final.outcome}"
    since = hands_off.since_window(world, incident, begun_at(world, incident))
    limit_s = patience_s(world, incident)
    if since is not None and world.now - since > timedelta(seconds=limit_s) and machine_up(world, incident) is None:
        return f"{_WORDS[rung_of(incident)]}: no machine reported within {limit_s:.0f} s"
    return None


_WORDS = {
    Rung.RESET_GPU: "reset",
    Rung.REBOOT: "reboot",
    Rung.STOP_START: "stop and start",
    Rung.REPLACE: "launch",
    Rung.WATCH: "the provider's own repair",
    Rung.WAIT: "wait",
    Rung.VALIDATE: "validation",
    Rung.HUMAN: "an operator's repair",
}


STEADY_S = 900.0
"""slurmctld gives up a silent slurmd after SlurmdTimeout (300 s by default). A slurmd that responds this long after another machine or boot
was proved belongs to that one, even if it was there before Holdfast's order."""


def slurmd_is_new(world: World, incident: Incident) -> bool:
    """Whether Slurm is in contact with a slurmd that was not there before the rung; a reset leaves it as it is."""
    node = world.view.nodes[incident.node] if world.view is not None else None
    if node is None or not node.responding or node.rebooting or not slurm_view.slurm_settled(world):
        return False
    tries = attempts(world, incident) if incident.rung else ()
    action = tries[0].action if tries else None
    before = action.slurmd_started_at if isinstance(action, Reboot | StopStart | Replace) else None
    if before is None or node.slurmd_start_time is None:
        return before is None
    if node.slurmd_start_time != before or _started_by_successor(node.slurmd_start_time, tries):
        return True
    return incident.validated_at is not None and world.now - incident.validated_at > timedelta(seconds=STEADY_S)


def _started_by_successor(slurmd_started_at: datetime, tries: tuple[Intent, ...]) -> bool:
    """Whether someone else exchanged the machine before Holdfast's order was planned: the slurmd seen then is already the new one's."""
    ordered = attempted_steps.done(tries)
    launched = str(ordered.result.get("launched_at", "")) if ordered is not None else ""
    return bool(launched) and slurmd_started_at >= datetime.fromisoformat(launched)
