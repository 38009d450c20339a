"""Validation orders for a repaired or new machine. Pure.

All of its checks run again, then the deep check. The pair probe (:mod:`.pair_probes`) and the quiet time follow. Any failure ends the
attempt: the next rung of the ladder follows, not a repetition."""

from __future__ import annotations

from holdfast.decisions.common import attempted_steps, node_agents
from holdfast.decisions.machines import replacement
from holdfast.decisions.repair import validation, validation_orders
from holdfast.model.actions import steps
from holdfast.model.actions.action import Proposal, Verb
from holdfast.model.agents.answers import held_by_job
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident


def validate(world: World, incident: Incident) -> list[Proposal]:
    """The next order of a validation; nothing while one is in flight, or once all are answered."""
    instance = validation.candidate(world, incident)
    step = steps.validate(incident.node, incident.repair_attempt)
    latest = attempted_steps.last(world.book.attempts(incident.id, step))
    held = latest is not None and latest.settled and held_by_job(latest.result)
    if latest is None or (held and validation_orders.may_ask_again(world, latest)):
        if incident.validated_at is not None:
            return []  # its job never stopped: nothing is run next to it
        return _checks(world, incident, instance)
    checked = validation.validation(world, incident)
    if checked is None or validation.failure(world, incident) is not None:
        return []
    action = validation_orders.deep_order(world, incident, instance)
    if action is None:
        return []
    reason = f"{instance or incident.node}: {', '.join(world.policy.repair.deep_checks)}"
    return [Proposal(incident.id, steps.deep_check(incident.node, incident.repair_attempt), action, reason, order=60)]


def _checks(world: World, incident: Incident, instance: str) -> list[Proposal]:
    """One validation an attempt: a failed one is followed by the next attempt of the ladder, not by asking again."""
    agent = node_agents.agent_of(world, incident.node, instance or None)
    if agent is None:
        return []
    limit_s = world.policy.repair.validate_timeout_s
    # A newly launched machine has no slurmd yet, the name is still the old one's: no job can be on it.
    args = {"expect_no_job": replacement.new_instance(world, incident) is None, "checks": []}
    action = node_agents.order_to(agent, Verb.VALIDATE, limit_s, args)
    reason = f"{instance or incident.node} must prove itself before it serves"
    step = steps.validate(incident.node, incident.repair_attempt)
    return [Proposal(incident.id, step, action, reason, order=60)]
