"""The leader's lease and its fence."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from holdfast.ports import Lease
from holdfast.store import rows
from holdfast.store import tables as t


def take(connection: Connection, holder: str, now: datetime, ttl_s: float, ended: Collection[str] = ()) -> Lease | None:
    """Take or renew the lease; None: another holder's has not expired. ``ttl_s`` 0 returns the caller's own.

    ``ended``: holders known to have ended, whose lease is taken over at once. Each new holder gets a new fence."""
    held = read(connection, lock=True)
    same = held is not None and held.holder == holder
    if held is not None and not same and held.holder not in ended and held.expires_at > now:
        return None
    fence = (held.fence if held else 0) + (0 if same else 1)
    if held is not None and held.fence < 1:  # unreadable: use a value above any fence issued so far
        fence = int(now.timestamp())
    taken = Lease(holder, fence, now + timedelta(seconds=ttl_s))
    row = {"id": 1, "holder": taken.holder, "fence": taken.fence, "expires_at": taken.expires_at}
    rows.upsert(connection, t.lease, [row])
    return taken


def read(connection: Connection, *, lock: bool = False) -> Lease | None:
    query = select(t.lease.c.holder, t.lease.c.fence, t.lease.c.expires_at)
    row = connection.execute(query.with_for_update() if lock else query).first()
    return Lease(row.holder, row.fence, row.expires_at) if row else None
