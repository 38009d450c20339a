"""States of an intent: planned, started, settled; and orders for agents."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from holdfast.model.actions.action import Intent, IntentState, SendOrder, action_event
from holdfast.model.actions.held_orders import held
from holdfast.model.agents.report import OrderOutcome, Report
from holdfast.model.errors import LeaderFencedOff, NotFound, Rejected
from holdfast.model.event import EventKind
from holdfast.ports import IntentOutcome
from holdfast.store import evidence, nodes, queries, rows
from holdfast.store import tables as t
from holdfast.store.books import PAUSED
from holdfast.store.codec import encode

log = logging.getLogger(__name__)

_EVENT_OF = {
    IntentState.DONE: EventKind.ACTION_DONE,
    IntentState.FAILED: EventKind.ACTION_FAILED,
    IntentState.REFUSED: EventKind.ACTION_REFUSED,
    IntentState.WITHHELD: EventKind.ACTION_WITHHELD,
}


def check_fence(connection: Connection, fence: int) -> None:
    """Check the fence inside the transaction that it guards. Raises LeaderFencedOff unless the lease has exactly this fence.

    A lower fence in the store means that the store was replaced without the leader's knowledge: writing must stop then too."""
    held = connection.execute(select(t.lease.c.fence, t.lease.c.holder).with_for_update()).first()
    current = held.fence if held else 0
    if current != fence:
        raise LeaderFencedOff(
            f"fence {fence} is not the lease's fence: {held.holder if held else 'nobody'} holds fence {current}"
        )


def start(connection: Connection, key: str, fence: int, at: datetime) -> None:
    """Mark an intent as started. A repetition changes nothing: the actual state outside is checked before a step is repeated."""
    check_fence(connection, fence)
    intent = _find(connection, key)
    if intent.settled:
        raise Rejected(f"intent {key} is {intent.state} already")
    if intent.state is IntentState.PLANNED:
        _mark_started(connection, intent, at)


def finish(connection: Connection, key: str, fence: int, outcome: IntentOutcome, at: datetime) -> None:
    check_fence(connection, fence)
    intent = _find(connection, key)
    if outcome.state not in _EVENT_OF:
        raise Rejected(f"intent {key} cannot end as {outcome.state}")
    if intent.settled:
        if intent.state is not outcome.state:
            raise Rejected(f"intent {key} is {intent.state} already")
        return
    settle(connection, intent, outcome, at)


def settle_order(connection: Connection, report: Report, said: OrderOutcome) -> None:
    """Settle an order with its outcome. Only its agent can do so, once; anything else is only logged."""
    intent = _look_up(connection, said.order_id)
    action = intent.action if intent else None
    if intent is None or not isinstance(action, SendOrder):
        log.warning("event=order_outcome_ignored node=%s order=%s reason=unknown", report.node, said.order_id)
        return
    if (action.node, action.instance_id) != (report.node, report.instance_id):
        log.warning("event=order_outcome_ignored node=%s order=%s reason=another_agent", report.node, said.order_id)
        return
    if intent.settled:
        log.info("event=order_outcome_ignored node=%s order=%s reason=settled", report.node, said.order_id)
        return
    evidence.keep(connection, intent.incident_id, action.node, said)
    state = IntentState.DONE if said.ok else IntentState.FAILED
    settle(connection, intent, IntentOutcome(state=state, text=said.summary, result=said.detail), said.at)


def orders_for(
    connection: Connection, node: str, instance_id: str, boot_id: str, now: datetime, *, observes: bool
) -> list[Intent]:
    """Orders that are neither settled nor expired nor held, in the order of planning."""
    found = connection.execute(
        select(t.intents)
        .where(~t.intents.c.settled, t.intents.c.kind == SendOrder.__name__, t.intents.c.node == node)
        .order_by(t.intents.c.planned_at, t.intents.c.position, t.intents.c.key)
    ).mappings()
    intents = map(rows.intent_of, found)
    meant = [i for i in intents if i is not None and _meant_for(i, instance_id, boot_id, now)]
    return [i for i in meant if not _held(connection, i, observes=observes)]


def _held(connection: Connection, intent: Intent, *, observes: bool) -> bool:
    paused = connection.scalar(select(t.notes.c.value).where(t.notes.c.key == PAUSED)) is not None
    incident = queries.incident(connection, intent.incident_id)
    return isinstance(intent.action, SendOrder) and held(intent.action, incident, paused=paused, observes=observes)


def deliver(
    connection: Connection, node: str, instance_id: str, boot_id: str, now: datetime, *, observes: bool
) -> tuple[Intent, ...]:
    """As :func:`orders_for`; planned ones become started."""
    found = orders_for(connection, node, instance_id, boot_id, now, observes=observes)
    return tuple(_mark_started(connection, i, now) if i.state is IntentState.PLANNED else i for i in found)


def _meant_for(intent: Intent, instance_id: str, boot_id: str, now: datetime) -> bool:
    order = intent.action
    return (
        isinstance(order, SendOrder)
        and order.instance_id == instance_id
        and order.boot_id in ("", boot_id)
        and now < intent.planned_at + timedelta(seconds=order.expires_s)
    )


def _mark_started(connection: Connection, intent: Intent, at: datetime) -> Intent:
    started = replace(intent, state=IntentState.STARTED, started_at=at)
    _write(connection, started)
    rows.append(connection, [action_event(started, EventKind.ACTION_STARTED, at, intent.reason)])
    return started


def settle(connection: Connection, intent: Intent, outcome: IntentOutcome, at: datetime) -> None:
    """Settle an intent with its result and event."""
    settled = replace(
        intent,
        state=outcome.state,
        finished_at=at,
        retryable=outcome.retryable,
        outcome=outcome.text,
        result=dict(outcome.result),
    )
    _write(connection, settled)
    rows.append(connection, [action_event(settled, _EVENT_OF[outcome.state], at, outcome.text)])
    if outcome.mark is not None:
        rows.upsert(connection, t.marks, [{"node": outcome.mark.node, "document": encode(outcome.mark)}])
    if outcome.drop_mark is not None:
        connection.execute(t.marks.delete().where(t.marks.c.node == outcome.drop_mark))
    if outcome.node is not None:
        nodes.put(connection, [outcome.node], at)


def _write(connection: Connection, intent: Intent) -> None:
    values = rows.intent_row(intent)
    connection.execute(t.intents.update().where(t.intents.c.key == intent.key).values(**values))


def _look_up(connection: Connection, key: str) -> Intent | None:
    row = connection.execute(select(t.intents).where(t.intents.c.key == key)).mappings().first()
    return rows.intent_of(row) if row else None


def _find(connection: Connection, key: str) -> Intent:
    intent = _look_up(connection, key)
    if intent is None:
        raise NotFound(f"there is no intent {key}")
    return intent
