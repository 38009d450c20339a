"""Bearer tokens of the API. Only a SHA-256 of a token is ever stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select

from holdfast.model.errors import Rejected
from holdfast.store import tables as t


@dataclass(frozen=True, slots=True)
class TokenRow:
    hash: str
    """SHA-256 of the token, lower-case hex."""
    role: str
    subject: str
    """Whom it is bound to: an agent's node, a user's uid, an operator's name."""
    created_at: datetime
    expires_at: datetime | None
    """None: never."""
    revoked: bool

    def valid(self, now: datetime) -> bool:
        return not self.revoked and (self.expires_at is None or now < self.expires_at)


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


def every(connection: Connection) -> tuple[TokenRow, ...]:
    found = connection.execute(select(t.tokens).order_by(t.tokens.c.created_at, t.tokens.c.hash))
    return tuple(_row(row) for row in found)


def _row(row: Row[Any]) -> TokenRow:
    return TokenRow(**row._mapping)
