"""Sends mails to the owners of jobs, in a separate queue: a slow mail server holds up no message to operators.

As with :mod:`holdfast.actor.notice_desk`, what is to be sent is in the store before it is sent."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from holdfast.actor.notice_desk import OUTCOMES, delivery_events, matter_of, notice_event, try_address
from holdfast.decisions.notices import outbox, owners
from holdfast.model.actions.action import Intent, IntentState, Notify
from holdfast.model.book import Book
from holdfast.model.errors import LeaderFencedOff, OutsideError, Stale, Unavailable
from holdfast.model.event import Event, EventKind
from holdfast.model.notice import Matter, Message
from holdfast.model.owner_mail import OWNERS_NOTE, OwnerMails
from holdfast.ports import Address, Clock, IntentOutcome, Store

log = logging.getLogger(__name__)

DELIVER_S = 10.0
"""How long one turn delivers at most."""
LOOK_S = 5.0
"""How often it is checked whether a mail is due."""
_ADDRESSES_KEPT = 500
_TOO_MANY = "too many notices to owners wait for a mail already"
_STATE = TypeAdapter(OwnerMails)


@dataclass
class OwnerDesk:
    """For one thread at a time. Raises as NoticeDesk."""

    store: Store
    clock: Clock
    address: Callable[[str], Address | None] | None = None
    """Address of a user; None: the name is no part of one. None in its place: none is configured, and nothing is sent."""
    pause_s: float = 900.0
    cluster: str = ""
    before_step: Callable[[Intent, str], None] = lambda _intent, _moment: None
    _state: OwnerMails | None = None
    _text: str | None = None
    _look_at: datetime | None = None
    _known: OrderedDict[str, Address | None] = field(default_factory=OrderedDict)

    def due(self) -> bool:
        """Whether :meth:`turn` has anything to do without a new matter."""
        return self.address is not None and (self._look_at is None or self.clock.now() >= self._look_at)

    def turn(self, intents: Sequence[Intent], fence: int) -> None:
        """Take these planned notices, then send what is due."""
        for intent in intents:
            self.before_step(intent, "planned")
        try:
            given_up = self._take(intents, fence)
            for intent in intents:
                self._settle(intent, intent.key in given_up, fence)
            self._deliver(fence)
        except (LeaderFencedOff, OutsideError):
            self._state = None  # as another process may have written it meanwhile
            raise

    def _take(self, intents: Sequence[Intent], fence: int) -> frozenset[str]:
        """Keys of those that are given up."""
        now = self.clock.now()
        self._look_at = now + timedelta(seconds=LOOK_S)
        state, given_up, events = self._read(), set[str](), list[Event]()
        for intent in intents if self.address is not None else ():
            assert isinstance(intent.action, Notify)  # noqa: S101 - the actor hands in no other
            user, matter = intent.action.user, matter_of(intent, Book())
            state, taken = owners.take(state, user, matter, now)
            if isinstance(taken, owners.TooManyWait):
                given_up.add(intent.key)
                events.append(_given_up(user, matter, now))
        state, messages = owners.make(state, self.pause_s, now, self.cluster)
        events += (
            notice_event(EventKind.NOTICE_MADE, m, now, m.subject, addresses=list(self._waits_of(state, m)))
            for m in messages
        )
        self._write(state, tuple(events), fence)
        return frozenset(given_up)

    @staticmethod
    def _waits_of(state: OwnerMails, message: Message) -> tuple[str, ...]:
        return tuple(f"owner {w.address}" for p in state.mails.outbox if p.message.id == message.id for w in p.waits)

    def _settle(self, intent: Intent, given_up: bool, fence: int) -> None:
        if intent.state is IntentState.PLANNED:
            self.store.start_intent(intent.key, fence, self.clock.now())
        self.before_step(intent, "started")
        self.before_step(intent, "acted")
        said = "taken for delivery" if not given_up else f"not sent: {_TOO_MANY}"
        if self.address is None:
            said = "not sent: [notify.owners] names no mail server"
        self.store.finish_intent(intent.key, fence, IntentOutcome(IntentState.DONE, said), self.clock.now())
        self.before_step(intent, "finished")

    def _deliver(self, fence: int) -> None:
        end_s = self.clock.monotonic_s() + DELIVER_S
        for message, waiting in owners.due(self._read(), self.clock.now()):
            if self.clock.monotonic_s() > end_s:
                return
            user = waiting.address
            error = self._sent(user, message)
            now, state = self.clock.now(), self._read()
            mails, result = outbox.answered(state.mails, message.id, user, error, now)
            outcome = OUTCOMES[type(result)]
            mails = outbox.counted(mails, message.level.value, outcome)
            events = delivery_events(message, f"owner {user}", result, waiting.error, now)
            self._write(replace(state, mails=mails), events, fence)
            log.info("event=owner_mail_%s message=%s user=%s attempts=%d", outcome, message.id, user, result.attempts)

    def _sent(self, user: str, message: Message) -> str | None:
        """Why the mail was not taken; None: it was."""
        to = self._address_of(user)
        return try_address(to, message) if to is not None else "no mail address can be made of this user's name"

    def _address_of(self, user: str) -> Address | None:
        if user not in self._known:
            self._known[user] = self.address(user) if self.address is not None else None
            if len(self._known) > _ADDRESSES_KEPT:
                self._known.popitem(last=False)
        return self._known[user]

    # The record

    def _read(self) -> OwnerMails:
        if self._state is None:
            self._text = self.store.note(OWNERS_NOTE)
            self._state = _state_of(self._text)
        return self._state

    def _write(self, state: OwnerMails, events: tuple[Event, ...], fence: int) -> None:
        if state == self._state and not events:
            return
        text = _STATE.dump_json(state).decode()
        try:
            self.store.record_once(OWNERS_NOTE, self._text, text, events, fence)
        except (Stale, Unavailable):
            self._state = None
            raise
        self._state, self._text = state, text


def _given_up(user: str, matter: Matter, now: datetime) -> Event:
    """Event of a matter that gets no mail."""
    log.warning("event=owner_mail_given_up user=%s subject=%r reason=%r", user, matter.subject, _TOO_MANY)
    message = Message("", now, matter.level, matter.topic, matter.subject, "", matters=(matter,))
    text, to = f"{matter.subject}: no mail to its owner {user}: {_TOO_MANY}", f"owner {user}"
    return notice_event(
        EventKind.NOTICE_FAILED, message, now, text, address=to, attempts=0, given_up=True, error=_TOO_MANY
    )


def _state_of(text: str | None) -> OwnerMails:
    """A note that cannot be read counts as none: a mail may then be sent a second time."""
    try:
        return _STATE.validate_json(text) if text is not None else OwnerMails()
    except ValidationError as error:
        log.warning("event=owner_notices_unreadable errors=%d effect='mails may be repeated'", error.error_count())
        return OwnerMails()
