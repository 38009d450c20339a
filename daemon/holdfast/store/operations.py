"""Operators' orders to Holdfast itself, each with its event."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, select

from holdfast.model.actions.action import Intent
from holdfast.model.actions.order_progress import may_be_withdrawn
from holdfast.model.errors import NotFound, Rejected
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentState, MovedBy
from holdfast.model.incidents.transitions import IllegalTransition, Moved, move, returned
from holdfast.model.operators.maintenance import Windows
from holdfast.model.operators.proposals import Answer, Said, answered, parse_id
from holdfast.model.operators.suppression import check_suppression
from holdfast.ports import Operation
from holdfast.store import nodes, queries, rows
from holdfast.store import tables as t
from holdfast.store.books import (
    MAINTENANCE,
    NODE_ORDERS,
    PAUSED,
    PAUSED_AT,
    budget_note,
    read_node_orders,
    read_windows,
    write_node_orders,
    write_windows,
)
from holdfast.store.codec import encode


def operate(connection: Connection, operation: Operation, at: datetime) -> None:
    """Raises NotFound for an unknown incident or brake, Rejected for a verb that does not fit its state."""
    verb = _VERBS.get(operation.verb)
    if verb is None:
        raise Rejected(f"unknown operation {operation.verb!r}: use one of {', '.join(sorted(_VERBS))}")
    verb(connection, operation, at)


def _pause(connection: Connection, operation: Operation, at: datetime) -> None:
    noted = {PAUSED: _who_and_why(operation), PAUSED_AT: at.isoformat()}
    rows.upsert(connection, t.notes, [{"key": key, "value": value} for key, value in noted.items()])
    rows.append(connection, [_event(operation, EventKind.PAUSED, at)])


def _resume(connection: Connection, operation: Operation, at: datetime) -> None:
    connection.execute(t.notes.delete().where(t.notes.c.key.in_((PAUSED, PAUSED_AT))))
    rows.append(connection, [_event(operation, EventKind.RESUMED, at)])


def _acknowledge(connection: Connection, operation: Operation, at: datetime) -> None:
    incident = _open_incident(connection, operation)
    note = f"taken over by {_who_and_why(operation)}"
    _write(connection, replace(incident, acknowledged=True, note=note))
    rows.append(connection, [_event(operation, EventKind.OPERATOR, at, incident)])


def _close(connection: Connection, operation: Operation, at: datetime) -> None:
    """Close an incident. Its findings of a lasting state stay live: the agent repeats them every ten minutes, which must not count as
    new. They count as new after they were cleared, in another boot, or at a higher severity; a repeated event always does."""
    incident = _move(connection, operation, at)
    if incident.open:
        return
    f = t.findings.c
    over = t.findings.update().where(f.incident_id == incident.id, f.live, ~f.sticky)
    connection.execute(over.values(live=False))


def _retry(connection: Connection, operation: Operation, at: datetime) -> None:
    _move(connection, operation, at)


def _move(connection: Connection, operation: Operation, at: datetime) -> Incident:
    before = _open_incident(connection, operation)
    incident, events = moved(before, operation, at, queries.intents(connection, before.id, _MOST_STEPS))
    _write(connection, incident)
    if not incident.open and leaves_out(before, operation):
        nodes.await_return(connection, incident.node, incident.id)
    rows.append(connection, events)
    return incident


def _release_brake(connection: Connection, operation: Operation, at: datetime) -> None:
    found = connection.execute(select(t.brakes.c.document).where(t.brakes.c.kind == operation.target)).scalar()
    brake = rows.brake_of(found, operation.target, at) if found else None
    if brake is None or brake.released_at is not None:
        raise NotFound(f"the brake {operation.target!r} is not tripped; {_tripped(connection, at)}")
    # The brake stays recorded: drains before its release no longer count for the next one.
    rows.upsert(connection, t.brakes, [{"kind": operation.target, "document": encode(replace(brake, released_at=at))}])
    rows.append(connection, [_event(operation, EventKind.BRAKE_RELEASED, at)])


def _tripped(connection: Connection, at: datetime) -> str:
    """Which brakes hold, so that a misspelt name does not read as if none did."""
    found = connection.execute(select(t.brakes.c.kind, t.brakes.c.document))
    brakes = {kind: rows.brake_of(document, kind, at) for kind, document in found}
    names = sorted(kind for kind, brake in brakes.items() if brake is not None and brake.released_at is None)
    return f"tripped: {', '.join(names)}" if names else "none is"


def _suppress(connection: Connection, operation: Operation, at: datetime) -> None:
    wanted = operation.suppression
    if wanted is None:
        raise Rejected("there is nothing to suppress")
    check_suppression(wanted)
    rows.upsert(connection, t.suppressions, [{"id": wanted.id, "document": encode(wanted)}])
    rows.append(connection, [_event(operation, EventKind.OPERATOR, at)])


def _unsuppress(connection: Connection, operation: Operation, at: datetime) -> None:
    gone = connection.execute(t.suppressions.delete().where(t.suppressions.c.id == operation.target))
    if not gone.rowcount:
        raise NotFound(f"there is no suppression {operation.target!r}")
    rows.append(connection, [_event(operation, EventKind.OPERATOR, at)])


def _maintain(connection: Connection, operation: Operation, at: datetime) -> None:
    if operation.window is None:
        raise Rejected("no maintenance window was given")
    _write_windows(connection, _windows(connection).at(at).begun(operation.window))
    rows.append(connection, [_event(operation, EventKind.OPERATOR, at)])


def _end_maintenance(connection: Connection, operation: Operation, at: datetime) -> None:
    _write_windows(connection, _windows(connection).at(at).ended(operation.nodes, at))
    rows.append(connection, [_event(operation, EventKind.OPERATOR, at)])


def _windows(connection: Connection) -> Windows:
    return read_windows(connection.execute(select(t.notes.c.value).where(t.notes.c.key == MAINTENANCE)).scalar())


def _write_windows(connection: Connection, windows: Windows) -> None:
    rows.upsert(connection, t.notes, [{"key": MAINTENANCE, "value": write_windows(windows)}])


def _order_node(connection: Connection, operation: Operation, at: datetime) -> None:
    if operation.order is None:
        raise Rejected("no order was given")
    orders = read_node_orders(connection.execute(select(t.notes.c.value).where(t.notes.c.key == NODE_ORDERS)).scalar())
    given = write_node_orders(orders.at(at).given(operation.order))
    rows.upsert(connection, t.notes, [{"key": NODE_ORDERS, "value": given}])
    rows.append(connection, [_event(operation, EventKind.OPERATOR, at)])


def _note_node(connection: Connection, operation: Operation, at: datetime) -> None:
    rows.append(connection, [_event(operation, EventKind.OPERATOR, at)])


def _extend_budget(connection: Connection, operation: Operation, at: datetime) -> None:
    wanted = operation.extension
    if wanted is None or wanted.until <= at:
        raise Rejected("there is nothing to extend the budget by")
    rows.upsert(connection, t.notes, [{"key": budget_note(wanted.kind), "value": json.dumps(encode(wanted))}])
    rows.append(connection, [_event(operation, EventKind.OPERATOR, at)])


def _answer(connection: Connection, operation: Operation, at: datetime) -> None:
    incident_id, _ = parse_id(operation.target)
    before = _open_incident(connection, replace(operation, target=incident_id))
    incident, events = proposal_answered(before, operation, at)
    _write(connection, incident)
    rows.append(connection, events)


def proposal_answered(incident: Incident, operation: Operation, at: datetime) -> Moved:
    """An open incident after an operator's answer to one of its proposals, with its event. Raises NotFound, Rejected."""
    if incident.acknowledged:
        raise Rejected(f"incident {incident.id} was taken over by an operator: Holdfast does nothing about it")
    said = Said(Answer(operation.verb), operation.who, operation.reason, at, operation.until)
    records, record = answered(incident.proposals, incident.id, parse_id(operation.target)[1], said)
    event = _event(operation, EventKind.OPERATOR, at, incident)
    detail = {**event.detail, "proposal": operation.target, "step": record.question.kind, "what": record.what}
    text = f"{event.text} ({record.what})"
    return replace(incident, proposals=records), [replace(event, text=text, detail=detail)]


_VERBS: Mapping[str, Callable[[Connection, Operation, datetime], None]] = {
    "pause": _pause,
    "resume": _resume,
    "acknowledge": _acknowledge,
    "close": _close,
    "retry": _retry,
    "release_brake": _release_brake,
    "suppress": _suppress,
    "unsuppress": _unsuppress,
    "maintain": _maintain,
    "end_maintenance": _end_maintenance,
    "extend_budget": _extend_budget,
    **{answer.value: _answer for answer in Answer},
    "drain_node": _order_node,
    "release_node": _order_node,
    "replace_node": _order_node,
    "note_node": _note_node,
}


def _open_incident(connection: Connection, operation: Operation) -> Incident:
    found = connection.execute(select(t.incidents).where(t.incidents.c.id == operation.target)).mappings().first()
    if found is None:
        raise NotFound(f"there is no incident {operation.target!r}")
    incident = rows.incident_of(found)
    if incident is None:
        raise Rejected(f"the store's row of incident {operation.target!r} cannot be read")
    if not incident.open:
        raise Rejected(f"incident {incident.id} is closed already")
    return incident


_MOST_STEPS = 1000
"""Newest steps of an incident that its end may depend on."""


def moved(incident: Incident, operation: Operation, at: datetime, intents: Iterable[Intent]) -> Moved:
    """An open incident after an operator's ``close`` or ``retry``, with its events. ``intents``: its own. Raises Rejected where its state
    does not allow it.

    The end of an order to replace a machine, of which nothing irreversible has begun, withdraws it: the node drained for it is tested and
    put back by Holdfast, and then the incident closes. A drain that it took over from an operator stays."""
    if operation.verb == "close" and incident.ordered is not None and may_be_withdrawn(incident, intents):
        order = incident.ordered
        why = f"withdrawn: close by {_who_and_why(operation)}"
        incident = replace(incident, order_dropped=why, order_withdrawn=True)
        if order.over is None:
            note = f"{why}; the node is put back into service once it has passed its tests"
            return replace(incident, note=note), [_event(operation, EventKind.OPERATOR, at, incident)]
    retry = operation.verb == "retry"
    if retry and incident.state is not IncidentState.AWAITING_HUMAN:
        raise Rejected(
            f"incident {incident.id} is {incident.state}: only one that waits for an operator (awaiting_human) can be retried"
        )
    state = IncidentState.REPAIRING if retry else IncidentState.CLOSED
    said = _event(operation, EventKind.OPERATOR, at, incident)
    note = f"{operation.verb} by {_who_and_why(operation)}"
    try:
        after, events = move(incident, state, at, note, text=said.text, detail=said.detail, by=MovedBy.OPERATOR)
    except IllegalTransition as error:
        raise Rejected(f"incident {incident.id} is {incident.state}: it cannot become {state} now") from error
    back = (
        [returned(incident.node, incident.id, at, by_others=True)]
        if operation.in_service and incident.took_node_out and not retry
        else []
    )
    return after, [said, *back, *events]


def leaves_out(incident: Incident, operation: Operation) -> bool:
    """Whether an operator's order closes the incident while its node is out of service."""
    return operation.verb == "close" and incident.took_node_out and not operation.in_service


def _write(connection: Connection, incident: Incident) -> None:
    """Store an incident with a higher revision, so that a change made from an older snapshot is refused."""
    values = rows.incident_row(replace(incident, operated=incident.operated + 1))
    connection.execute(t.incidents.update().where(t.incidents.c.id == incident.id).values(**values))


def _event(operation: Operation, kind: EventKind, at: datetime, incident: Incident | None = None) -> Event:
    return Event(
        at=at,
        kind=kind,
        incident_id=incident.id if incident else operation.incident_id or None,
        node=incident.node if incident else operation.node or None,
        text=f"{operation.verb} {operation.target}".strip() + f" by {_who_and_why(operation)}",
        detail={
            "verb": operation.verb,
            "who": operation.who,
            "target": operation.target,
            "reason": operation.reason,
        }
        | ({"ticket": operation.ticket} if operation.ticket else {}),
    )


def _who_and_why(operation: Operation) -> str:
    ticket = f" (ticket {operation.ticket})" if operation.ticket else ""
    return (f"{operation.who}: {operation.reason}" if operation.reason else operation.who) + ticket
