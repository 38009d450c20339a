"""Salvage of an agent's memory that was moved aside: readable rows are copied into the new one, one by one."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "meta": ("key", "value"),
    "items": ("seq", "lane", "rank", "key", "boot_id", "monotonic_s", "wall_s", "report", "size", "body"),
    "orders": ("id", "received_s", "outcome"),
}
"""Tables of the memory, each with its key column first."""
_NOT_KEPT = "outbox_id"
"""A new outbox has a new id: it may reuse numbers of the old one, which the controller would take for repetitions."""
_MAGIC = b"SQLite format 3\0"
SUFFIXES = ("-wal", "-shm")


def fits(db: sqlite3.Connection) -> str:
    """Reason why this release cannot use the existing tables; empty: it can. Additions of a newer release are ignored."""
    for table, wanted in COLUMNS.items():
        found = {row[1]: row for row in db.execute(f"PRAGMA table_info({table})")}
        missing = [name for name in wanted if name not in found]
        if missing:
            return f"table {table} has no column {', '.join(missing)}"
        if not found[wanted[0]][5]:
            return f"table {table}: {wanted[0]} does not name its rows"
        foreign = [name for name, row in found.items() if name not in wanted and row[3] and row[4] is None]
        if foreign:
            return f"table {table} wants a value for {', '.join(foreign)}"
    return ""


def foreign(path: Path) -> bool:
    """Whether the file exists, is not empty and is no SQLite database."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(_MAGIC))
    except OSError:
        return False  # SQLite reports what is wrong with it
    return begins not in (b"", _MAGIC)


def damaged(error: sqlite3.Error) -> bool:
    """Whether the file itself is damaged. With a full or failing disk, or another process's lock, the memory is intact."""
    code = getattr(error, "sqlite_errorcode", None)
    blamed = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT)
    return code is None or code & 0xFF in blamed


def salvage(kept: Path, into: sqlite3.Connection) -> None:
    """Copy what can be read. Raises nothing: unreadable rows stay in the file that was moved aside."""
    counts: dict[str, int] = {}
    try:
        with tempfile.TemporaryDirectory(prefix=".salvage-", dir=kept.parent) as folder:
            copy = Path(folder) / "old.db"  # SQLite writes to a file that it opens
            for suffix in ("", *SUFFIXES):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(f"{kept}{suffix}", f"{copy}{suffix}")
            with closing(connect(copy)) as old:
                counts = {table: _copied(old, into, table) for table in COLUMNS}
    except (OSError, sqlite3.Error) as error:
        log.warning("event=memory_not_salvaged path=%s error=%r", kept, str(error))
        return
    log.warning(
        "event=memory_salvaged path=%s items=%d orders=%d facts=%d",
        kept,
        *(counts[t] for t in ("items", "orders", "meta")),
    )


def connect(path: Path) -> sqlite3.Connection:
    """Open a database whose texts are read even where they are no UTF-8. Raises sqlite3.Error."""
    db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
    db.text_factory = lambda data: data.decode(errors="replace")
    return db


def _copied(old: sqlite3.Connection, into: sqlite3.Connection, table: str) -> int:
    before = into.total_changes
    for found in _rows(old, table):
        row = _completed(table, found)
        if row is None:
            continue
        columns = tuple(row)
        query = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
        with contextlib.suppress(sqlite3.IntegrityError):
            into.execute(query, tuple(row.values()))
    return into.total_changes - before


def _rows(old: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    """Read rows forwards up to the first unreadable page, then backwards to it."""
    try:
        there = [row[1] for row in old.execute(f"PRAGMA table_info({table})")]
    except sqlite3.DatabaseError:
        return
    columns = [name for name in COLUMNS[table] if name in there]
    if not columns or columns[0] != COLUMNS[table][0]:
        return
    for order in ("ASC", "DESC"):
        try:
            query = f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED ORDER BY {columns[0]} {order}"  # noqa: S608
            for row in old.execute(query):
                yield dict(zip(columns, row, strict=True))
        except sqlite3.DatabaseError:
            continue
        return


def _completed(table: str, row: dict[str, Any]) -> dict[str, Any] | None:
    """Complete the row for the new table. None: not worth keeping."""
    if table == "meta":
        return None if row["key"] == _NOT_KEPT or row.get("value") is None else row
    if table == "orders":
        return {"received_s": time.time(), **row}
    if not isinstance(row.get("body"), str):
        return None
    whole = {"lane": _lane(row["body"]), "rank": 9, "key": "", "boot_id": "", "monotonic_s": 0.0, "wall_s": time.time()}
    return {**whole, "size": len(row["body"].encode(errors="replace")), **row, "report": None}


def _lane(body: str) -> int:
    """Lane of the item: findings, clears and outcomes go first."""
    try:
        kind = json.loads(body)["kind"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0
    return 0 if kind in ("finding", "clear", "order_outcome") else 1
