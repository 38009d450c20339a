"""The leader's lease and its fence."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from holdfast.ports import Lease
from holdfast.store import rows
from holdfast.store import tables as t


def take(connection: Connection, holder: str, now: datetime, ttl_s: float, ended: Collection[str] = ()) -> Lease | None:
    """Take or renew it; None: another one's has not run out. ``ttl_s`` 0 gives one's own back.

    ``ended``: holders that have ended for certain, whose lease is not waited for. Each new holder gets a new fence."""
    held = read(connection, lock=True)
    same = held is not None and held.holder == holder
    if held is not None and not same and held.holder not in ended and held.expires_at > now:
        return None
    fence = (held.fence if held else 0) + (0 if same else 1)
    if held is not None and held.fence < 1:  # it could not be read: greater than any that was counted
        fence = int(now.timestamp())
    taken = Lease(holder, fence, now + timedelta(seconds=ttl_s))
    row = {"id": 1, "holder": taken.holder, "fence": taken.fence, "expires_at": taken.expires_at}
    rows.upsert(connection, t.lease, [row])
    return taken


def read(connection: Connection, *, lock: bool = False) -> Lease | None:
    query = select(t.lease.c.holder, t.lease.c.fence, t.lease.c.expires_at)
    row = connection.execute(query.with_for_update() if lock else query).first()
    return Lease(row.holder, row.fence, row.expires_at) if row else None
