"""Retention and backup."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Column, Connection, Table, select

from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.ids import UPKEEP
from holdfast.store import tables as t

BATCH = 2000
"""Rows deleted in one transaction: reports that come in meanwhile wait for no more than that."""


def prune_steps(before: datetime) -> tuple[Callable[[Connection], int], ...]:
    """Deletions, each to be repeated until it returns 0; nothing of an open incident is ever among them.

    Incidents go last, so that a prune that was interrupted finds them again."""
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
        lambda connection: (
            connection.execute(t.checkpoints.delete().where(t.checkpoints.c.stated_at < before)).rowcount
        ),
        lambda connection: connection.execute(t.reports.delete().where(t.reports.c.received_at < before)).rowcount,
        _step(t.evidence, t.evidence.c.id, t.evidence.c.incident_id.in_(old)),
        lambda connection: (
            connection.execute(
                t.inventories.delete().where(v.received_at < before, v.instance_id.not_in(serving))
            ).rowcount
        ),
        _step(t.incidents, i.id, i.id.in_(old)),
    )


def _step(table: Table, key: Column[Any], condition: Any) -> Callable[[Connection], int]:
    some = select(key).where(condition).limit(BATCH)
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
        partial.unlink(missing_ok=True)
