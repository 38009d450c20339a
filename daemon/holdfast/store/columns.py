"""Column types with the same behavior on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, DateTime, Integer, MetaData, Text
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from holdfast.store.codec import clean
from holdfast.unknown import set_aside

BigId = BigInteger().with_variant(Integer, "sqlite")
"""64-bit id on both databases; SQLite numbers rows automatically only in a column of type INTEGER."""


OLDEST_YEAR, YEARS_END = 1970, 3000
"""Valid years: a time outside of them was not written by Holdfast, and calculations with it may overflow."""
UNREADABLE_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""Returned for an invalid time: SQLite stores any value in a column."""


class _Named:
    """A column type that knows its column, so that an invalid value is reported with its place."""

    column = ""
    """``table.column``, set by :func:`name_columns`."""

    def unreadable(self, value: Any) -> None:
        table, _, name = self.column.partition(".")
        set_aside(table, f"{name}={value!r:.80}", "the column holds a value of another type")


class UtcDateTime(_Named, TypeDecorator[datetime]):
    """A timezone-aware time in UTC, with microseconds. SQLite stores it without a zone; it is always returned aware.

    An invalid time is returned as :data:`UNREADABLE_TIME`."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        kind: TypeEngine[Any] = _SqliteTime() if dialect.name == "sqlite" else DateTime(timezone=True)  # type: ignore[no-untyped-call]
        return dialect.type_descriptor(kind)

    def process_bind_param(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone cannot be stored: {value!r}")
        utc: datetime = value.astimezone(UTC)
        return utc if dialect.name == "postgresql" else utc.replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if not isinstance(value, datetime):
            self.unreadable(value)
            return UNREADABLE_TIME
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class _SqliteTime(sqlite.DATETIME):
    """SQLAlchemy's date format. Invalid text is returned unchanged."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _moment


def _moment(value: Any) -> Any:
    try:
        moment = datetime.fromisoformat(value)
        return moment if OLDEST_YEAR <= moment.year < YEARS_END else value
    except (ValueError, TypeError):
        return value


class SafeText(TypeDecorator[str]):
    """Text that either database accepts, whatever a node sent: a NUL or a lone surrogate becomes U+FFFD."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else clean(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        if value is None or isinstance(value, str):
            return value
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class Whole(_Named, TypeDecorator[int]):
    """A 64-bit integer; an invalid value is returned as 0."""

    impl: Any = BigInteger
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:
        if value is None or type(value) is int:
            return value
        self.unreadable(value)
        return 0


class SmallWhole(Whole):
    """As :class:`Whole`, with 32 bits where the database distinguishes them."""

    impl: Any = Integer
    cache_ok = True


class Flag(_Named, TypeDecorator[bool]):
    """A boolean; an invalid value is returned as true: an open incident, a settled step, a revoked token."""

    impl = Boolean
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_SqliteFlag() if dialect.name == "sqlite" else Boolean())

    def process_result_value(self, value: Any, dialect: Dialect) -> bool | None:
        if value is None or isinstance(value, bool):
            return value
        if type(value) is not int or value not in (0, 1):
            self.unreadable(value)
            return True
        return bool(value)


class _SqliteFlag(Boolean):
    """Read as it is."""

    def result_processor(self, dialect: Dialect, coltype: object) -> None:
        return None


def name_columns(metadata: MetaData) -> None:
    """Set the column's name in the types of all columns."""
    for table in metadata.tables.values():
        for column in table.columns:
            if isinstance(column.type, _Named):
                column.type.column = f"{table.name}.{column.name}"
