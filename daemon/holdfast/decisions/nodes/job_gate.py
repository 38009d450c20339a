"""Permission for Slurm's prolog and epilog to fail on a node. Pure.

If a prolog fails, Slurm drains the node and requeues the job, past every brake. So it may only follow a decision: this controller has
decided to drain the node, in ``act``, and nothing has overtaken that since."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.common import brake_scopes, node_incidents
from holdfast.decisions.common.node_policy import policy_of
from holdfast.decisions.nodes import hands_off
from holdfast.model.actions.action import Drain, Intent, IntentState
from holdfast.model.book import World
from holdfast.model.policies.policy import Mode
from holdfast_checks.result import Severity

WORLD_MAX_AGE_S = 15.0
"""An older picture of the cluster closes no gate: the control loop may hang."""
_DECIDED = frozenset({IntentState.PLANNED, IntentState.STARTED, IntentState.DONE})


def closed_by(world: World, node: str, now: datetime) -> str | None:
    """Id of the incident for which jobs are kept off the node; None: its prolog and epilog succeed."""
    policy, book = world.policy, world.book
    if Mode.OBSERVE in (policy.mode, policy.prolog) or policy_of(node, world).mode is not Mode.ACT:
        return None  # a prolog that fails stops a job without an operator's accept
    if book.paused is not None or world.frozen is not None:
        return None
    if now - world.now > timedelta(seconds=WORLD_MAX_AGE_S) or _in_other_hands(world, node):
        return None
    fatal = (i for i in book.open_on(node) if node_incidents.acting(i) and i.severity is Severity.FATAL)
    mine = (i for i in fatal if not brake_scopes.about(world, book.brakes_of(i.id), (node,)))
    return next((i.id for i in mine if any(_drains(intent, node) for intent in book.intents_of(i.id))), None)


def _in_other_hands(world: World, node: str) -> bool:
    hands = hands_off.on(world, node)
    return hands is not None and hands.hands is not hands_off.Hands.REBOOT_WAITS


def _drains(intent: Intent, node: str) -> bool:
    action = intent.action
    return isinstance(action, Drain) and action.node == node and intent.state in _DECIDED
