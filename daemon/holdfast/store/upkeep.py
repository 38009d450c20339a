"""Retention and backup."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Column, Connection, Table, select, tuple_

from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.ids import UPKEEP
from holdfast.store import tables as t

BATCH = 2000
"""Rows deleted in one transaction, which limits how long incoming reports wait."""


BUNDLES = 20
"""The same for evidence bundles, which may have megabytes each."""
PAGES = 1000
"""Pages returned to the file system in one transaction."""


def prune_steps(before: datetime, reports_before: datetime) -> tuple[Callable[[Connection], int], ...]:
    """Deletions, each to be repeated until it returns 0; nothing of an open incident is ever among them.

    ``reports_before``: the limit for the rows that identify repeated reports. Incidents are deleted last, so that an interrupted
    prune finds them again."""
    i, n = t.incidents.c, t.nodes.c
    recent = select(i.id).where(i.is_open | (i.closed_at >= before))
    old = select(i.id).where(~i.is_open, i.closed_at < before)
    serving = select(n.instance_id).where(n.name == t.inventories.c.node)
    e, f, v = t.events.c, t.findings.c, t.inventories.c
    return (
        _step(t.events, e.id, (e.at < before) & (e.incident_id.is_(None) | e.incident_id.not_in(recent))),
        _step(t.findings, f.id, f.incident_id.in_(old) | (f.incident_id.is_(None) & (f.last_seen_at < before))),
        _step(t.intents, t.intents.c.key, t.intents.c.incident_id.in_(old) & t.intents.c.settled),
        _step(
            t.intents,
            t.intents.c.key,
            (t.intents.c.incident_id == UPKEEP) & t.intents.c.settled & (t.intents.c.planned_at < before),
        ),
        _step(
            t.recoveries, t.recoveries.c.id, t.recoveries.c.incident_id.in_(old) & (t.recoveries.c.final_at < before)
        ),
        _step(t.job_ends, t.job_ends.c.id, t.job_ends.c.ended_at < before),
        _batch(t.checkpoints, t.checkpoints.c.stated_at < before),
        _batch(t.reports, t.reports.c.received_at < reports_before),
        _step(t.evidence, t.evidence.c.id, t.evidence.c.incident_id.in_(old), BUNDLES),
        _batch(t.inventories, (v.received_at < before) & v.instance_id.not_in(serving)),
        _step(t.tokens, t.tokens.c.hash, t.tokens.c.expires_at < before),
        _step(t.incident_figures, t.incident_figures.c.incident_id, t.incident_figures.c.incident_id.in_(old)),
        _step(t.incidents, i.id, i.id.in_(old)),
    )


def _batch(table: Table, condition: Any) -> Callable[[Connection], int]:
    """Of a table whose key has several columns."""
    key = tuple_(*table.primary_key.columns)
    some = select(*table.primary_key.columns).where(condition).limit(BATCH)
    return lambda connection: connection.execute(table.delete().where(key.in_(some))).rowcount


def give_back(connection: Connection) -> int:
    """Return some free pages of an SQLite file to the file system; how many there were. 0 also where an earlier release made the file:
    there free pages are used again, and the file grows no further."""
    if connection.exec_driver_sql("PRAGMA auto_vacuum").scalar() != _INCREMENTAL:
        return 0
    left = int(connection.exec_driver_sql("PRAGMA freelist_count").scalar() or 0)
    if left:
        # By the driver's own cursor: SQLAlchemy expects no rows and would step once, which frees one page.
        with closing(connection.connection.cursor()) as cursor:
            cursor.execute(f"PRAGMA incremental_vacuum({PAGES})")
            cursor.fetchall()
    return left


_INCREMENTAL = 2


def _step(table: Table, key: Column[Any], condition: Any, most: int = BATCH) -> Callable[[Connection], int]:
    some = select(key).where(condition).limit(most)
    return lambda connection: connection.execute(table.delete().where(key.in_(some))).rowcount


def backup_sqlite(url: URL, target: Path) -> None:
    """A consistent copy while others write, readable by the owner only; appears under its name only when complete.

    Raises Rejected when the target exists or cannot be written, Unavailable when the database does not answer."""
    if target.exists():
        raise Rejected(f"{target} exists already: a backup overwrites nothing")
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(str(url.database))) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.rename(target)
    except OSError as error:
        raise Rejected(f"cannot write the backup {target}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise Unavailable(f"the backup of the store failed: {error}") from error
    finally:
        for end in ("", "-journal"):
            partial.with_name(partial.name + end).unlink(missing_ok=True)
