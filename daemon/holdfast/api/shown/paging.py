"""Pages of lists: opaque cursors, and a scan that fills a page with what a filter lets through. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Query

from holdfast.api.errors import ApiError

T = TypeVar("T")
PagePlace = tuple[Any, ...]

SCANNED = 5000
"""Rows that are read for one page at most: a filter that lets few through ends a page early, and its cursor continues."""
BATCH = 200
_VERSION = 1
_MOST_CHARS = 1024

PageCursor = Annotated[
    str | None,
    Query(
        max_length=_MOST_CHARS,
        description="`next_cursor` of the page before, with the same filters. Opaque: of this release, of no lasting meaning.",
    ),
]
MostOrAll = Annotated[int | None, Query(ge=1, le=1000, description="How many at most; absent: all.")]
InPartition = Annotated[
    list[str] | None, Query(description="Only of nodes or jobs in one of these partitions.", max_length=50)
]


def digest_of(filters: Mapping[str, Any]) -> str:
    """Of what a list was asked for, without limit and cursor."""
    given = {name: value for name, value in filters.items() if value not in (None, [], False)}
    return hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).hexdigest()[:12]


def cursor_of(name: str, digest: str, place: PagePlace) -> str:
    """``name``: of the list; ``place``: the sort key of the last row shown."""
    key = [part.isoformat() if isinstance(part, datetime) else part for part in place]
    return base64.urlsafe_b64encode(json.dumps([_VERSION, name, digest, *key]).encode()).decode().rstrip("=")


def place_of(cursor: str | None, name: str, digest: str, *kinds: type) -> Any:
    """The sort key in a cursor, as a tuple of these types; None: there is no cursor.

    A cursor is not signed: it holds a position and nothing that a reader may not see, and whatever it holds, filters and the caller's
    rights apply again. Raises ApiError 422 for one that is none, of another list, or of other filters."""
    if not cursor:
        return None
    found = _decoded(cursor)
    if found[:2] != [_VERSION, name] or len(found) != 3 + len(kinds):
        raise _wrong("it is no cursor of this list")
    if found[2] != digest:
        raise _wrong("it is of a list with other filters: repeat them, or begin without a cursor")
    return tuple(_part(value, kind) for value, kind in zip(found[3:], kinds, strict=True))


def _decoded(cursor: str) -> list[Any]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _wrong("it cannot be read") from None
    if not isinstance(found, list):
        raise _wrong("it cannot be read")
    return found


def _part(value: Any, kind: type) -> Any:
    try:
        if kind is datetime and isinstance(value, str):
            at = datetime.fromisoformat(value)
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if kind is int and type(value) is int and abs(value) < 2**63:
            return value
        if kind is str and isinstance(value, str) and "\0" not in value and value.isprintable():
            return value
    except (ValueError, OverflowError):
        pass
    raise _wrong("it cannot be read")


def _wrong(why: str) -> ApiError:
    return ApiError(422, "invalid", f"cursor: {why}", "cursor")


def page(
    fetch: Callable[[Any, int], Sequence[T]],
    takes: Callable[[T], bool],
    place: Callable[[T], PagePlace],
    start: Any,
    limit: int,
) -> tuple[list[T], PagePlace | None]:
    """At most ``limit`` rows that ``takes`` lets through, from a place on, and the place to continue from; None: there are no more.

    ``fetch``: at most a given number of rows after a place (None: from the start). Where few pass, a page ends after ``SCANNED`` rows."""
    taken: list[T] = []
    at, scanned = start, 0
    while scanned < SCANNED:
        batch = fetch(at, max(limit + 1, BATCH))
        if not batch:
            return taken, None
        for row in batch:
            if takes(row):
                if len(taken) == limit:
                    return taken, at
                taken.append(row)
            at = place(row)
        scanned += len(batch)
    return taken, at


def sliced(
    rows: Sequence[T], place: Callable[[T], PagePlace], start: Any, limit: int | None
) -> tuple[list[T], PagePlace | None]:
    """The same of rows that are all at hand, sorted by their place: smallest first."""
    left = [row for row in rows if start is None or place(row) > start]
    if limit is None or len(left) <= limit:
        return left, None
    return left[:limit], place(left[limit - 1])
