"""Orders by the key that the client gave (:mod:`holdfast.model.operators.idempotency`)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, func, select

from holdfast.model.errors import Rejected
from holdfast.model.operators.idempotency import KEPT, MOST_KEYS, FirstOrder
from holdfast.store import tables as t


def begin(connection: Connection, token: str, key: str, request: str, at: datetime) -> FirstOrder | None:
    """Take the key for this order. The order that has it already; None: this one has it now. Raises Rejected for too many keys."""
    c = t.idempotency.c
    connection.execute(t.idempotency.delete().where(c.at <= at - KEPT))
    row = connection.execute(select(t.idempotency).where(c.token == token, c.key == key)).first()
    if row is not None:
        return FirstOrder(row.request, row.at, row.status, row.answer or "")
    count = connection.execute(select(func.count()).select_from(t.idempotency).where(c.token == token)).scalar() or 0
    if count >= MOST_KEYS:
        raise Rejected(
            f"this token has used {count} idempotency keys within {KEPT.total_seconds() / 3600:.0f} h, as many as may be"
        )
    connection.execute(t.idempotency.insert().values(token=token, key=key, request=request, at=at))
    return None


def finish(connection: Connection, token: str, key: str, status: int, answer: str) -> None:
    """Record the answer."""
    c = t.idempotency.c
    mine = t.idempotency.update().where(c.token == token, c.key == key)
    connection.execute(mine.values(status=status, answer=answer))


def forget(connection: Connection, token: str, key: str) -> None:
    """Give the key back: nothing was done."""
    c = t.idempotency.c
    connection.execute(t.idempotency.delete().where(c.token == token, c.key == key, c.status.is_(None)))
