"""Ingest a report: once, with all its items, in one transaction."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, or_, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

from holdfast.model.agents.report import Clear, Finding, Report, Statement
from holdfast.model.errors import Rejected
from holdfast.ports import Accepted
from holdfast.store import intents, nodes, rows
from holdfast.store import tables as t
from holdfast.store.checkpoints import MOST_JOBS, StoredCheckpoint, state, surplus
from holdfast.store.codec import encode
from holdfast.store.columns import UNREADABLE_TIME

log = logging.getLogger(__name__)

MAX_ID = 200
"""Longest name of a node, machine, boot or outbox, in characters: they are parts of an index."""
MAX_NUMBER = 2**63 - 1
MOST_LIVE = 1000
"""Limit of one node's live findings (not cleared, incident not closed). A machine with 8 GPUs and 32 EFA devices has about 200 parts."""

# Built once: this is the hottest path of the store.
_OUTBOX = [t.reports.c[name] == bindparam(name) for name in ("node", "boot_id", "outbox_id")]
_NEWEST = select(func.max(t.reports.c.sequence)).where(*_OUTBOX)
_SAME = select(t.reports.c.sequence).where(*_OUTBOX, t.reports.c.sequence == bindparam("sequence"))


def accept(connection: Connection, report: Report, shown: Collection[int] | None = None) -> Accepted:
    """Store a report. ``shown``: jobs that Slurm shows on the node; None: not known. Raises Rejected for invalid names or numbers."""
    _refuse_nonsense(report)
    name = {
        "node": report.node,
        "boot_id": report.boot_id,
        "outbox_id": report.outbox_id,
        "sequence": report.sequence,
    }
    newest = connection.execute(_NEWEST, name).scalar()
    late = newest is not None and report.sequence <= newest
    if late and connection.execute(_SAME, name).first():
        return Accepted(duplicate=True)
    connection.execute(t.reports.insert(), name | {"received_at": report.received_at})
    _take_items(connection, report, shown)
    return Accepted(duplicate=False, out_of_order=late)


def identity(finding: Finding) -> str:
    """Digest that identifies a repetition: the same fault of the same machine in the same boot, with the same severity.

    A higher severity of the same fault is a separate finding, so that correlation sees it."""
    parts = (
        *(finding.node, finding.instance_id, finding.boot_id, finding.check, finding.component, finding.code),
        *(finding.verdict.value, finding.severity.value, finding.remedy.value),
        *(str(finding.sticky), str(finding.consequence)),
    )
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "replace")).hexdigest()


def _refuse_nonsense(report: Report) -> None:
    if any(len(name) > MAX_ID for name in (report.node, report.instance_id, report.boot_id, report.outbox_id)):
        raise Rejected(f"a name in the report of node {report.node[:40]!r} is longer than {MAX_ID} characters")
    numbers = [report.sequence, *(s.job_id for s in report.statements), *(s.restarts for s in report.statements)]
    if any(not -MAX_NUMBER <= n <= MAX_NUMBER for n in numbers):
        raise Rejected(f"a number in the report of node {report.node} does not fit 64 bits")


def _take_items(connection: Connection, report: Report, shown: Collection[int] | None) -> None:
    _take_findings(connection, report.findings)
    for clear in report.clears:
        _take_clear(connection, report, clear)
    new = [said.job_id for said in report.statements if _take_statement(connection, report, said)]
    if new:
        _keep_few(connection, report.node, shown)
    for outcome in report.outcomes:
        intents.settle_order(connection, report, outcome)
    if report.inventory is not None:
        nodes.take_inventory(connection, report, report.inventory)


def _take_findings(connection: Connection, findings: tuple[Finding, ...]) -> None:
    """Store findings. Repetitions inside the report are counted first, so that a card with thousands of events costs one row."""
    counted: dict[str, dict[str, Any]] = {}
    for finding in findings:
        name = identity(finding)
        row = counted.get(name)
        if row is None:
            counted[name] = _finding_row(finding, name)
        else:
            row["repeats"] += 1
            row["last_fault_at"] = max(row["last_fault_at"], finding.fault_at)
    if counted and (taken := _within(connection, findings[0].node, counted)):
        connection.execute(_count_or_insert(connection.dialect.name), list(taken.values()))


def _within(connection: Connection, node: str, counted: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Drop new findings of a node with more live ones than any machine can have: each is read in every cycle. Repetitions still count."""
    f = t.findings.c
    live = connection.execute(select(func.count()).select_from(t.findings).where(f.node == node, f.live)).scalar() or 0
    if live + len(counted) <= MOST_LIVE:
        return counted
    known = set(connection.execute(select(f.identity).where(f.node == node, f.live)).scalars())
    room, kept = MOST_LIVE - live, {name: row for name, row in counted.items() if name in known}
    new = [name for name in counted if name not in known]
    kept |= {name: counted[name] for name in new[: max(0, room)]}
    if len(kept) < len(counted):
        log.error(
            "event=findings_refused node=%s findings=%d reason='the node has %d open ones'",
            node,
            len(counted) - len(kept),
            live,
        )
    return kept


def _finding_row(finding: Finding, name: str) -> dict[str, Any]:
    return {
        "node": finding.node,
        "instance_id": finding.instance_id,
        "check_id": finding.check,
        "component": finding.component,
        "identity": name,
        "sticky": finding.sticky,
        "live": True,
        "repeats": 0,
        "last_fault_at": finding.fault_at,
        "last_seen_at": finding.received_at,
        "document": encode(replace(finding, id=0, incident_id=None, cleared_at=None))
        | {"verdict": finding.verdict.value},
    }


@cache
def _count_or_insert(dialect: str) -> Insert:
    statement: Any = postgresql.insert(t.findings) if dialect == "postgresql" else sqlite.insert(t.findings)
    new, old = statement.excluded, t.findings.c
    counting: Insert = statement.on_conflict_do_update(
        index_elements=[old.identity],
        index_where=text("live" if dialect == "postgresql" else "live = 1"),  # exactly as in the index
        set_={
            "repeats": old.repeats + new.repeats + 1,
            "last_fault_at": case((new.last_fault_at > old.last_fault_at, new.last_fault_at), else_=old.last_fault_at),
            "last_seen_at": case((new.last_seen_at > old.last_seen_at, new.last_seen_at), else_=old.last_seen_at),
        },
    )
    return counting


def _take_clear(connection: Connection, report: Report, clear: Clear) -> None:
    """Clear this machine's findings of persistent (sticky) state. Findings of events stay: only repair or an operator ends them. A fault
    dated in the future was seen before the clock was set back."""
    f = t.findings.c
    before = or_(f.last_fault_at <= clear.cleared_at, f.last_fault_at > report.received_at)
    connection.execute(
        t.findings.update()
        .where(f.node == report.node, f.live, f.sticky)
        .where(f.instance_id == report.instance_id, f.check_id == clear.check, f.component == clear.component)
        .where(before)
        .values(cleared_at=clear.cleared_at, live=False)
    )


def _take_statement(connection: Connection, report: Report, said: Statement) -> bool:
    """Apply a statement. True: the node had no record of the job."""
    c = t.checkpoints.c
    row = connection.execute(
        select(c.document, c.stated_at, c.saved_restarts).where(c.job_id == said.job_id, c.node == report.node)
    ).first()
    record = rows.checkpoint_of(row.document, said.job_id, report.node) if row else None
    kept = None
    if row is not None and record is not None:
        stated_at = said.at if row.stated_at == UNREADABLE_TIME else row.stated_at
        kept = StoredCheckpoint(record, stated_at, row.saved_restarts)
    after = state(kept, said, report.received_at, report.node)
    if isinstance(after, str):
        log.info("event=statement_ignored node=%s job=%s uid=%s reason=%r", report.node, said.job_id, said.uid, after)
        return False
    values = {
        "job_id": said.job_id,
        "node": report.node,
        "stated_at": after.stated_at,
        "saved_restarts": after.saved_restarts,
        "stamp": rows.next_stamp(connection, "checkpoints"),
        "document": encode(after.record),
    }
    rows.upsert(connection, t.checkpoints, [values])
    return row is None


def _keep_few(connection: Connection, node: str, shown: Collection[int] | None) -> None:
    """Delete surplus records. Counted by the index first, whose rows are small."""
    c = t.checkpoints.c
    count = connection.execute(select(func.count()).select_from(t.checkpoints).where(c.node == node)).scalar() or 0
    if count <= MOST_JOBS:
        return
    found = connection.execute(select(c.job_id, c.stated_at).where(c.node == node))
    for job in (gone := surplus({row.job_id: row.stated_at for row in found}, shown)):
        connection.execute(t.checkpoints.delete().where(c.job_id == job, c.node == node))
    if gone:
        log.warning("event=statements_forgotten node=%s jobs=%d reason='the node names too many jobs'", node, len(gone))
