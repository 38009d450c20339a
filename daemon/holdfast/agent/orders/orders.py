"""Orders from the controller: fetched by a long poll, recorded before they are carried out, carried out at most once."""

from __future__ import annotations

import base64
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.agent.sending.client import ControllerClient
from holdfast.agent.sending.memory import AgentMemory
from holdfast.agent.sending.outbox import OutboxItem
from holdfast.agent.sending.sender import SenderIdentity, backoff_s
from holdfast.bucket import Bucket
from holdfast.model.actions.action import Verb
from holdfast.model.agents.answers import REFUSED, Refusal
from holdfast.model.errors import HoldfastError, Unavailable

log = logging.getLogger(__name__)

WAIT_S = 25.0
_AGAIN_S = 30.0
"""An outcome is sent again if the controller still hands out the order this long after it was reported."""
_KEPT_S = 7 * 24 * 3600.0
_ANSWERED_KEPT = 4096
_AT_A_TIME = 4
"""Orders carried out at a time, separately for orders about users' jobs and for all others; the limits below apply in the same way."""
ABOUT_JOBS = frozenset(v.value for v in (Verb.OUTPUT, Verb.SURVEY, Verb.STACKS, Verb.SAVE, Verb.LEAVE, Verb.JOB_NOTE))
"""Verbs whose duration a user can influence: they have separate slots, so that no user delays the orders that repair the node."""
_MOST_OPEN = 64
"""Maximum number of orders carried out or waiting. The controller hands out the others again, so they are taken later."""
_LONGEST_S = 366 * 24 * 3600.0
_LONGEST_WORD = 256
_LOGGED_EVERY_S = 60.0
_MOST_AT_ONCE = 256
_PER_S = 0.5
"""Sustained rate of new orders after a burst: each stays on disk for a week."""
_LOST = "the outcome in the agent's memory cannot be read; it may have run in part, and is not retried"
_PAUSE_S = 0.2
"""Pause after a poll that returned only known orders (being carried out)."""


@dataclass(frozen=True, slots=True)
class ReceivedOrder:
    """One order as received."""

    id: str
    verb: str
    args: Mapping[str, Any]
    boot_id: str
    instance_id: str
    expires_at_s: float
    """Expiry on this node's CLOCK_MONOTONIC."""
    incident: str = ""

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any], now_s: float) -> ReceivedOrder:
        """Parse an order. Raises only KeyError or ValueError, for anything that is not an order."""
        args = raw.get("args") or {}
        order_id, expires_s = _word(raw["id"]), raw["expires_s"]
        if not isinstance(args, dict) or not order_id or isinstance(expires_s, bool):
            raise ValueError("no order")
        if not isinstance(expires_s, int | float) or not -_LONGEST_S <= expires_s <= _LONGEST_S:
            raise ValueError("expires_s is no time")
        return cls(
            id=order_id,
            verb=_word(raw["verb"]),
            args=args,
            boot_id=_word(raw.get("boot_id") or ""),
            instance_id=_word(raw.get("instance_id") or ""),
            expires_at_s=now_s + float(expires_s),
            incident=_word(raw.get("incident") or ""),
        )


def _word(value: object) -> str:
    """A name in an order, as it may be logged and sent back. Raises ValueError."""
    if not isinstance(value, str) or not value[:_LONGEST_WORD].isprintable():
        raise ValueError("an invalid name")
    return value[:_LONGEST_WORD]


@dataclass(frozen=True, slots=True)
class OrderResult:
    """Outcome of an order."""

    ok: bool
    summary: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    bundle: bytes = b""
    """Evidence that must leave the node: a tar.gz of at most 512 KiB."""


OrderHandler = Callable[[ReceivedOrder], OrderResult]
"""Carries out an order in a separate thread. May raise HoldfastError or OSError, which is a failure with that text."""


def refusal(
    order: ReceivedOrder, identity: SenderIdentity, handlers: Mapping[str, OrderHandler], now_s: float
) -> OrderResult | None:
    """Outcome of an order that is not for this agent now; None: it is to be carried out."""
    if order.boot_id and order.boot_id != identity.boot_id:
        return _refused(Refusal.ANOTHER_BOOT, f"meant for boot {order.boot_id}, this is boot {identity.boot_id}")
    if order.instance_id and order.instance_id != identity.instance_id:
        text = f"meant for instance {order.instance_id}, this is {identity.instance_id or 'unknown'}"
        return _refused(Refusal.ANOTHER_INSTANCE, text)
    if now_s >= order.expires_at_s:
        return _refused(Refusal.EXPIRED, "expired before it could be carried out")
    if order.verb not in handlers:
        text = f"unsupported verb {order.verb!r}; this agent knows {', '.join(sorted(handlers))}"
        return _refused(Refusal.UNSUPPORTED_VERB, text)
    return None


def _refused(why: Refusal, text: str) -> OrderResult:
    # Controllers of earlier releases parse the text: it must start like this.
    return OrderResult(False, f"refused: {text}", {REFUSED: why.value})


def _body(order_id: str, done: OrderResult) -> dict[str, Any]:
    """The item that reports an outcome."""
    body = {"kind": "order_outcome", "order_id": order_id, "ok": done.ok, "summary": done.summary[:500]}
    bundle = {"bundle": base64.b64encode(done.bundle).decode()} if done.bundle else {}
    return {**body, "detail": dict(done.detail), **bundle}


def _outcome(text: object) -> dict[str, Any] | None:
    """A recorded outcome; None: it cannot be read."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("kind") == "order_outcome" else None


class OrderBook:
    """Record of taken orders, on disk. A recorded id is never carried out again."""

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory
        self._answered_s: dict[str, float] = {}
        self._unread: set[str] = set()

    def remember(self, order_id: str) -> bool:
        """Record the order durably, before anything is done. False: it is known already. Raises sqlite3.Error: then nothing may be done."""
        with self._memory.transaction() as db:
            db.execute("DELETE FROM orders WHERE outcome IS NOT NULL AND received_s < ?", (time.time() - _KEPT_S,))
            taken = db.execute("INSERT OR IGNORE INTO orders (id, received_s) VALUES (?, ?)", (order_id, time.time()))
            return taken.rowcount == 1

    def settle(self, order_id: str, done: OrderResult) -> OutboxItem:
        """Record the outcome and create the item that reports it."""
        body = _body(order_id, done)
        self._answered(order_id, time.monotonic())
        try:
            with self._memory.transaction() as db:
                db.execute("UPDATE orders SET outcome = ? WHERE id = ?", (json.dumps(body), order_id))
        except sqlite3.Error as error:
            log.error("event=outcome_not_noted order=%s error=%r", order_id, str(error))
        return OutboxItem(body, time.monotonic())

    def asked_again(self, order_id: str) -> OutboxItem | None:
        """The outcome again, when the controller still hands out the order long after the outcome was reported."""
        now_s = time.monotonic()
        if now_s < self._answered_s.get(order_id, now_s) + _AGAIN_S:
            self._answered(order_id, self._answered_s.get(order_id, now_s))
            return None
        self._answered(order_id, now_s)
        with self._memory.transaction(durable=False) as db:
            row = db.execute("SELECT outcome FROM orders WHERE id = ?", (order_id,)).fetchone()
        if row is None or row[0] is None:
            return None
        return OutboxItem(_outcome(row[0]) or self._unreadable(order_id), now_s)

    def _answered(self, order_id: str, at_s: float) -> None:
        self._answered_s[order_id] = at_s
        while len(self._answered_s) > _ANSWERED_KEPT:
            del self._answered_s[next(iter(self._answered_s))]

    def _unreadable(self, order_id: str) -> dict[str, Any]:
        """Outcome for a row that cannot be read; the row is kept."""
        if order_id not in self._unread:
            self._unread.add(order_id)
            do = "nothing: the controller counts the order as failed"
            log.error(
                "event=outcome_unreadable order=%s effect='answered as failed, not tried again' do=%r", order_id, do
            )
        return _body(order_id, OrderResult(False, _LOST))

    def interrupted(self) -> list[str]:
        """Orders taken by an earlier process without an outcome: it is not known whether they were carried out."""
        return [str(row[0]) for row in self._memory.read("SELECT id FROM orders WHERE outcome IS NULL")]


@dataclass
class _Places:
    """Slots for the orders of one sort."""

    slots: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(_AT_A_TIME))
    """Slots of orders being carried out."""
    open: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(_MOST_OPEN))
    """Slots of these and of waiting orders."""
    rate: Bucket = field(default_factory=lambda: Bucket(_MOST_AT_ONCE, _PER_S))


class Orders:
    """A polling thread, up to four threads for orders about users' jobs, and up to four for all others."""

    def __init__(
        self,
        client: ControllerClient,
        memory: AgentMemory,
        identity: SenderIdentity,
        handlers: Mapping[str, OrderHandler],
        report: Callable[[OutboxItem], None],
    ) -> None:
        """``handlers``: by the text of the verb; the wire may bring one that this release lacks.

        ``report`` is called from the threads."""
        self._client = client
        self._book = OrderBook(memory)
        self._identity = identity
        self._handlers = handlers
        self._report = report
        self._stopping = threading.Event()
        self._for_jobs, self._for_node = _Places(), _Places()
        self._left_out = 0
        self._told_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)

    def start(self) -> None:
        for order_id in self._book.interrupted():
            done = OrderResult(
                False, "the agent ended while it carried this out; it may have run in part, and is not retried"
            )
            self._report(self._book.settle(order_id, done))
        self._thread.start()

    def stop(self) -> None:
        """No more orders are taken; a poll that waits is left to end with the process."""
        self._stopping.set()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                raw = self._poll()
            except Unavailable as error:
                if not failures:
                    log.info("event=orders_unreachable error=%r", str(error))
                self._stopping.wait(max(0.1, backoff_s(failures)))
                failures += 1
                continue
            failures = 0
            fresh = [self.take(each) for each in raw]
            if raw and not any(fresh):
                self._stopping.wait(_PAUSE_S)

    def _poll(self) -> list[Mapping[str, Any]]:
        query = {
            "node": self._identity.node,
            "instance_id": self._identity.instance_id,
            "boot_id": self._identity.boot_id,
            "wait_s": f"{WAIT_S:g}",
        }
        asked_s = time.monotonic()
        answer = self._client.get("/v1/orders", query, WAIT_S + 5.0)
        orders = answer.body.get("orders")
        if answer.status != 200 or not isinstance(orders, list):
            raise Unavailable(f"orders answered {answer.status} {answer.error}")
        if not orders and time.monotonic() < asked_s + 1.0:
            self._stopping.wait(1.0)  # a controller that answers at once must not be polled in a busy loop
        found: list[Mapping[str, Any]] = [each for each in orders if isinstance(each, dict)]
        found.sort(
            key=lambda each: str(each.get("verb")) in ABOUT_JOBS
        )  # orders that repair the node first, each sort in its order
        return found[:_MOST_AT_ONCE]

    def take(self, raw: Mapping[str, Any]) -> bool:
        """Take one order; whether it was new. It is carried out only if it was recorded on disk first."""
        try:
            order = ReceivedOrder.from_wire(raw, time.monotonic())
        except (KeyError, ValueError) as error:
            self._leave_out(f"unreadable: {type(error).__name__}: {error}")
            return False
        places = self._places(order)
        if places.rate.left(time.monotonic()) <= 0:
            self._leave_out("too many orders")
            return False
        if not places.open.acquire(blocking=False):
            self._leave_out(f"{_MOST_OPEN} are being carried out")
            return False
        begun = False
        try:
            begun, new = self._begin(order)
        finally:
            if not begun:
                places.open.release()
        return new

    def _places(self, order: ReceivedOrder) -> _Places:
        return self._for_jobs if order.verb in ABOUT_JOBS else self._for_node

    def _leave_out(self, why: str) -> None:
        """Count an order that is not taken; logged once a minute."""
        self._left_out += 1
        now_s = time.monotonic()
        if now_s >= self._told_s + _LOGGED_EVERY_S:
            log.warning("event=orders_left_out count=%d last=%r", self._left_out, why[:200])
            self._left_out, self._told_s = 0, now_s

    def _begin(self, order: ReceivedOrder) -> tuple[bool, bool]:
        """Start the order; whether a thread carries it out now, and whether it was new."""
        try:
            if not self._book.remember(order.id):
                again = self._book.asked_again(order.id)
                if again is not None:
                    self._report(again)
                return False, False
            self._places(order).rate.spend(time.monotonic(), 1.0)
        except sqlite3.Error as error:
            log.error("event=order_not_taken order=%s error=%r reason=cannot_be_remembered", order.id, str(error))
            return False, False
        refused = refusal(order, self._identity, self._handlers, time.monotonic())
        if refused is not None:
            self._settle(order, refused)
            return False, True
        try:
            threading.Thread(target=self._carry_out, args=(order,), name=f"order-{order.verb}", daemon=True).start()
        except RuntimeError as error:  # no more threads
            self._settle(order, OrderResult(False, f"not begun: {error}"))
            return False, True
        return True, True

    def _carry_out(self, order: ReceivedOrder) -> None:
        try:
            self._in_turn(order)
        finally:
            self._places(order).open.release()

    def _in_turn(self, order: ReceivedOrder) -> None:
        with self._places(order).slots:
            refused = refusal(order, self._identity, self._handlers, time.monotonic())  # it may have waited for a slot
            if refused is not None:
                self._settle(order, refused)
                return
            log.info("event=order_begun order=%s verb=%s incident=%s", order.id, order.verb, order.incident)
            try:
                done = self._handlers[order.verb](order)
            except (HoldfastError, OSError) as error:
                done = OrderResult(False, f"{type(error).__name__}: {error}")
            except Exception as fault:
                log.exception("event=verb_broken order=%s verb=%s", order.id, order.verb)
                done = OrderResult(False, f"the verb itself failed: {type(fault).__name__}: {fault}")
        self._settle(order, done)

    def _settle(self, order: ReceivedOrder, done: OrderResult) -> None:
        log.info("event=order_done order=%s verb=%s ok=%s summary=%r", order.id, order.verb, done.ok, done.summary)
        self._report(self._book.settle(order.id, done))
