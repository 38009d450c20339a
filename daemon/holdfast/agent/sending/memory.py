"""The agent's memory on disk: one SQLite file that the process's threads use in turn.

SQLite's log makes commits atomic across ``kill -9`` and power loss. A file that cannot be read is moved aside under another name, and a new
one is started with a new outbox id and with what can still be read: a damaged memory must never keep an agent from reporting. The same
applies to tables of another release that this one cannot write to.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
import stat
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.agent.sending.salvage import SUFFIXES, connect, damaged, fits, foreign, salvage
from holdfast.model.errors import ConfigError
from holdfast_checks.aside import FilesSetAside, files_aside, put_aside

log = logging.getLogger(__name__)

FILE = "agent.db"
ASIDE = 2
"""Lane of items that cannot be read: they are kept unchanged, and never sent."""
ASIDE_SINCE = "unreadable_since"
"""When the first of them was found, in seconds since the epoch."""
OWN_FOLDER = "give this agent a separate state_dir, such as /var/lib/holdfast-agent"
"""Remedy. In a folder of another user, that user could replace the agent's files by links to any file of root."""
_EFFECT = "a new memory is started with what can be read of it"
_DO = "nothing is left to do on this node; keep the file for a report of the fault, or remove it"
_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, lane INTEGER NOT NULL, rank INTEGER NOT NULL, key TEXT NOT NULL, boot_id TEXT NOT NULL,
  monotonic_s REAL NOT NULL, wall_s REAL NOT NULL, report INTEGER, size INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS items_by_key ON items (key);
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, received_s REAL NOT NULL, outcome TEXT) WITHOUT ROWID;
"""


def only_agent(folder: Path) -> int:
    """Lock the folder so that only this agent uses it until the process ends; the lock's descriptor. Raises ConfigError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if others := others_may_write(folder):
        log.warning("event=state_dir_shared path=%s who=%r do=%r", folder, others, OWN_FOLDER)
    try:
        descriptor = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"state_dir {folder}: agent.lock cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ConfigError(f"another agent uses state_dir {folder}") from error
    return descriptor


def others_may_write(folder: Path) -> str:
    """Other users, apart from root and this process's user, who may create a file or a link in the folder; empty: none, or it does not
    exist."""
    try:
        found = folder.stat()
    except OSError:
        return ""
    if found.st_uid not in (0, os.geteuid()):
        return f"uid {found.st_uid}"
    if found.st_mode & stat.S_IWOTH:
        return "everybody"
    return f"gid {found.st_gid}" if found.st_mode & stat.S_IWGRP else ""


class AgentMemory:
    """The file. Every method may raise ``sqlite3.Error`` (for example on a full disk); callers handle it."""

    def __init__(self, folder: Path) -> None:
        """Open the file. Raises OSError where the disk refuses it; it is then left unchanged."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / FILE
        self._lock = threading.RLock()
        try:
            self._db = self._opened()
        except sqlite3.Error as error:
            raise OSError(f"{self.path} cannot be opened: {error}") from error

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._open()
        except sqlite3.Error as error:
            if not damaged(error) and not self.path.is_dir():
                raise
            kept = put_aside(self.path, error, _EFFECT, _DO, SUFFIXES)
            db = self._open()
        if kept is not None:
            salvage(kept, db)
        return db

    def _open(self) -> sqlite3.Connection:
        if foreign(self.path):  # SQLite would start a database in a file of a few bytes
            raise sqlite3.DatabaseError("file is not a database")
        db = connect(self.path)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA cache_size=-512")  # KiB: small, the file is small
            if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("quick_check failed")
            db.executescript(_SCHEMA)
            if unfit := fits(db):
                raise sqlite3.DatabaseError(unfit)
            if db.execute("PRAGMA user_version").fetchone()[0] < _VERSION:  # a newer release finds its own file again
                db.execute(f"PRAGMA user_version={_VERSION}")
            db.execute("INSERT OR IGNORE INTO meta VALUES ('outbox_id', ?)", (str(uuid.uuid4()),))
        except sqlite3.Error:
            db.close()
            raise
        return db

    def set_aside(self) -> FilesSetAside:
        """Files of this folder and items of the outbox that cannot be read. Raises nothing: anything that cannot be counted is left out."""
        rows = FilesSetAside()
        with contextlib.suppress(sqlite3.Error):
            since_s = _number(self.get(ASIDE_SINCE))
            if since_s is not None:  # else there is none, and nothing need be searched
                count = int(self.read(f"SELECT count(*) FROM items WHERE lane = {ASIDE}")[0][0])  # noqa: S608
                rows = FilesSetAside(count, since_s if count else None)
        return rows + files_aside(self.path.parent)

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Atomic transaction. ``durable``: on disk (fsync) when it ends; otherwise safe only against ``kill -9``."""
        with self._lock:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def read(self, query: str) -> list[Any]:
        """Rows of a query that changes nothing; works on a full disk too."""
        with self._lock:
            return self._db.execute(query).fetchall()

    def get(self, key: str) -> str | None:
        """One fact by name."""
        with self._lock:
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set(self, key: str, value: str, *, durable: bool = True) -> None:
        with self.transaction(durable=durable) as db:
            set_in(db, key, value)

    def close(self) -> None:
        with self._lock:
            self._db.close()


def set_in(db: sqlite3.Connection, key: str, value: str) -> None:
    """Set a fact inside a running transaction."""
    db.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value))


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
