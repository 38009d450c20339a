"""Bearer tokens of the API. Only a SHA-256 of a token is ever stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, or_, select

from holdfast.model.errors import Rejected
from holdfast.model.tokens import AGENT, TokenRow, handover_end
from holdfast.store import tables as t


def add(connection: Connection, row: TokenRow) -> None:
    """Raises Rejected when the hash is no SHA-256 or is there already."""
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
    """Also an expired or revoked one: ask :meth:`TokenRow.valid`."""
    row = connection.execute(select(t.tokens).where(t.tokens.c.hash == token_hash)).first()
    return _row(row) if row else None


def revoke(connection: Connection, token_hash: str) -> bool:
    """False: there is no such token."""
    done = connection.execute(t.tokens.update().where(t.tokens.c.hash == token_hash).values(revoked=True))
    return done.rowcount > 0


def used(connection: Connection, uses: Mapping[str, datetime]) -> tuple[TokenRow, ...]:
    """Record the last use of each hash. The first use of a node's new token ends the node's older ones a little later: those, as they
    are now."""
    c = t.tokens.c
    ended: list[TokenRow] = []
    first = select(t.tokens).where(c.role == AGENT, c.last_used_at.is_(None), c.recorded_since.is_(None))
    for row in map(_row, connection.execute(first).all()):
        if row.hash in uses and row.replaces_older:
            ended += _end_older(connection, row, uses[row.hash])
    if uses:
        later = or_(c.last_used_at.is_(None), c.last_used_at < bindparam("used_at"))
        connection.execute(
            t.tokens.update().where(c.hash == bindparam("used"), later).values(last_used_at=bindparam("used_at")),
            [{"used": token_hash, "used_at": at} for token_hash, at in uses.items()],
        )
    return tuple(ended)


def _end_older(connection: Connection, new: TokenRow, used_at: datetime) -> list[TokenRow]:
    c, end = t.tokens.c, handover_end(used_at)
    same_node = select(t.tokens).filter_by(role=new.role, subject=new.subject, revoked=False)
    goes_on = or_(c.expires_at.is_(None), c.expires_at > end)
    found = [_row(row) for row in connection.execute(same_node.where(c.created_at < new.created_at, goes_on))]
    for row in found:
        connection.execute(t.tokens.update().where(c.hash == row.hash).values(expires_at=end))
    return [replace(row, expires_at=end) for row in found]


def every(connection: Connection) -> tuple[TokenRow, ...]:
    found = connection.execute(select(t.tokens).order_by(t.tokens.c.created_at, t.tokens.c.hash))
    return tuple(_row(row) for row in found)


def _row(row: Row[Any]) -> TokenRow:
    return TokenRow(**row._mapping)
