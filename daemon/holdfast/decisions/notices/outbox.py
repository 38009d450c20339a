"""Delivery of messages: which address is tried now, and what follows from its answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.model.notice import Message, NoticeState, PendingAddress, PendingMessage
from holdfast.model.pauses import doubling_s

FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 900.0
"""An address that did not take a message is tried again after these pauses, each twice as long as the one before."""
MOST_PENDING = 200
"""Most messages that wait for an address; the oldest are dropped first."""
GIVE_UP_S = 86_400.0
"""A message that no try delivered for this long is given up."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The address took the message."""

    attempts: int


@dataclass(frozen=True, slots=True)
class NotDelivered:
    """It did not; it is tried again."""

    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """It did not take it for a day."""

    attempts: int
    error: str


DeliveryResult = Delivered | NotDelivered | GivenUp


def post(state: NoticeState, message: Message, ready: Mapping[str, datetime]) -> NoticeState:
    """Put a message into the outbox. ``ready``: address → when it may be delivered there."""
    if not ready:
        return state
    waits = tuple(PendingAddress(name, at) for name, at in ready.items())
    return replace(state, outbox=(*state.outbox, PendingMessage(message, waits))[-MOST_PENDING:])


def due(state: NoticeState, now: datetime) -> tuple[tuple[Message, PendingAddress], ...]:
    """Deliveries to be tried now, the oldest message first."""
    return tuple((each.message, w) for each in state.outbox for w in each.waits if w.next_at <= now)


def next_at(state: NoticeState) -> datetime | None:
    """When the next delivery is to be tried; None: none is pending."""
    return min((w.next_at for each in state.outbox for w in each.waits), default=None)


def answered(
    state: NoticeState, message_id: str, address: str, error: str | None, now: datetime
) -> tuple[NoticeState, DeliveryResult]:
    """The state after one try. ``error``: None: the address took it. Raises KeyError for a delivery that is not waited for."""
    pending = next((each for each in state.outbox if each.message.id == message_id), None)
    waiting = next((w for w in pending.waits if w.address == address), None) if pending is not None else None
    if pending is None or waiting is None:
        raise KeyError(f"{message_id} to {address}")
    tried = waiting.attempts + 1
    if error is None:
        return _without(state, pending, address), Delivered(tried)
    if now - pending.message.at >= timedelta(seconds=GIVE_UP_S):
        return _without(state, pending, address), GivenUp(tried, error)
    pause_s = doubling_s(FIRST_PAUSE_S, tried, LONGEST_PAUSE_S)
    again = replace(waiting, attempts=tried, error=error, next_at=now + timedelta(seconds=pause_s))
    waits = tuple(again if w.address == address else w for w in pending.waits)
    return _replaced(state, pending, replace(pending, waits=waits)), NotDelivered(tried, error)


def dropped(state: NoticeState, known: Iterable[str]) -> NoticeState:
    """The state without deliveries to addresses that are no longer configured."""
    names = frozenset(known)
    for pending in state.outbox:
        waits = tuple(w for w in pending.waits if w.address in names)
        if waits != pending.waits:
            state = _replaced(state, pending, replace(pending, waits=waits))
    return state


def _without(state: NoticeState, pending: PendingMessage, address: str) -> NoticeState:
    return _replaced(state, pending, replace(pending, waits=tuple(w for w in pending.waits if w.address != address)))


def _replaced(state: NoticeState, pending: PendingMessage, by: PendingMessage) -> NoticeState:
    outbox = (by if each is pending else each for each in state.outbox)
    return replace(state, outbox=tuple(each for each in outbox if each.waits))


def counted(state: NoticeState, level: str, outcome: str) -> NoticeState:
    """The state with one more of this outcome."""
    key = f"{level}/{outcome}"
    return replace(state, totals={**state.totals, key: state.totals.get(key, 0) + 1})
