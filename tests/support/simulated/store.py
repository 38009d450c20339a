"""The store in memory, for loops of thousands of turns. ``test_memory_store.py`` compares it with the real one, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.model.actions.action import Intent, IntentState, SendOrder, action_event
from holdfast.model.actions.budgets import BudgetExtension, BudgetKind
from holdfast.model.actions.held_orders import held
from holdfast.model.agents.report import Finding, Inventory, OrderOutcome, Report
from holdfast.model.book import Book, Brake, Change, CheckpointRecord, NodeMark, NodeRecord
from holdfast.model.elastic_jobs.room_names import KnownRoom
from holdfast.model.errors import LeaderFencedOff, NotFound, Rejected, Stale, Unavailable
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.jobs.job_ends import JobEnd
from holdfast.model.machine import ProviderView
from holdfast.model.operators.maintenance import Windows
from holdfast.model.operators.node_orders import NodeOrders
from holdfast.model.operators.proposals import Answer, parse_id
from holdfast.model.operators.suppression import Suppression, check_suppression
from holdfast.model.policies.lookback import JOB_ENDS_S, SHIPPED, Lookback
from holdfast.ports import Accepted, IntentOutcome, Lease, Operation
from holdfast.store import books, operations
from holdfast.store import nodes as store_nodes
from holdfast.store.checkpoints import StoredCheckpoint, state
from holdfast.store.reports import identity
from support.simulated.ways import Ways

_EVENT_OF = {
    IntentState.DONE: EventKind.ACTION_DONE,
    IntentState.FAILED: EventKind.ACTION_FAILED,
    IntentState.REFUSED: EventKind.ACTION_REFUSED,
}


@dataclass
class _Row:
    finding: Finding
    last_fault_at: datetime
    live: bool = True


class MemoryStore:
    """Implements :class:`holdfast.ports.Store`."""

    def __init__(self, lookback: Lookback = SHIPPED) -> None:
        self.lookback = lookback
        self.away = False
        self.commits = 0
        self._lease: Lease | None = None
        self._seen: set[tuple[str, str, str, int]] = set()
        self._newest: dict[tuple[str, str, str], int] = {}
        self._rows: dict[int, _Row] = {}
        self._incidents: dict[str, Incident] = {}
        self._recoveries: dict[str, Recovery] = {}
        self._final_at: dict[str, datetime] = {}
        self._intents: dict[str, Intent] = {}
        self._unsettled: set[str] = set()
        self._marks: dict[str, NodeMark] = {}
        self._nodes: dict[str, NodeRecord] = {}
        self._inventories: dict[tuple[str, str], tuple[str, Inventory]] = {}
        self._checkpoints: dict[tuple[int, str], StoredCheckpoint] = {}
        self._brakes: dict[str, Brake] = {}
        self._ends: dict[str, JobEnd] = {}
        self._suppressions: dict[str, Suppression] = {}
        self._windows = Windows()
        self._notes: dict[str, str] = {}
        self._extensions: dict[BudgetKind, BudgetExtension] = {}
        self._events: list[Event] = []
        self.ways = Ways()
        self._now: datetime | None = None

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("the database does not answer")

    def ping(self) -> None:
        self._answer()

    def see_provider(self, view: ProviderView) -> None:
        self._answer()
        self._notes[books.PROVIDER] = books.write_provider(view)

    # The lease

    def take_lease(self, holder: str, now: datetime, ttl_s: float, ended: Collection[str] = ()) -> Lease | None:
        self._answer()
        held = self._lease
        if held is not None and held.holder not in (holder, *ended) and held.expires_at > now:
            return None
        fence = (held.fence if held else 0) + (0 if held is not None and held.holder == holder else 1)
        self._lease = Lease(holder, fence, now + timedelta(seconds=ttl_s))
        return self._lease

    def lease(self) -> Lease | None:
        self._answer()
        return self._lease

    def _fence(self, fence: int) -> None:
        self._answer()
        if fence != (self._lease.fence if self._lease else 0):
            raise LeaderFencedOff(f"fence {fence} is not the lease's own")

    # Reports

    def accept(self, report: Report) -> Accepted:
        self._answer()
        box = (report.node, report.boot_id, report.outbox_id)
        name = (*box, report.sequence)
        if name in self._seen:
            return Accepted(duplicate=True)
        late = report.sequence <= self._newest.get(box, -1)
        self._seen.add(name)
        self._newest[box] = max(report.sequence, self._newest.get(box, -1))
        for finding in report.findings:
            self._take_finding(finding)
        for clear in report.clears:
            self._take_clear(report, clear.check, clear.component, clear.cleared_at)
        for said in report.statements:
            claim = (said.job_id, report.node)
            after = state(self._checkpoints.get(claim), said, report.received_at, report.node)
            if isinstance(after, StoredCheckpoint):
                self._checkpoints[claim] = after
        for outcome in report.outcomes:
            self._settle_order(report, outcome)
        if report.inventory is not None:
            self._take_inventory(report, report.inventory)
        return Accepted(duplicate=False, out_of_order=late)

    def _take_finding(self, finding: Finding) -> None:
        same = identity(finding)
        for row in self._rows.values():
            if row.live and identity(row.finding) == same:
                if finding.fault_at > row.last_fault_at:
                    row.last_fault_at = finding.fault_at
                    row.finding = replace(row.finding, last_fault_at=finding.fault_at)
                return
        number = len(self._rows) + 1
        fresh = replace(finding, id=number, incident_id=None, cleared_at=None)
        self._rows[number] = _Row(fresh, finding.fault_at)

    def _take_clear(self, report: Report, check: str, component: str, at: datetime) -> None:
        for row in self._rows.values():
            f = row.finding
            mine = (f.node, f.instance_id, f.check, f.component) == (report.node, report.instance_id, check, component)
            before = row.last_fault_at <= at or row.last_fault_at > report.received_at
            if mine and row.live and f.sticky and before:
                row.finding, row.live = replace(f, cleared_at=at), False

    def _take_inventory(self, report: Report, inventory: Inventory) -> None:
        self._inventories[report.node, report.instance_id] = (report.boot_id, inventory)
        record = self._nodes.get(report.node, NodeRecord(report.node))
        if record.instance_id in ("", report.instance_id):
            known = replace(record, instance_id=report.instance_id)
            known = known.with_gpus(report.boot_id, frozenset(inventory.gpus))
            self._append(store_nodes.machine_events(record, known, report.received_at))
            self._nodes[report.node] = known

    def _put_node(self, record: NodeRecord, at: datetime | None) -> None:
        known = self._inventories.get((record.name, record.instance_id))
        if known is not None:
            record = replace(record, boot_id=known[0], gpu_uuids=frozenset(known[1].gpus))
        stored = self._nodes.get(record.name)
        if stored is not None and stored.instance_id == record.instance_id:
            record = replace(record, exchanged_gpus=stored.exchanged_gpus)
        self._append(store_nodes.machine_events(stored or NodeRecord(record.name), record, at))
        self._nodes[record.name] = record

    # The state snapshot

    def load_book(self, now: datetime, ahead: timedelta = timedelta(0)) -> Book:
        self._answer()
        self._now = now
        back, then = self.lookback, now - ahead
        going = {i.node for i in self._incidents.values() if i.open and (i.notice or i.goes_at is not None)}
        incidents = {
            i.id: i
            for i in self._incidents.values()
            if i.closed_at is None
            or i.closed_at >= then - (max(back.incidents, back.announced) if i.node in going else back.incidents)
        }
        provider = books.read_provider(self._notes.get(books.PROVIDER))
        on_trial = {m.incident for m in provider.on_trial} if provider is not None else set()
        opened = {i.id for i in incidents.values() if i.open}
        findings = {
            n: row.finding
            for n, row in self._rows.items()
            if row.finding.incident_id is None or row.finding.incident_id in opened
        }
        recoveries = {r.id: r for r in self._recoveries.values() if self._remembered(r, opened, then)}
        alive = opened | {r.incident_id for r in self._recoveries.values() if not r.final}
        memory = dict.fromkeys(books.MACHINE_KINDS, back.machine_steps)
        intents = {
            i.key: i
            for i in self._intents.values()
            if i.incident_id in alive
            or not i.settled
            or i.planned_at >= then - memory.get(i.kind, back.steps)
            or (i.incident_id in on_trial and i.kind in books.MACHINE_KINDS)
        }
        checkpoints: dict[int, dict[str, CheckpointRecord]] = {}
        for (job_id, node), kept in self._checkpoints.items():
            checkpoints.setdefault(job_id, {})[node] = kept.record
        return Book(
            incidents=incidents,
            findings=findings,
            recoveries=recoveries,
            intents=intents,
            marks=dict(self._marks),
            nodes=dict(self._nodes),
            checkpoints=checkpoints,
            ends={n: e for n, e in self._ends.items() if e.ended_at >= then - timedelta(seconds=JOB_ENDS_S)},
            brakes=dict(self._brakes),
            suppressions={name: each for name, each in self._suppressions.items() if each.holds(now)},
            rooms=books.read_rooms(self._notes.get(books.ROOMS)),
            windows=self._windows.at(now).windows,
            extensions={k: e for k, e in self._extensions.items() if e.until > now},
            paused=self._notes.get("paused"),
            paused_at=books.read_time(self._notes.get(books.PAUSED_AT) if books.PAUSED in self._notes else None),
            nodes_since=books.read_time(self._notes.get(books.NODES_SINCE)),
            node_orders=self._node_orders(now).orders,
            restored_at=books.read_time(self._notes.get(books.RESTORED)),
            provider=provider,
        )

    def _remembered(self, recovery: Recovery, opened: set[str], now: datetime) -> bool:
        since = self._final_at.get(recovery.id)
        return since is None or since >= now - self.lookback.recoveries or recovery.incident_id in opened

    def commit(self, change: Change, fence: int) -> None:
        self._fence(fence)
        for incident in change.incidents:
            before = self._incidents.get(incident.id)
            if before is not None and before.operated != incident.operated:
                raise Stale(f"an operator changed incident {incident.id} meanwhile")
        self._refuse_twice(change.intents)
        self.commits += 1
        self._incidents |= {i.id: i for i in change.incidents}
        for number, incident_id in change.placed.items():
            row = self._rows[number]
            row.finding = replace(row.finding, incident_id=incident_id)
        self._bury({i.id for i in change.incidents} | set(change.placed.values()))
        at = max((e.at for e in change.events), default=self._now)
        for recovery in change.recoveries:
            self._recoveries[recovery.id] = recovery
            self._final_at.pop(recovery.id, None)
            if recovery.final and at is not None:
                self._final_at[recovery.id] = at
        self._intents |= {i.key: i for i in change.intents}
        self._unsettled |= {i.key for i in change.intents if not i.settled}
        self._marks |= {m.node: m for m in change.marks}
        for record in change.nodes:
            self._put_node(record, at)
        if change.nodes_since is not None:
            self._notes[books.NODES_SINCE] = change.nodes_since.isoformat()
        self._brakes |= {b.name: b for b in change.brakes}
        self._ends |= {e.id: e for e in change.ends}
        self._append(change.events)
        for incident in change.incidents:
            self.ways.check(incident)

    def _refuse_twice(self, intents: tuple[Intent, ...]) -> None:
        keys = [i.key for i in intents]
        twice = sorted({k for k in keys if k in self._intents or keys.count(k) > 1})
        if twice:
            raise Rejected(f"intent {twice[0]} exists already")

    def _bury(self, touched: set[str], *, states: bool = True) -> None:
        """Findings of closed incidents are no longer live: the same fault is news again. Not so a state that an operator closed."""
        for row in self._rows.values():
            incident = self._incidents.get(row.finding.incident_id or "")
            over = row.finding.incident_id in touched and incident is not None and not incident.open
            if over and (states or not row.finding.sticky):
                row.live = False

    def _append(self, events: Iterable[Event]) -> None:
        for event in events:
            self.ways.follow(event)
            self._events.append(replace(event, id=len(self._events) + 1))

    # Intents and orders

    def due_intents(self) -> tuple[Intent, ...]:
        self._answer()
        waiting = [self._intents[key] for key in self._unsettled]
        due = [i for i in waiting if not isinstance(i.action, SendOrder)]
        return tuple(sorted(due, key=lambda i: (i.planned_at, i.order, i.key)))

    def start_intent(self, key: str, fence: int, at: datetime) -> None:
        self._fence(fence)
        intent = self._intent(key)
        if intent.settled:
            raise Rejected(f"intent {key} is {intent.state} already")
        if intent.state is IntentState.PLANNED:
            self._mark_started(intent, at)

    def _mark_started(self, intent: Intent, at: datetime) -> Intent:
        started = replace(intent, state=IntentState.STARTED, started_at=at)
        self._intents[intent.key] = started
        self._append([action_event(started, EventKind.ACTION_STARTED, at, intent.reason)])
        return started

    def finish_intent(self, key: str, fence: int, outcome: IntentOutcome, at: datetime) -> None:
        self._fence(fence)
        intent = self._intent(key)
        if intent.settled:
            if intent.state is not outcome.state:
                raise Rejected(f"intent {key} is {intent.state} already")
            return
        self._settle(intent, outcome, at)

    def _settle(self, intent: Intent, outcome: IntentOutcome, at: datetime) -> None:
        settled = replace(
            intent,
            state=outcome.state,
            finished_at=at,
            retryable=outcome.retryable,
            outcome=outcome.text,
            result=dict(outcome.result),
        )
        self._intents[intent.key] = settled
        self._unsettled.discard(intent.key)
        self._append([action_event(settled, _EVENT_OF[outcome.state], at, outcome.text)])
        if outcome.mark is not None:
            self._marks[outcome.mark.node] = outcome.mark
        if outcome.drop_mark is not None:
            self._marks.pop(outcome.drop_mark, None)

    def _intent(self, key: str) -> Intent:
        if key not in self._intents:
            raise NotFound(f"there is no intent {key}")
        return self._intents[key]

    def _settle_order(self, report: Report, said: OrderOutcome) -> None:
        intent = self._intents.get(said.order_id)
        if intent is None or intent.settled or not isinstance(intent.action, SendOrder):
            return
        if (intent.action.node, intent.action.instance_id) == (report.node, report.instance_id):
            ended = IntentState.DONE if said.ok else IntentState.FAILED
            self._settle(intent, IntentOutcome(ended, said.summary, result=said.detail), said.at)

    def take_orders(
        self, node: str, instance_id: str, boot_id: str, now: datetime, *, observes: bool = False
    ) -> tuple[Intent, ...]:
        self._answer()
        if not self._unsettled:
            return ()
        waiting = [self._intents[key] for key in self._unsettled]
        meant = [i for i in waiting if _meant_for(i, node, instance_id, boot_id, now)]
        found = [i for i in meant if not self._held(i, observes=observes)]
        found.sort(key=lambda i: (i.planned_at, i.order, i.key))
        return tuple(self._mark_started(i, now) if i.state is IntentState.PLANNED else i for i in found)

    def _held(self, intent: Intent, *, observes: bool) -> bool:
        assert isinstance(intent.action, SendOrder)
        incident = self._incidents.get(intent.incident_id)
        return held(intent.action, incident, paused="paused" in self._notes, observes=observes)

    # Operators

    def _extend(self, extension: BudgetExtension | None) -> None:
        assert extension is not None
        self._extensions[extension.kind] = extension

    def operate(self, operation: Operation, at: datetime) -> None:
        self._answer()
        who = f"{operation.who}: {operation.reason}" if operation.reason else operation.who
        verbs: dict[str, Callable[[], None]] = {
            "pause": lambda: self._notes.update({books.PAUSED: who, books.PAUSED_AT: at.isoformat()}),
            "resume": lambda: (self._notes.pop(books.PAUSED, None), None)[1],
            "extend_budget": lambda: self._extend(operation.extension),
            "suppress": lambda: self._suppress(operation.suppression),
            "unsuppress": lambda: (self._suppressions.pop(operation.target), None)[1],
            "maintain": lambda: self._maintain(operation),
            "end_maintenance": lambda: self._end_maintenance(operation, at),
            "drain_node": lambda: self._order_node(operation, at),
            "release_node": lambda: self._order_node(operation, at),
            "replace_node": lambda: self._order_node(operation, at),
            "note_node": lambda: None,
            "release_brake": lambda: self._release(operation.target, at),
            "acknowledge": lambda: self._acknowledge(operation.target, f"taken over by {who}"),
            "close": lambda: self._close(operation, at),
            "retry": lambda: self._move(operation, at),
            **{answer.value: lambda: self._answered(operation, at) for answer in Answer},
        }
        verbs[operation.verb]()

    def _maintain(self, operation: Operation) -> None:
        assert operation.window is not None
        self._windows = self._windows.begun(operation.window)

    def _node_orders(self, now: datetime) -> NodeOrders:
        return books.read_node_orders(self._notes.get(books.NODE_ORDERS)).at(now)

    def _order_node(self, operation: Operation, at: datetime) -> None:
        assert operation.order is not None
        self._notes[books.NODE_ORDERS] = books.write_node_orders(self._node_orders(at).given(operation.order))

    def _end_maintenance(self, operation: Operation, at: datetime) -> None:
        self._windows = self._windows.ended(operation.nodes, at)

    def _suppress(self, wanted: Suppression | None) -> None:
        if wanted is not None:
            check_suppression(wanted)
            self._suppressions[wanted.id] = wanted

    def _open(self, incident_id: str) -> Incident:
        incident = self._incidents.get(incident_id)
        if incident is None or not incident.open:
            raise Rejected(f"incident {incident_id} is not open")
        return incident

    def _acknowledge(self, incident_id: str, note: str) -> None:
        self._operated(replace(self._open(incident_id), acknowledged=True, note=note))

    def _close(self, operation: Operation, at: datetime) -> None:
        self._move(operation, at)
        if not self._incidents[operation.target].open:
            self._bury({operation.target}, states=False)

    def _move(self, operation: Operation, at: datetime) -> None:
        before = self._open(operation.target)
        incident, events = operations.moved(before, operation, at, self._of_incident(before.id))
        self._operated(incident)
        if not incident.open and operations.leaves_out(before, operation):
            record = self._nodes.get(incident.node) or NodeRecord(incident.node)
            self._nodes[incident.node] = replace(record, out_for=incident.id)
        self._append(e for e in events if e.kind is not EventKind.OPERATOR)

    def _of_incident(self, incident_id: str) -> list[Intent]:
        return [i for i in self._intents.values() if i.incident_id == incident_id]

    def _answered(self, operation: Operation, at: datetime) -> None:
        incident, _ = operations.proposal_answered(self._open(parse_id(operation.target)[0]), operation, at)
        self._operated(incident)

    def _operated(self, incident: Incident) -> None:
        self._incidents[incident.id] = replace(incident, operated=incident.operated + 1)

    def _release(self, kind: str, at: datetime) -> None:
        brake = self._brakes.get(kind)
        if brake is None or brake.released_at is not None:
            raise NotFound(f"the brake {kind!r} is not tripped")
        self._brakes[kind] = replace(brake, released_at=at)

    # Reading

    def incidents(
        self, *, only_open: bool = False, node: str | None = None, since: datetime | None = None, limit: int = 200
    ) -> tuple[Incident, ...]:
        found = [i for i in self._incidents.values() if (i.open or not only_open) and node in (None, i.node)]
        found = [i for i in found if since is None or i.opened_at >= since]
        return tuple(sorted(found, key=lambda i: (i.opened_at, i.id), reverse=True)[:limit])

    def incident(self, incident_id: str) -> Incident | None:
        return self._incidents.get(incident_id)

    def events(
        self,
        *,
        incident_id: str | None = None,
        since: datetime | None = None,
        after_id: int = 0,
        kinds: tuple[EventKind, ...] = (),
        limit: int = 10_000,
    ) -> tuple[Event, ...]:
        found = [e for e in self._events if e.id > after_id and incident_id in (None, e.incident_id)]
        return tuple([e for e in found if (since is None or e.at >= since) and (not kinds or e.kind in kinds)][:limit])

    def recoveries(
        self, *, job_id: int | None = None, incident_id: str | None = None, since: datetime | None = None
    ) -> tuple[Recovery, ...]:
        found = [r for r in self._recoveries.values() if job_id in (None, r.job.job_id)]
        found = [r for r in found if incident_id in (None, r.incident_id) and (since is None or r.created_at >= since)]
        return tuple(sorted(found, key=lambda r: (r.created_at, r.id)))

    def job_ends(self, job_id: int) -> tuple[JobEnd, ...]:
        mine = (e for e in self._ends.values() if e.job.job_id == job_id)
        return tuple(sorted(mine, key=lambda e: (e.ended_at, e.id)))

    def intents(self, *, incident_id: str | None = None, limit: int = 1000) -> tuple[Intent, ...]:
        found = [i for i in self._intents.values() if incident_id in (None, i.incident_id)]
        return tuple(sorted(found, key=lambda i: (i.planned_at, i.order, i.key))[-limit:])

    def note(self, key: str) -> str | None:
        self._answer()
        return self._notes.get(key)

    def set_note(self, key: str, value: str) -> None:
        self._answer()
        self._notes[key] = value

    def remember_rooms(self, rooms: Iterable[KnownRoom], fence: int) -> None:
        self._fence(fence)
        self._notes[books.ROOMS] = books.write_rooms(rooms)

    def record_once(self, note: str, before: str | None, after: str, events: tuple[Event, ...], fence: int) -> None:
        self._fence(fence)
        if self._notes.get(note) != before:
            raise Stale(f"the record {note} was read on meanwhile")
        self._append(events)
        self._notes[note] = after


def _meant_for(intent: Intent, node: str, instance_id: str, boot_id: str, now: datetime) -> bool:
    order = intent.action
    return (
        isinstance(order, SendOrder)
        and (order.node, order.instance_id) == (node, instance_id)
        and order.boot_id in ("", boot_id)
        and now < intent.planned_at + timedelta(seconds=order.expires_s)
    )
