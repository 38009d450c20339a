"""Database engines: one for the writer, one for readers, configured so that both databases behave alike."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from holdfast.model.errors import ConfigError
from holdfast.store.codec import parsed
from holdfast.store.mounts import network_type

log = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 5.0
"""How long one attempt waits for another process's write."""
STATEMENT_TIMEOUT_S = 15.0
"""PostgreSQL ends a statement, or an idle transaction of a client that went away, after this time."""
CONNECT_TIMEOUT_S = 5
READERS = 8
LOG_BYTES = 64 * 2**20
"""SQLite's WAL is truncated to this size when it is empty; it grows further while a long read holds it."""

_WRITE_LOCK = 0x686F6C64  # any fixed number: advisory locks are per database
MOUNTS = Path("/proc/mounts")


def parse_url(text: str, mounts: Path = MOUNTS) -> URL:
    """The database that the configuration names: ``sqlite:////path`` or ``postgresql://…``.

    Raises ConfigError for another kind, SQLite without a file, a missing folder, a network file system."""
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise ConfigError(
            "store.url is not a database URL: use sqlite:////var/lib/holdfast/holdfast.db or postgresql://user@host/name"
        ) from error
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise ConfigError(f"store.url names {url.drivername}: Holdfast keeps its state in sqlite or postgresql")
    return url.set(database=str(_checked_path(url, mounts)))


def shown_url(text: str) -> str:
    """What may be shown of ``store.url``: no user, no password, no parameters, in which a password may be, too. Raises ConfigError."""
    url = parse_url(text)
    kind, port = url.get_backend_name(), f":{url.port}" if url.port else ""
    return f"{kind}://{url.host or ''}{port}/{url.database or ''}"


def _checked_path(url: URL, mounts: Path) -> Path:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise ConfigError("store.url names no file: an SQLite store must be a file, sqlite:////path/holdfast.db")
    path = Path(url.database).resolve()
    if not path.parent.is_dir():
        raise ConfigError(f"store.url: the folder {path.parent} does not exist")
    kind = network_type(PurePosixPath(path), _read(mounts))
    if kind is not None:
        raise ConfigError(
            f"store.url: {path} lies on a network file system ({kind}), where SQLite loses data: use a local disk or PostgreSQL"
        )
    return path


def _make_private(path: Path) -> None:
    """Create a new database file with access for owner and group only: it holds evidence, users' paths and token hashes.

    An existing file is not opened: closing it would release every lock that this process has on it (POSIX). The next process to close
    the database would then assume that it is the last, and remove the WAL to which this process still writes."""
    with contextlib.suppress(OSError):  # SQLite reports any problem with it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o660))


def _read(mounts: Path) -> str:
    try:
        return mounts.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        log.warning("event=mounts_unreadable path=%s error=%s", mounts, error)
        return ""


def writer_engine(url: URL) -> Engine:
    """Engine with one connection; every transaction takes the database's write lock at its start."""
    if url.get_backend_name() == "sqlite":
        engine = _sqlite(url, begin="BEGIN IMMEDIATE", read_only=False, size=1)
    else:
        engine = _postgresql(url, size=1, isolation="READ COMMITTED")
        event.listen(engine, "begin", _take_write_lock)
    return engine


def reader_engine(url: URL) -> Engine:
    """Engine with a few connections; every transaction is a read-only snapshot."""
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, begin="BEGIN", read_only=True, size=READERS)
    engine = _postgresql(url, size=READERS, isolation="REPEATABLE READ")
    return engine.execution_options(postgresql_readonly=True)


def _sqlite(url: URL, *, begin: str, read_only: bool, size: int) -> Engine:
    _make_private(Path(url.database or ""))
    engine = create_engine(
        url, pool_size=size, max_overflow=0, pool_timeout=2 * BUSY_TIMEOUT_S, json_deserializer=parsed
    )

    def on_connect(raw: Any, _record: Any) -> None:
        raw.text_factory = _text
        raw.isolation_level = None  # transactions are started explicitly below, DDL included
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        if not read_only:
            cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only for a file without tables; later it has no effect
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        if read_only:
            cursor.execute("PRAGMA query_only = ON")
        cursor.close()

    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine


def _text(data: bytes) -> str:
    """Decode text leniently: a damaged value must not make other rows unreadable."""
    return data.decode(errors="replace")


def _postgresql(url: URL, *, size: int, isolation: Any) -> Engine:
    arguments: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "holdfast",
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": int(STATEMENT_TIMEOUT_S * 1000),
    }
    limits = {
        "lock_timeout": BUSY_TIMEOUT_S,
        "statement_timeout": STATEMENT_TIMEOUT_S,
        "idle_in_transaction_session_timeout": STATEMENT_TIMEOUT_S,
    }
    if "options" not in url.query:
        arguments["options"] = " ".join(f"-c {name}={int(limit_s * 1000)}" for name, limit_s in limits.items())
    return create_engine(
        url,
        pool_size=size,
        max_overflow=0,
        pool_timeout=2 * BUSY_TIMEOUT_S,
        pool_pre_ping=True,
        json_deserializer=parsed,
        isolation_level=isolation,
        connect_args=arguments,
    )


def _take_write_lock(connection: Connection) -> None:
    """Allow one writing transaction at a time, as in SQLite: event ids then grow in commit order for every reader."""
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITE_LOCK})")
