"""Restore an SQLite store from a backup, with every process that uses it stopped."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holdfast.model.errors import Rejected
from holdfast.store.engines import parse_url, writer_engine
from holdfast.store.migrate import refuse_unknown, upgrade
from holdfast.store.restored import mark, notes

_ENDS = ("", "-wal", "-shm")
"""Suffixes of the files that belong to a database in addition to its main file."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of a restore."""

    schema: str
    """Schema of the backup; a daemon of this release migrates it at its start."""
    replaced: Path | None
    """Where the former store is now; None: there was none."""


def restore(url: str, source: Path, now: datetime) -> Restored:
    """Replace the store with a copy of ``source``. The former store is moved aside, never deleted.

    On an error nothing is changed. Raises ConfigError for a store that is not a local SQLite file or a backup of a newer release,
    Rejected for a backup that is damaged or not a store, for a store that a process still has open, and for a full disk."""
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite":
        raise Rejected(
            "restore PostgreSQL with pg_restore, with every daemon of Holdfast stopped; then holdfast restore --mark"
        )
    store = Path(parsed.database or "")
    if not source.is_file():
        raise Rejected(f"{source} is no file")
    if store.exists() and source.samefile(store):
        raise Rejected(f"{source} is the store itself")
    _prove_unused(store)
    draft = store.with_name(f".{store.name}.restoring")
    try:
        content, schema = _read(source)
        refuse_unknown(schema)
        _write(store, draft, _marked(content, now))
        return Restored(schema, _exchange(store, draft, now))
    except OSError as error:
        raise Rejected(f"cannot write {error.filename or draft}: {error.strerror or error}") from error
    finally:
        for end in (*_ENDS, "-journal"):
            draft.with_name(draft.name + end).unlink(missing_ok=True)


def mark_restored(url: str, now: datetime) -> None:
    """Write the same notes to a store that another tool has restored. Raises ConfigError, Unavailable."""
    engine = writer_engine(parse_url(url))
    try:
        upgrade(engine)
        mark(engine, now)
    finally:
        engine.dispose()


def _prove_unused(store: Path) -> None:
    """Take the exclusive lock, which proves that no process has the file open: in WAL mode every open connection holds a lock. The WAL
    is then written into the file.

    A file that SQLite cannot read is not a database that a process could use."""
    if not store.exists():
        return
    try:
        with closing(sqlite3.connect(store, timeout=0.0, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise Rejected(
                f"a process has {store} open: systemctl stop holdfast-controller holdfast-actor holdfast-quorum, then try again"
            ) from error
    except sqlite3.DatabaseError:
        return


def _read(source: Path) -> tuple[bytes, str]:
    """The backup as one file, and its schema. Read through SQLite, so that its WAL is included; no extra files are left next to it."""
    how = "mode=ro" if source.with_name(f"{source.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{source.resolve().as_uri()}?{how}", uri=True)) as backup:
            found = [row[0] for row in backup.execute("PRAGMA integrity_check(3)")]
            if found != ["ok"]:
                raise Rejected(f"{source} is damaged: {found[0]}")
            schema = backup.execute("SELECT version_num FROM alembic_version").fetchone()
            content = backup.serialize()
    except sqlite3.Error as error:
        raise Rejected(f"{source} cannot be restored: {error}") from error
    if schema is None:
        raise Rejected(f"{source} is not a Holdfast store: it has no schema version")
    return content, str(schema[0])


def _write(store: Path, draft: Path, content: bytes) -> None:
    """Write the file with owner and mode of the former store, or, without one, those that daemons of one group need. Uses only its
    descriptor: the folder belongs to the daemons' user, who could replace the file under this name while root writes."""
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as copy:
        copy.write(content)
        copy.flush()
        former = _former(store)
        os.fchmod(descriptor, 0o660 if former is None else former.st_mode & 0o777)
        if os.geteuid() == 0:
            owner = store.parent.stat() if former is None else former
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        os.fsync(descriptor)


def _marked(content: bytes, now: datetime) -> bytes:
    """The same content, paused. Done in memory: the draft's name could be replaced by another file while root writes."""
    rollback = bytearray(content)
    rollback[18:20] = b"\x01\x01"  # https://sqlite.org/fileformat.html 1.3.3: no WAL, which an in-memory database lacks
    with closing(sqlite3.connect(":memory:")) as copy:
        copy.deserialize(bytes(rollback))
        with copy:
            copy.executemany('INSERT OR REPLACE INTO notes ("key", value) VALUES (?, ?)', sorted(notes(now).items()))
        return copy.serialize()


def _former(store: Path) -> os.stat_result | None:
    try:
        return store.lstat()
    except FileNotFoundError:
        return None


def _exchange(store: Path, draft: Path, now: datetime) -> Path | None:
    aside = store.with_name(f"{store.name}.replaced-{now:%Y%m%dT%H%M%SZ}")
    if aside.exists():
        raise Rejected(f"{aside} exists already: try again in a second")
    there = store.exists()
    for end in reversed(_ENDS):  # the database last: as long as it is in place, its WAL belongs to it
        with suppress(FileNotFoundError):
            store.with_name(store.name + end).rename(aside.with_name(aside.name + end))
    draft.rename(store)
    folder = os.open(store.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return aside if there else None
