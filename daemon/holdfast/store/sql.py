"""Implementation of :class:`holdfast.ports.Store` on SQLite or PostgreSQL, with the same code for both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from sqlalchemy import URL, Connection, select, text

from holdfast.metrics.figures import IncidentFigures
from holdfast.metrics.timings import IncidentTimings
from holdfast.model.access.tokens import AGENT, TokenRow
from holdfast.model.actions.action import Intent
from holdfast.model.agents.report import Inventory, NodeMachine, Report, SeenFinding
from holdfast.model.book import Book, Change
from holdfast.model.elastic_jobs.room_names import KnownRoom
from holdfast.model.errors import HoldfastError, NotFound, Rejected
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.jobs.job_ends import JobEnd
from holdfast.model.machine import ProviderView
from holdfast.model.operators.idempotency import FirstOrder
from holdfast.model.policies.lookback import SHIPPED, Lookback
from holdfast.ports import Accepted, IntentOutcome, Lease, Operation
from holdfast.store import (
    books,
    changes,
    evidence,
    figures,
    idempotency,
    intents,
    leases,
    listing,
    operations,
    queries,
    reports,
    restored,
    rows,
    tokens,
    upkeep,
)
from holdfast.store import tables as t
from holdfast.store.engines import parse_url, reader_engine, writer_engine
from holdfast.store.evidence import StoredEvidence
from holdfast.store.failures import translated
from holdfast.store.migrate import upgrade
from holdfast.store.writer import Writer

T = TypeVar("T")


def open_store(url: str, lookback: Lookback = SHIPPED) -> SqlStore:
    """Open it and bring its schema up to date. Raises ConfigError (see :mod:`.engines`), Unavailable.

    ``lookback``: how far back :meth:`SqlStore.load_book` reaches for closed items."""
    return SqlStore(parse_url(url), lookback)


def read_tokens(url: str) -> tuple[TokenRow, ...]:
    """Tokens of a store that is not changed: neither created nor migrated. Raises ConfigError, NotFound (there is no such
    file), Unavailable."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists():
        raise NotFound(f"{parsed.database} does not exist")
    engine = reader_engine(parsed)
    try:
        with translated(), engine.begin() as connection:
            return tokens.every(connection)
    finally:
        engine.dispose()


class SqlStore:
    """Implements :class:`holdfast.ports.Store`; thread-safe. Every method may raise Unavailable."""

    def __init__(self, url: URL, lookback: Lookback = SHIPPED) -> None:
        self._url = url
        engine = writer_engine(url)
        try:
            upgrade(engine)
            restored.leave_out_planned(engine)
        except HoldfastError:
            engine.dispose()
            raise
        self._writer = Writer(engine)
        self._readers = reader_engine(url)
        self._cache = books.BookCache(lookback=lookback)

    @property
    def path(self) -> Path | None:
        """File of an SQLite store; None: it is a PostgreSQL database."""
        return Path(self._url.database or "") if self._url.get_backend_name() == "sqlite" else None

    def close(self) -> None:
        """Write what is queued and close the database."""
        self._writer.close()
        self._readers.dispose()

    def _read(self, query: Callable[[Connection], T]) -> T:
        with translated(), self._readers.begin() as connection:
            return query(connection)

    # The leader's lease

    def take_lease(self, holder: str, now: datetime, ttl_s: float, ended: Collection[str] = ()) -> Lease | None:
        return self._writer.run(lambda c: leases.take(c, holder, now, ttl_s, ended))

    def lease(self) -> Lease | None:
        return self._read(leases.read)

    # Agents' reports, and orders for agents

    def accept(self, report: Report) -> Accepted:
        return self._writer.run(lambda c: reports.accept(c, report))

    def accept_soon(self, report: Report, shown: Collection[int] | None = None) -> Future[Accepted]:
        """As :meth:`accept`, without waiting: the future resolves when it is durable. For an event loop. ``shown``: jobs that Slurm shows
        on the node, whose records are never evicted by others; None: not known."""
        return self._writer.submit(lambda c: reports.accept(c, report, shown))

    def take_orders(
        self, node: str, instance_id: str, boot_id: str, now: datetime, *, observes: bool = False
    ) -> tuple[Intent, ...]:
        if not self._read(lambda c: intents.orders_for(c, node, instance_id, boot_id, now, observes=observes)):
            return ()
        return self._writer.run(lambda c: intents.deliver(c, node, instance_id, boot_id, now, observes=observes))

    # The control loop and the actor

    def load_book(self, now: datetime, ahead: timedelta = timedelta(0)) -> Book:
        with self._cache.lock:
            return self._read(lambda c: books.load(c, self._cache, now, ahead))

    def commit(self, change: Change, fence: int) -> None:
        """Also raises Stale when an operator changed one of its incidents since the snapshot was loaded."""
        at = changes.change_time(change, self._cache.loaded_at)
        self._writer.run(lambda c: changes.commit(c, change, fence, at))

    def due_intents(self) -> tuple[Intent, ...]:
        return self._read(queries.due_intents)

    def start_intent(self, key: str, fence: int, at: datetime) -> None:
        """Also raises NotFound, and Rejected for a settled one."""
        self._writer.run(lambda c: intents.start(c, key, fence, at))

    def finish_intent(self, key: str, fence: int, outcome: IntentOutcome, at: datetime) -> None:
        """Also raises NotFound, and Rejected for one that is settled otherwise."""
        self._writer.run(lambda c: intents.finish(c, key, fence, outcome, at))

    def operate(self, operation: Operation, at: datetime) -> None:
        self._writer.run(lambda c: operations.operate(c, operation, at))

    # Queries for display and the API

    def incidents(
        self, *, only_open: bool = False, node: str | None = None, since: datetime | None = None, limit: int = 200
    ) -> tuple[Incident, ...]:
        return self._read(lambda c: queries.incidents(c, only_open, node, since, limit))

    def incident(self, incident_id: str) -> Incident | None:
        return self._read(lambda c: queries.incident(c, incident_id))

    def events(
        self,
        *,
        incident_id: str | None = None,
        since: datetime | None = None,
        after_id: int = 0,
        kinds: tuple[EventKind, ...] = (),
        limit: int = 10_000,
    ) -> tuple[Event, ...]:
        return self._read(lambda c: queries.events(c, incident_id, since, after_id, kinds, limit))

    def closed_within(self, since: datetime, until: datetime, limit: int) -> tuple[Incident, ...]:
        """As :meth:`holdfast.api.deps.ApiStore.closed_within`."""
        return self._read(lambda c: queries.closed_within(c, since, until, limit))

    def figures_since(self, start: datetime) -> tuple[IncidentFigures, ...]:
        """Of every incident that was open at that time, or later."""
        return self._read(lambda c: figures.since(c, start))

    def timings_since(self, start: datetime) -> tuple[IncidentTimings, ...]:
        """As :meth:`figures_since`, with each job, in the order of the incidents' ids."""
        return self._read(lambda c: figures.timings_since(c, start))

    def figures_of(self, incident_ids: Collection[str], until: datetime) -> tuple[IncidentFigures, ...]:
        """Of these incidents, by what had happened at that time."""
        return self._read(lambda c: figures.of(c, incident_ids, until))

    def keep_figures(self, closed_since: datetime | None, limit: int, fence: int) -> int:
        """As :meth:`holdfast.controller.keeping.figures_keeper.FiguresStore.keep_figures`."""
        found = self._read(lambda c: figures.unstored(c, closed_since, limit))
        if found:
            self._writer.run(lambda c: figures.put(c, found, fence))
        return len(found)

    def list_incidents(
        self,
        *,
        only_open: bool = False,
        node: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: listing.IncidentPlace | None = None,
        limit: int = 200,
    ) -> tuple[Incident, ...]:
        """A page, newest first, of those opened in [since, until); ``before``: continue after this one."""
        return self._read(lambda c: listing.incidents(c, only_open, node, since, until, before, limit))

    def list_intents(
        self,
        *,
        incident_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: listing.IntentPlace | None = None,
        limit: int = 200,
    ) -> tuple[Intent, ...]:
        """A page, newest first, of those planned in [since, until); ``before``: continue after this one."""
        return self._read(lambda c: listing.intents(c, incident_id, since, until, before, limit))

    def list_events(
        self,
        *,
        incident_id: str | None = None,
        node: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after_id: int = 0,
        before_id: int | None = None,
        kinds: tuple[EventKind, ...] = (),
        limit: int = 200,
        newest_first: bool = False,
    ) -> tuple[Event, ...]:
        """A page of those of [since, until) whose numbers lie between the two: oldest first, or newest first."""
        return self._read(
            lambda c: listing.events(
                c, incident_id, node, since, until, after_id, before_id, kinds, limit, newest_first
            )
        )

    def newest_events(self, kind: EventKind, since: datetime, limit: int) -> tuple[Event, ...]:
        """The newest of a kind, oldest first."""
        return self._read(lambda c: queries.newest_events(c, kind, since, limit))

    def newest_event_id(self) -> int:
        """Number of the newest event; 0: there is none."""
        return self._read(queries.newest_event_id)

    def recoveries(
        self, *, job_id: int | None = None, incident_id: str | None = None, since: datetime | None = None
    ) -> tuple[Recovery, ...]:
        return self._read(lambda c: queries.recoveries(c, job_id, incident_id, since))

    def job_ends(self, job_id: int) -> tuple[JobEnd, ...]:
        return self._read(lambda c: queries.job_ends(c, job_id))

    def intents(self, *, incident_id: str | None = None, limit: int = 1000) -> tuple[Intent, ...]:
        return self._read(lambda c: queries.intents(c, incident_id, limit))

    def findings(
        self,
        *,
        incident_id: str | None = None,
        node: str | None = None,
        since: datetime | None = None,
        limit: int = 1000,
    ) -> tuple[SeenFinding, ...]:
        """Findings, newest first, also of closed incidents, with how often each was seen. ``since``: seen at or after it."""
        return self._read(lambda c: queries.findings(c, incident_id, node, since, limit))

    def inventories(self, node: str) -> dict[str, Inventory]:
        """Machine → newest inventory, for every machine that reported for the node, serving or not yet."""
        return self._read(lambda c: queries.inventories(c, node))

    # Orders that a client repeats

    def begin_order(self, token: str, key: str, request: str, at: datetime) -> FirstOrder | None:
        """The order that has this key already; None: this one has it now. Raises Rejected for too many keys of a token."""
        return self._writer.run(lambda c: idempotency.begin(c, token, key, request, at))

    def finish_order(self, token: str, key: str, status: int, answer: str) -> None:
        """Record the answer of the order with this key."""
        self._writer.run(lambda c: idempotency.finish(c, token, key, status, answer))

    def forget_order(self, token: str, key: str) -> None:
        """Give the key of an order back that has done nothing."""
        self._writer.run(lambda c: idempotency.forget(c, token, key))

    def machines(self, node: str) -> tuple[NodeMachine, ...]:
        """Every machine that reported for the node, with its newest inventory; the last one reported last."""
        return self._read(lambda c: queries.machines(c, node))

    def node_events(
        self,
        node: str,
        kinds: Collection[EventKind],
        shared: Collection[EventKind],
        *,
        since: datetime | None = None,
        before_id: int | None = None,
        limit: int = 200,
    ) -> tuple[tuple[Event, ...], int | None]:
        """As :meth:`holdfast.api.deps.ApiStore.node_events`."""
        return self._read(lambda c: queries.node_events(c, node, kinds, shared, since, before_id, limit))

    # Notes

    def note(self, key: str) -> str | None:
        return self._read(lambda c: c.execute(select(t.notes.c.value).where(t.notes.c.key == key)).scalar())

    def set_note(self, key: str, value: str) -> None:
        self._writer.run(lambda c: rows.upsert(c, t.notes, [{"key": key, "value": value}]))

    def record_once(self, note: str, before: str | None, after: str, events: tuple[Event, ...], fence: int) -> None:
        self._writer.run(lambda c: changes.record_once(c, note, before, after, events, fence))

    def remember_rooms(self, rooms: Iterable[KnownRoom], fence: int) -> None:
        note = books.write_rooms(rooms)
        self._writer.run(lambda c: changes.put_note(c, books.ROOMS, note, fence))

    def see_provider(self, view: ProviderView) -> None:
        self.set_note(books.PROVIDER, books.write_provider(view))

    # Tokens

    def add_token(
        self, role: str, subject: str, token_hash: str, at: datetime, expires_at: datetime | None = None
    ) -> None:
        """Add a token. ``token_hash``: SHA-256 in hex. Raises Rejected when it exists already."""
        row = TokenRow(token_hash, role, subject, created_at=at, expires_at=expires_at, revoked=False)
        self._writer.run(lambda c: tokens.add(c, row))

    def allow_enrolment(self, node: str, until: datetime) -> None:
        """Allow one more machine to get the node's token until then."""
        self._writer.run(lambda c: tokens.allow_enrolment(c, node, until))

    def enrolment_open(self, node: str, machines: Collection[str], now: datetime) -> bool:
        """Whether one of these machines has had no token yet, or an operator's permission for the node is valid."""
        return self._read(lambda c: tokens.enrolment_open(c, node, machines, now))

    def enrol(self, node: str, instance_id: str, token_hash: str, at: datetime, *, needs_allowance: bool) -> None:
        """Use up an operator's permission. Raises Rejected if there is none although the machine has had a token, or
        ``needs_allowance``."""
        row = TokenRow(token_hash, AGENT, node, created_at=at, expires_at=None, revoked=False)
        self._writer.run(lambda c: tokens.enrol(c, row, instance_id, needs_allowance=needs_allowance))

    def find_token(self, token_hash: str) -> TokenRow | None:
        """The token of this hash, even if revoked or expired: check its ``valid``."""
        return self._read(lambda c: tokens.find(c, token_hash))

    def tokens_used(self, uses: Mapping[str, datetime]) -> None:
        """Record the last use of each hash."""
        self._writer.run(lambda c: tokens.used(c, uses))

    def end_tokens(self, hashes: Collection[str], at: datetime) -> tuple[TokenRow, ...]:
        """End tokens that are valid beyond this time and were not used in the ten minutes before. Returns them as they are now."""
        return self._writer.run(lambda c: tokens.end(c, hashes, at))

    def revoke_token(self, token_hash: str) -> bool:
        """Revoke a token. False: there is none."""
        return self._writer.run(lambda c: tokens.revoke(c, token_hash))

    def evidence(self, incident_id: str) -> StoredEvidence | None:
        """The incident's newest evidence bundle; None: there is none."""
        return self._read(lambda c: evidence.of_incident(c, incident_id))

    def tokens(self) -> tuple[TokenRow, ...]:
        return self._read(tokens.every)

    # Upkeep

    def ping(self) -> None:
        self._read(lambda c: c.execute(text("SELECT 1")).scalar())

    def prune(self, before: datetime, reports_before: datetime | None = None) -> int:
        """Delete older rows, but none of open incidents, in small transactions; an SQLite file then shrinks. Returns the number of rows.

        ``reports_before``: the same limit for the rows that identify repeated reports; None: as ``before``."""
        gone = 0
        for step in upkeep.prune_steps(before, reports_before or before):
            while count := self._writer.run(step):
                gone += count
        if self.path is not None:
            while self._writer.run(upkeep.give_back):
                pass
        return gone

    def backup(self, target: Path) -> None:
        """Back up an SQLite store. Raises Rejected on PostgreSQL, which has better tools, and when the target exists."""
        if self._url.get_backend_name() != "sqlite":
            raise Rejected("back up PostgreSQL with pg_dump")
        upkeep.backup_sqlite(self._url, target)
