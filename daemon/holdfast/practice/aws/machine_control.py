"""Control verbs for events of single machines, capacity reservations and groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.practice.aws.world import CapacityReservation, ScheduledEvent

if TYPE_CHECKING:
    from holdfast.practice.aws.emulator import Emulator

CHECKS = ("system", "instance", "ebs")
FORGOTTEN = 10**9
"""Number of describe calls in which an instance that EC2 no longer knows is not shown."""


def _impair(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    which = _one_of(data.get("which", "system"), CHECKS, "which")
    since = datetime.fromisoformat(data["since"]) if data.get("since") else datetime.now(UTC)
    emulator.world.impaired.setdefault(data["instance_id"], {})[which] = since
    return {}


def _event(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    """Plan an event, or change the description of a planned one (``[Completed] …``)."""
    events = emulator.world.events.setdefault(data["instance_id"], [])
    known = next((event for event in events if event.event_id == data.get("event_id")), None)
    if known is not None:
        events[events.index(known)] = replace(known, description=data["description"])
        return {"event_id": known.event_id}
    event_id = data.get("event_id") or f"instance-event-{len(events):017x}"
    at = datetime.fromisoformat(data["not_before"])
    events.append(ScheduledEvent(event_id, data["code"], data["description"], at))
    return {"event_id": event_id}


def _interrupt(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    emulator.world.interrupted[data["instance_id"]] = datetime.fromisoformat(data["at"])
    return {}


def _stuck(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    emulator.world.stuck.add(data["instance_id"])
    return {}


def _forget(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    emulator.world.hidden[data["instance_id"]] = FORGOTTEN
    return {}


def _moves(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    return emulator.world.moves


def _reservation(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    ends_at = datetime.fromisoformat(data["ends_at"]) if data.get("ends_at") else None
    kind = _one_of(data.get("kind", "default"), ("default", "capacity-block"), "kind")
    made = CapacityReservation(
        data["id"], data["instance_type"], int(data["total"]), kind, ends_at, data.get("state", "active")
    )
    emulator.world.reservations[made.id] = made
    return {}


def _group_capacity(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    groups = emulator.world.groups_without_capacity
    (groups.discard if data["available"] else groups.add)(data["group"])
    return {}


def _ended_launch(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    emulator.world.ended_launch_is_error = bool(data["is_error"])
    return {}


def _one_of(value: Any, valid: tuple[str, ...], name: str) -> str:
    if value not in valid:
        raise ValueError(f"{name} is {value!r}, not one of: {', '.join(valid)}")
    return str(value)


MACHINE_VERBS: Mapping[str, Callable[[Emulator, Mapping[str, Any]], Any]] = {
    "POST impair": _impair,
    "POST event": _event,
    "POST interrupt": _interrupt,
    "POST stuck": _stuck,
    "POST forget": _forget,
    "GET moves": _moves,
    "POST reservation": _reservation,
    "POST group_capacity": _group_capacity,
    "POST ended_launch": _ended_launch,
}
