"""Orders that were planned and may not be handed to an agent now. Pure.

An order waits in the store until its agent asks. Meanwhile an operator may pause, take the incident over or close it, or start the
controller in observe: the order is judged again when it is handed out, as the actor judges its steps again."""

from __future__ import annotations

from holdfast.model.actions.action import SendOrder, Verb
from holdfast.model.actions.endings import ENDINGS
from holdfast.model.incidents.incident import Incident

HARMLESS_VERBS = frozenset({Verb.PROBE_PEER, Verb.OUTPUT})
"""Orders that are given whatever holds: they ask, and change nothing."""
ENDING_VERBS = frozenset(verb for verb in Verb if f"SendOrder.{verb.value}" in {each.step for each in ENDINGS})
"""Orders by which processes end."""


def held(order: SendOrder, incident: Incident | None, *, paused: bool, observes: bool) -> bool:
    """Whether the order waits, until it expires. ``incident``: the one that it is for; None: it is for none that is known."""
    if order.verb in HARMLESS_VERBS:
        return False
    if paused or observes:
        return True
    over = incident is not None and (incident.acknowledged or not incident.open)
    return over and order.verb in ENDING_VERBS
