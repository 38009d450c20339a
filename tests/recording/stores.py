"""A database as reviewable SQL and back: SQLite as it was written, or its rows in a PostgreSQL of the same schema."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alembic import command
from sqlalchemy import JSON, Boolean, DateTime, LargeBinary, MetaData, Table, insert, text

from holdfast.store.engines import parse_url, writer_engine
from holdfast.store.migrate import alembic_config


def dump(path: Path) -> list[str]:
    """The database as SQL statements without a transaction around them."""
    with closing(sqlite3.connect(path)) as db:
        statements = [s for s in db.iterdump() if s not in ("BEGIN TRANSACTION;", "COMMIT;")]
        (version,) = db.execute("PRAGMA user_version").fetchone()
    return [*statements, f"PRAGMA user_version={version};"] if version else statements


def parted(statements: Iterable[str]) -> tuple[list[str], list[str]]:
    """The statements that make the schema, and those that fill it."""
    schema: list[str] = []
    rows: list[str] = []
    for statement in statements:
        (rows if statement.startswith(("INSERT", "DELETE")) else schema).append(statement)
    return schema, rows


def restore(path: Path, *scripts: str) -> None:
    """An SQLite database of these scripts, in order. The file must not exist yet."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript("\n".join(("BEGIN;", *scripts, "COMMIT;")))


def copy_to_postgresql(path: Path, url: str) -> None:
    """Every row of an SQLite store in an empty PostgreSQL database of the same schema revision."""
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        names = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: [dict(r) for r in db.execute(f'SELECT * FROM "{name}"')] for name in names}  # noqa: S608
    (revision,) = found.pop("alembic_version")
    engine = writer_engine(parse_url(url))
    try:
        with engine.begin() as connection:
            command.upgrade(alembic_config(connection), revision["version_num"])
        with engine.begin() as connection:
            metadata = MetaData()
            for name, rows in found.items():
                if name.startswith("sqlite_") or not rows:
                    continue
                table = Table(name, metadata, autoload_with=connection)
                connection.execute(insert(table), [_of_postgresql(table, row) for row in rows])
                if "id" in table.c and isinstance(rows[0]["id"], int) and name != "lease":
                    last = max(row["id"] for row in rows)
                    connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), {last})"))
    finally:
        engine.dispose()


def _of_postgresql(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(table.c[name].type, value) for name, value in row.items()}


def _value(kind: object, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Boolean):
        return bool(value)
    if isinstance(kind, DateTime):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    if isinstance(kind, JSON):
        return json.loads(value)
    return bytes(value) if isinstance(kind, LargeBinary) else value
