"""A year in the life of a cluster, written into a store as the control loop writes it: incidents, recoveries, intents, events.

Drawn from a seed, so that two stores have the same year. The rates are those of clusters that published theirs
(``--rate``, faults per 1000 node-days; 2 to 6.5 in Meta's fleets, 22 at Ant), the rest of an incident is a typical one of Holdfast's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.model.actions.action import (
    Action,
    Drain,
    Intent,
    IntentState,
    Launch,
    Notify,
    Requeue,
    SendOrder,
    Undrain,
    Verb,
)
from holdfast.model.book import Change
from holdfast.model.event import Event, EventKind
from holdfast.model.ids import UPKEEP
from holdfast.model.incidents.incident import Incident, IncidentState, Recovery, RecoveryPhase
from holdfast.model.slurm.cluster import JobKey
from holdfast.store import SqlStore
from holdfast_checks.result import Remedy, Severity

K = EventKind
GPUS = 8
UPKEEP_A_DAY = 300
"""Orders and events that belong to no fault: checks of spares, probes."""
DRAINS_A_DAY = 3
"""Drains by operators, each taken back after some hours."""
ORDERS_A_DAY = 4
"""What operators do."""
OPERATORS = ("ann", "bob", "eve")
ADDRESSES = ("mail", "chat")
"""Which take every message."""
_FAULTS = (
    "gpu.xid 79: GPU has fallen off the bus",
    "gpu.ecc: double-bit error",
    "net.efa: link down",
    "host.disk full: /tmp",
)
_BATCH = 100


@dataclass(frozen=True, slots=True)
class Year:
    nodes: int = 1000
    days: int = 365
    rate: float = 20.0
    """Faults per 1000 node-days."""
    seed: int = 1
    lemons: int = 10
    """Nodes with a tenth of all faults."""


def write(store: SqlStore, year: Year, until: datetime) -> int:
    """All of it, ending at that time; how many incidents there are. The store is empty before."""
    lease = store.take_lease("bench", until, 3600)
    assert lease is not None
    pending: list[Change] = []
    count = 0
    for change in _changes(year, until):
        pending.append(change)
        count += len(change.incidents)
        if len(pending) == _BATCH:
            store.commit(_joined(pending), lease.fence)
            pending = []
    store.commit(_joined(pending), lease.fence)
    return count


def _joined(changes: list[Change]) -> Change:
    return Change(
        incidents=tuple(i for c in changes for i in c.incidents),
        recoveries=tuple(r for c in changes for r in c.recoveries),
        intents=tuple(i for c in changes for i in c.intents),
        events=tuple(e for c in changes for e in c.events),
    )


def _changes(year: Year, until: datetime) -> Iterator[Change]:
    chance = random.Random(year.seed)
    begin = until - timedelta(days=year.days)
    faults = round(year.nodes * year.days * year.rate / 1000)
    number = 0
    for day in range(year.days):
        midnight = begin + timedelta(days=day)
        checks = tuple(_checks(chance, midnight, year.nodes))
        events = (*map(_checked, checks), *_operators(chance, midnight, year.nodes))
        yield Change(intents=checks, events=events)
        due = round(faults * (day + 1) / year.days)
        for at_s in sorted(chance.uniform(0, 86_400) for _ in range(due - number)):
            number += 1
            yield _incident(chance, year, number, midnight + timedelta(seconds=at_s), until)


def _checks(chance: random.Random, midnight: datetime, nodes: int) -> Iterator[Intent]:
    for n in range(UPKEEP_A_DAY):
        at = midnight + timedelta(seconds=n * 86_400 / UPKEEP_A_DAY)
        node = f"n{chance.randint(1, nodes)}"
        order = SendOrder(node, "i-1", "boot-1", Verb.VALIDATE, 600.0)
        key = f"{UPKEEP}/SendOrder/{node}/{int(at.timestamp())}"
        yield Intent(key, UPKEEP, order, "a spare", 1, IntentState.DONE, at, n, at, at, outcome=f"{node}: 55 checks OK")


def _checked(check: Intent) -> Event:
    node = check.action.target.node
    detail = {"kind": check.kind, "target": node, "key": check.key}
    return Event(check.planned_at, K.ACTION_DONE, UPKEEP, node, text=check.outcome, detail=detail)


def _operators(chance: random.Random, midnight: datetime, nodes: int) -> Iterator[Event]:
    for n in range(ORDERS_A_DAY):
        who = chance.choice(OPERATORS)
        detail = {"verb": "close", "who": who, "target": "x", "reason": "vendor has replaced the cable"}
        yield Event(midnight + timedelta(hours=8 + n), K.OPERATOR, None, text=f"close by {who}", detail=detail)
    for n in range(DRAINS_A_DAY):
        at, node, who = midnight + timedelta(hours=9 + n), f"n{chance.randint(1, nodes)}", chance.choice(OPERATORS)
        drain = {"by": "foreign", "user": who, "reason": "new firmware", "nodes": node, "count": 1}
        yield Event(at, K.NODE_DRAINED_BY_OTHERS, None, node, text=f"drained by {who}", detail=drain)
        back = at + timedelta(hours=chance.uniform(1, 8))
        yield Event(back, K.NODE_RESUMED_BY_OTHERS, None, node, text="back in service", detail=drain)


def _incident(chance: random.Random, year: Year, number: int, at: datetime, until: datetime) -> Change:
    node = f"n{chance.randint(1, year.lemons) if chance.random() < 0.1 else chance.randint(1, year.nodes)}"
    name, job = f"{number:012x}", JobKey("c", chance.randint(1, 900_000), at - timedelta(hours=3))
    what, closed = chance.choice(_FAULTS), at + timedelta(minutes=chance.uniform(5, 90))
    over = closed < until
    incident = Incident(
        id=name,
        node=node,
        instance_id=f"i-{number:016x}",
        boot_id=f"boot-{number}",
        state=IncidentState.CLOSED if over else IncidentState.REPAIRING,
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        check=what.split(":")[0],
        headline=what,
        fault_at=at,
        opened_at=at + timedelta(seconds=1),
        closed_at=closed if over else None,
        note="its machine was replaced; its checks and its deep checks passed; back in service",
    )
    recovery = Recovery(
        job, 0, name, RecoveryPhase.RUNNING, "ann", 1001, (node, "n2"), (), "gpu", 2 * GPUS, at + timedelta(seconds=2)
    )
    intents = tuple(_intents(name, node, job, at))
    events = (*_events(incident, job, intents, closed), *_notices(incident)) if over else ()
    return Change(incidents=(incident,), recoveries=(recovery,), intents=intents, events=events)


def _intents(name: str, node: str, job: JobKey, at: datetime) -> Iterator[Intent]:
    steps: tuple[tuple[str, Action], ...] = (
        (f"Drain/{node}", Drain(node, "why")),
        ("Requeue/job", Requeue(job, 0)),
        (f"Launch/{node}.0", Launch(node, "i-1", "token")),
        ("Notify/human", Notify("subject", "body")),
        (f"Undrain/{node}", Undrain(node, "mark")),
    )
    for n, (step, action) in enumerate(steps):
        began = at + timedelta(seconds=2 + 30 * n)
        yield Intent(
            f"{name}/{step}/1",
            name,
            action,
            "a fault calls for it",
            1,
            IntentState.DONE,
            began,
            n,
            began,
            began,
            outcome="done",
        )


def _events(incident: Incident, job: JobKey, intents: tuple[Intent, ...], closed: datetime) -> Iterator[Event]:
    at, name, node = incident.fault_at, incident.id, incident.node

    def event(after_s: float, what: EventKind, text: str = "", of: str | None = None, **detail: object) -> Event:
        return Event(min(at + timedelta(seconds=after_s), closed), what, name, node, of, text, detail)

    yield event(0, K.FAULT_OCCURRED, incident.headline)
    yield event(1, K.INCIDENT_OPENED, incident.headline, to="open", check=incident.check, severity="fatal")
    for n, intent in enumerate(intents):
        detail = {"key": intent.key, "kind": intent.kind, "target": node}
        yield event(2 + 30 * n, K.ACTION_PLANNED, intent.reason, **detail)
        yield event(2 + 30 * n, K.ACTION_STARTED, "", **detail)
        yield event(3 + 30 * n, K.ACTION_DONE, "done", **detail)
    yield event(4, K.NODE_OUT, "drained", by="holdfast")
    yield event(4, K.INCIDENT_STATE, "out of service", **{"from": "open", "to": "contained"})
    yield event(5, K.JOB_STOPPED, "run 0 is over", job.text, gpus=2 * GPUS, checkpoint_step=10, stopped_step=14)
    yield event(45, K.JOB_RUNNING, "running again", job.text)
    yield event(70, K.JOB_RESUMED, "resumed from step 10", job.text, lost_steps=4)
    yield event(90, K.INCIDENT_STATE, "replace", **{"from": "contained", "to": "repairing"})
    yield event(200, K.INSTANCE_UP, "the new machine reports")
    yield event(200, K.INCIDENT_STATE, "validating", **{"from": "repairing", "to": "validating"})
    yield event(280, K.NODE_VALIDATED, "55 checks OK")
    yield event(290, K.NODE_RETURNED, "back in service")
    yield event(291, K.INCIDENT_CLOSED, "back in service", **{"from": "validating"})


def _notices(incident: Incident) -> Iterator[Event]:
    """A message that it was healed, to each address."""
    at, subject = incident.fault_at + timedelta(seconds=295), f"{incident.node}: {incident.headline}: healed"
    detail = {"message": f"m{incident.id}", "level": "healed", "topic": "healed", "subject": subject, "stands_for": 1}

    def event(after_s: float, what: EventKind, text: str, **more: object) -> Event:
        when = at + timedelta(seconds=after_s)
        return Event(when, what, incident.id, incident.node, text=text, detail={**detail, "over": False, **more})

    yield event(0, K.NOTICE_MADE, subject, addresses=list(ADDRESSES))
    for name in ADDRESSES:
        text = f"{subject}: {name} took it"
        yield event(1, K.NOTICE_DELIVERED, text, address=name, attempts=1, given_up=False, error="")
