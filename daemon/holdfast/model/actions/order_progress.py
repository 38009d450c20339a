"""How far an operator's order to replace a machine is. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState
from holdfast.model.incidents.incident import Incident, IncidentState

NOT_BEGUN = frozenset({IncidentState.OPEN, IncidentState.CONTAINED, IncidentState.REPAIRING})
"""States in which the machine may be as the operator saw it; in the last one, unless a step at it has begun (:func:`replacement_begun`)."""
_BEGUN = frozenset({IntentState.STARTED, IntentState.DONE})


def replacement_begun(incident: Incident, intents: Iterable[Intent]) -> bool:
    """Whether the launch or the exchange of the incident's present attempt has begun. ``intents``: those of the incident."""
    node, attempt = incident.node, incident.repair_attempt
    mine = (steps.launch(node, attempt), steps.replace(node, attempt))
    return any(i.step in mine and i.state in _BEGUN for i in intents)


def may_be_withdrawn(incident: Incident, intents: Iterable[Intent]) -> bool:
    """Whether the incident is an order alone of which nothing irreversible has begun: its end gives a healthy node back."""
    waits = incident.ordered is not None and incident.only_ordered and not incident.acknowledged
    return waits and incident.state in NOT_BEGUN and not replacement_begun(incident, intents)
