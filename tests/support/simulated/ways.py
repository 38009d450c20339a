"""The steps of each incident as its events record them: each is in the table, and begins where the last one ended."""

from __future__ import annotations

from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentState, MovedBy, legal

_KINDS = (EventKind.INCIDENT_OPENED, EventKind.INCIDENT_STATE, EventKind.INCIDENT_CLOSED)
Edge = tuple[IncidentState | None, IncidentState, MovedBy]


def edge_of(event: Event) -> Edge | None:
    """The step that an event records; None: it records none."""
    if event.kind not in _KINDS or "to" not in event.detail:
        assert event.kind is not EventKind.INCIDENT_CLOSED, f"{event} does not say from where"
        return None
    before = IncidentState(event.detail["from"]) if "from" in event.detail else None
    by = MovedBy.OPERATOR if "who" in event.detail else MovedBy.HOLDFAST
    return before, IncidentState(event.detail["to"]), by


class Ways:
    """The state to which its events have brought each incident."""

    def __init__(self) -> None:
        self._at: dict[str, IncidentState] = {}

    def follow(self, event: Event) -> None:
        edge = edge_of(event)
        if edge is None or event.incident_id is None:
            return
        before, after, by = edge
        assert legal(before, after, by), f"not in the table: {event}"
        assert (event.kind is EventKind.INCIDENT_CLOSED) == (after is IncidentState.CLOSED), event
        known = self._at.get(event.incident_id, before)  # some tests store an incident without an event that opens it
        assert before is known, f"the incident was {known}: {event}"
        self._at[event.incident_id] = after

    def check(self, incident: Incident, *, opened: bool = False) -> None:
        """Check that the incident's state is the one its events lead to; ``opened``: they must record one."""
        said = self._at.get(incident.id)
        assert said is incident.state or (said is None and not opened), f"its events end at {said}: {incident}"
