"""Bearer tokens of the API. Only a SHA-256 of a token is ever stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, bindparam, or_, select

from holdfast.model.access.tokens import TokenRow
from holdfast.model.errors import Rejected
from holdfast.model.policies.lookback import TOKEN_HANDOVER_S
from holdfast.store import rows
from holdfast.store import tables as t

_ENROLLED, _ALLOWED = "enrolled/", "enrolment_allowed/"
"""Notes: per machine id, when it got which node's token; per node, until when an operator's permission is valid."""


def add(connection: Connection, row: TokenRow) -> None:
    """Add a token. Raises Rejected when the hash is not a SHA-256 or exists already."""
    if len(row.hash) != 64 or not set(row.hash) <= set("0123456789abcdef"):
        raise Rejected("a token is stored as its SHA-256 in lower-case hex, and as nothing else")
    if find(connection, row.hash) is not None:
        raise Rejected("this token exists already")
    connection.execute(
        t.tokens.insert(),
        {
            "hash": row.hash,
            "role": row.role,
            "subject": row.subject,
            "created_at": row.created_at,
            "expires_at": row.expires_at,
            "revoked": row.revoked,
            "last_used_at": row.last_used_at,
            "recorded_since": row.recorded_since,
        },
    )


def find(connection: Connection, token_hash: str) -> TokenRow | None:
    """The token of this hash, even if expired or revoked: check :meth:`TokenRow.valid`."""
    row = connection.execute(select(t.tokens).where(t.tokens.c.hash == token_hash)).first()
    return _row(row) if row else None


def revoke(connection: Connection, token_hash: str) -> bool:
    """Revoke a token. False: there is none."""
    done = connection.execute(t.tokens.update().where(t.tokens.c.hash == token_hash).values(revoked=True))
    return done.rowcount > 0


def allow_enrolment(connection: Connection, node: str, until: datetime) -> None:
    rows.upsert(connection, t.notes, [{"key": f"{_ALLOWED}{node}", "value": until.isoformat()}])


def _allowed(connection: Connection, node: str, now: datetime) -> bool:
    until = _note(connection, f"{_ALLOWED}{node}")
    try:
        return until is not None and now < datetime.fromisoformat(until)
    except (ValueError, TypeError):
        return False  # damaged


def enrolment_open(connection: Connection, node: str, machines: Collection[str], now: datetime) -> bool:
    """Whether one of these machines has had no token yet, or an operator's permission for the node is valid."""
    new = any(_note(connection, f"{_ENROLLED}{machine}") is None for machine in machines)
    return new or _allowed(connection, node, now)


def enrol(connection: Connection, row: TokenRow, instance_id: str, *, needs_allowance: bool) -> None:
    """Use up an operator's permission. Raises Rejected if there is none although the machine has had a token, or ``needs_allowance``."""
    before = _note(connection, f"{_ENROLLED}{instance_id}")
    if needs_allowance or before is not None:
        if not _allowed(connection, row.subject, row.created_at):
            why = f"{instance_id} has had one: {before}" if before else f"{instance_id} is not known as its machine"
            raise Rejected(f"{why}; holdfast token allow {row.subject}")
        connection.execute(t.notes.delete().where(t.notes.c.key == f"{_ALLOWED}{row.subject}"))
    add(connection, row)
    given = f"{row.created_at.isoformat()} for {row.subject}"
    rows.upsert(connection, t.notes, [{"key": f"{_ENROLLED}{instance_id}", "value": given}])


def _note(connection: Connection, key: str) -> str | None:
    value: str | None = connection.execute(select(t.notes.c.value).where(t.notes.c.key == key)).scalar()
    return value


def used(connection: Connection, uses: Mapping[str, datetime]) -> None:
    """Record the last use of each hash."""
    c = t.tokens.c
    if uses:
        later = or_(c.last_used_at.is_(None), c.last_used_at < bindparam("used_at"))
        connection.execute(
            t.tokens.update().where(c.hash == bindparam("used"), later).values(last_used_at=bindparam("used_at")),
            [{"used": token_hash, "used_at": at} for token_hash, at in uses.items()],
        )


def end(connection: Connection, hashes: Collection[str], at: datetime) -> tuple[TokenRow, ...]:
    """End tokens that are valid beyond this time, except those used (at any controller) within the handover time before."""
    c, quiet = t.tokens.c, at - timedelta(seconds=TOKEN_HANDOVER_S)
    goes_on = or_(c.expires_at.is_(None), c.expires_at > at)
    unused = or_(c.last_used_at.is_(None), c.last_used_at <= quiet)
    wanted = select(t.tokens).filter_by(revoked=False).where(c.hash.in_(hashes), goes_on, unused).order_by(c.created_at)
    found = [_row(row) for row in connection.execute(wanted).all()]
    for row in found:
        connection.execute(t.tokens.update().where(c.hash == row.hash).values(expires_at=at))
    return tuple(replace(row, expires_at=at) for row in found)


def every(connection: Connection) -> tuple[TokenRow, ...]:
    found = connection.execute(select(t.tokens).order_by(t.tokens.c.created_at, t.tokens.c.hash))
    return tuple(_row(row) for row in found)


def _row(row: Row[Any]) -> TokenRow:
    return TokenRow(**row._mapping)
