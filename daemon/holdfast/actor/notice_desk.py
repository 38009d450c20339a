"""Sends notices to people: takes the planned ones, groups them, delivers them, records each delivery.

What is to be sent is in the store before it is sent, so a restart loses no notice; one that was delivered right before a crash may arrive
a second time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta, tzinfo

from holdfast import unexpected
from holdfast.condition_note import CONDITIONS, read_conditions
from holdfast.decisions.notices import healed, outbox, over, plan, texts
from holdfast.decisions.notices.routes import RouteRule, ready_at, takes
from holdfast.model.actions.action import Intent, IntentState, Notify
from holdfast.model.book import Book
from holdfast.model.errors import LeaderFencedOff, OutsideError, Stale
from holdfast.model.event import Event, EventKind
from holdfast.model.ids import UPKEEP
from holdfast.model.notice import Matter, Message, NoticeLevel, NoticePolicy, NoticeState, Topic
from holdfast.model.parts import NotifierState
from holdfast.notice_note import NOTE, read_state, write_state
from holdfast.ports import Address, Clock, IntentOutcome, Store

log = logging.getLogger(__name__)

PART = "notices"
"""Part of this process (:mod:`holdfast.unexpected`)."""
LOOK_S = 5.0
"""How often it is checked whether a matter is over, healed or to be sent."""
DELIVER_S = 10.0
"""How long one turn delivers at most: new notices are taken in between, whatever an address does."""
KEEP_S = 60.0
"""How often addresses that keep alerts open are refreshed."""


@dataclass(frozen=True, slots=True)
class Place:
    """One address and what it takes."""

    address: Address
    rule: RouteRule = field(default_factory=RouteRule)


@dataclass(frozen=True, slots=True)
class DigestTime:
    """When the daily summary is made."""

    at: time
    zone: tzinfo


def partitions_unknown(_name: str) -> frozenset[str] | None:
    """No node's partitions are known."""
    return None


@dataclass
class NoticeDesk:
    """For one thread at a time. Raises LeaderFencedOff, Unavailable: the next call begins with the state that the store has."""

    store: Store
    clock: Clock
    places: Sequence[Place] = ()
    policy: NoticePolicy = field(default_factory=NoticePolicy)
    links: texts.NoticeLinks = field(default_factory=texts.NoticeLinks)
    digest: DigestTime | None = None
    partitions: Callable[[str], frozenset[str] | None] = partitions_unknown
    """Partitions of a node; None: not known."""
    before_step: Callable[[Intent, str], None] = lambda _intent, _moment: None
    """As of :class:`holdfast.actor.actor.Actor`."""
    problem: str = ""
    """What is wrong with the settings, known before the first message."""
    _state: NoticeState | None = None
    _text: str | None = None
    _look_at: datetime | None = None
    _keep_at: datetime | None = None
    _kept: dict[str, str] = field(default_factory=dict)
    """Address → why its open alerts were not refreshed."""
    _failing_since: datetime | None = None

    def due(self) -> bool:
        """Whether :meth:`turn` has anything to do without a new notice."""
        now = self.clock.now()
        delivery = outbox.next_at(self._state) if self._state is not None else None
        return self._look_at is None or now >= self._look_at or (delivery is not None and now >= delivery)

    def turn(self, intents: Sequence[Intent], fence: int) -> None:
        """Take these planned notices, then send what is due. Each is settled once it is in the store's record of notices."""
        for intent in intents:
            self.before_step(intent, "planned")
        try:
            verdicts = self._take(intents, fence)
            for intent in intents:
                self._settle(intent, verdicts[intent.key], fence)
            self._deliver(fence)
            self._keep()
        except (LeaderFencedOff, OutsideError):
            self._state = None  # as another process may have written it meanwhile
            raise

    def state(self) -> NotifierState:
        """How delivery went last. Safe to call from any thread."""
        addresses, known = len(self.places), self._state
        waits = [w for p in known.outbox for w in p.waits if w.attempts] if known is not None else []
        errors = dict.fromkeys([*(f"{w.address}: {w.error}" for w in waits), *self._kept.values()])
        error = "; ".join(errors) or self.problem
        if not error:
            self._failing_since = None
            return NotifierState(addresses)
        self._failing_since = self._failing_since or self.clock.now()
        return NotifierState(addresses, error[:300], self._failing_since)

    # Taking and grouping

    def _take(self, intents: Sequence[Intent], fence: int) -> Mapping[str, plan.TakenAs]:
        now = self.clock.now()
        before = self._read()
        self._look_at = now + timedelta(seconds=LOOK_S)
        book = self.store.load_book(now) if intents or self._needs_book(before) else Book()
        state, verdicts = before, dict[str, plan.TakenAs]()
        for intent in intents:
            state, verdicts[intent.key] = plan.take(state, matter_of(intent, book), self.policy, now)
        state = self._followed(state, book, now)
        writer = texts.MessageWriter(self.links, book)
        state, messages = plan.make(state, self.policy, now, writer)
        events = []
        for message in messages:
            log.warning("event=notify subject=%r body=%r level=%s", message.subject, message.body, message.level.value)
            state, event = self._post(state, message, now)
            events.append(event)
        self._write(state, tuple(events), fence)
        return verdicts

    def _needs_book(self, state: NoticeState) -> bool:
        return bool(state.open or state.waiting or self._wants(NoticeLevel.HEALED) or self._wants(NoticeLevel.DIGEST))

    def _wants(self, level: NoticeLevel) -> bool:
        return any(level in place.rule.levels for place in self.places)

    def _followed(self, state: NoticeState, book: Book, now: datetime) -> NoticeState:
        """What is over, open for long, healed, and the daily summary."""
        about_conditions = any(each.condition for each in (*(o.matter for o in state.open), *state.waiting))
        conditions = read_conditions(self.store.note(CONDITIONS)) if about_conditions else None

        def is_over(matter: Matter) -> bool | None:
            return over.is_over(book, matter, conditions)

        if state.open or state.waiting:
            state = plan.remind(plan.end(state, is_over, now), is_over, self.policy, now)
        state = outbox.dropped(state, (place.address.name for place in self.places))
        return self._digested(self._healed(state, book, now), book, now)

    def _healed(self, state: NoticeState, book: Book, now: datetime) -> NoticeState:
        if not self._wants(NoticeLevel.HEALED):
            return state
        since = state.healed_until
        if since is None:
            return replace(state, healed_until=now)
        for matter in healed.healed(book, since):
            state, _ = plan.take(state, matter, self.policy, now)
            since = max(since, matter.since or since)
        return replace(state, healed_until=since)

    def _digested(self, state: NoticeState, book: Book, now: datetime) -> NoticeState:
        digest = self.digest
        if digest is None or not self._wants(NoticeLevel.DIGEST):
            return state
        if state.digest_at is None:
            return replace(state, digest_at=now)
        if not healed.digest_due(digest.at, digest.zone, state.digest_at, now):
            return state
        since = now - healed.DAY
        opened = self.store.incidents(since=since, limit=1000)
        found = {i.id: i for i in (*opened, *book.open_incidents())}
        day = healed.DigestDay(now, tuple(found.values()), self.store.recoveries(since=since), state, book)
        state, _ = plan.take(state, healed.digest(day), self.policy, now)
        return replace(state, digest_at=now)

    def _post(self, state: NoticeState, message: Message, now: datetime) -> tuple[NoticeState, Event]:
        where = {name: self.partitions(name) for name in sorted(message.nodes)} if self._by_partition() else {}
        ready = {p.address.name: ready_at(p.rule, message, now) for p in self.places if takes(p.rule, message, where)}
        state = outbox.counted(outbox.post(state, message, ready), message.level.value, "made")
        return state, notice_event(EventKind.NOTICE_MADE, message, now, message.subject, addresses=sorted(ready))

    def _by_partition(self) -> bool:
        return any(place.rule.partitions for place in self.places)

    def _settle(self, intent: Intent, verdict: plan.TakenAs, fence: int) -> None:
        if intent.state is IntentState.PLANNED:
            self.store.start_intent(intent.key, fence, self.clock.now())
        self.before_step(intent, "started")
        self.before_step(intent, "acted")
        self.store.finish_intent(intent.key, fence, IntentOutcome(IntentState.DONE, _said(verdict)), self.clock.now())
        self.before_step(intent, "finished")

    # Delivery

    def _deliver(self, fence: int) -> None:
        by_name = {place.address.name: place.address for place in self.places}
        end_s = self.clock.monotonic_s() + DELIVER_S
        for message, waiting in outbox.due(self._read(), self.clock.now()):
            if self.clock.monotonic_s() > end_s:
                return
            error = try_address(by_name[waiting.address], message)
            now = self.clock.now()
            state, result = outbox.answered(self._read(), message.id, waiting.address, error, now)
            events = delivery_events(message, waiting.address, result, waiting.error, now)
            level = message.level.value
            outcome = OUTCOMES[type(result)]
            self._write(outbox.counted(state, level, outcome), events, fence)
            log.info(
                "event=notice_%s message=%s address=%s attempts=%d",
                outcome,
                message.id,
                waiting.address,
                result.attempts,
            )

    def _keep(self) -> None:
        """Refresh the alerts of addresses that would otherwise consider them over."""
        now = self.clock.now()
        if self._keep_at is not None and now < self._keep_at:
            return
        self._keep_at = now + timedelta(seconds=KEEP_S)
        matters, kept = [each.matter for each in self._read().open], dict(self._kept)
        for place in self.places:
            mine = [m for m in matters if takes(place.rule, _as_message(m, now), self._partitions_of(m))]
            try:
                place.address.keep(mine)
                kept.pop(place.address.name, None)
            except OutsideError as error:
                kept[place.address.name] = f"{place.address.name}: {error}"
        self._kept = kept

    def _partitions_of(self, matter: Matter) -> Mapping[str, frozenset[str] | None]:
        return {name: self.partitions(name) for name in matter.nodes} if self._by_partition() else {}

    # The record

    def _read(self) -> NoticeState:
        if self._state is None:
            self._text = self.store.note(NOTE)
            self._state = read_state(self._text)
        return self._state

    def _write(self, state: NoticeState, events: tuple[Event, ...], fence: int) -> None:
        if state == self._state and not events:
            return
        text = write_state(state)
        try:
            self.store.record_once(NOTE, self._text, text, events, fence)
        except Stale:
            self._state = None
            raise
        self._state, self._text = state, text


OUTCOMES = {outbox.Delivered: "delivered", outbox.NotDelivered: "failed", outbox.GivenUp: "given_up"}
"""Word for what came of a try, in totals and the log."""


def matter_of(intent: Intent, book: Book) -> Matter:
    """What a planned notice is about."""
    action = intent.action
    assert isinstance(action, Notify)  # noqa: S101 - the actor hands in no other
    upkeep = intent.incident_id == UPKEEP
    incident = book.incidents.get(intent.incident_id)
    nodes = action.nodes or ((incident.node,) if incident is not None and incident.node else ())
    alone = upkeep or action.topic is Topic.BRAKE
    target = intent.step.target if alone else f"{intent.incident_id}:{intent.step.target}"
    return Matter(
        action.topic,
        target,
        action.subject,
        action.level,
        action.body,
        "" if upkeep else intent.incident_id,
        nodes,
        intent.planned_at,
        action.condition,
    )


def _said(verdict: plan.TakenAs) -> str:
    match verdict:
        case plan.Queued():
            return "taken for delivery"
        case plan.AlreadyTold(""):
            return "waits for the next message already"
        case plan.AlreadyTold(number):
            return f"sent already in message {number}"


def try_address(address: Address, message: Message) -> str | None:
    """Why the address did not take it; None: it did."""
    try:
        address.send(message)
    except OutsideError as error:
        return str(error)[:300] or type(error).__name__
    except Exception as error:  # noqa: BLE001 - one address must not cost the others their message
        unexpected.failed(PART, error, address.name)
        return type(error).__name__  # its text may hold a secret
    return None


def delivery_events(
    message: Message, address: str, result: outbox.DeliveryResult, before: str, now: datetime
) -> tuple[Event, ...]:
    """Events of one try: a delivery, a first failure, and the end of all tries."""
    match result:
        case outbox.Delivered(attempts):
            text = f"{message.subject}: {address} took it" + (f" at attempt {attempts}" if attempts > 1 else "")
            kind, error = EventKind.NOTICE_DELIVERED, ""
        case outbox.GivenUp(attempts, error):
            text, kind = f"{message.subject}: {address} did not take it for a day: {error}", EventKind.NOTICE_FAILED
        case outbox.NotDelivered(attempts, error):
            if before:
                return ()
            text, kind = f"{message.subject}: {address} did not take it: {error}", EventKind.NOTICE_FAILED
    given_up = isinstance(result, outbox.GivenUp)
    return (
        notice_event(
            kind, message, now, text, address=address, attempts=result.attempts, given_up=given_up, error=error
        ),
    )


def notice_event(kind: EventKind, message: Message, at: datetime, text: str, **detail: object) -> Event:
    """Event of the record about this message."""
    number = message.matters[0].incident_id if len(message.matters) == 1 else ""
    node = next(iter(message.nodes)) if len(message.nodes) == 1 else None
    told = {
        "message": message.id,
        "level": message.level.value,
        "topic": message.topic.value,
        "subject": message.subject,
        "stands_for": message.stands_for,
        "over": message.over,
    }
    return Event(at, kind, number or None, node, text=text, detail={**told, **detail})


def _as_message(matter: Matter, now: datetime) -> Message:
    return Message("", now, matter.level, matter.topic, matter.subject, "", matters=(matter,))
