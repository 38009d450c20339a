"""The store: what must survive, in SQLite or PostgreSQL. See :func:`open_store` and :class:`holdfast.ports.Store`."""

from __future__ import annotations

from holdfast.store.sql import SqlStore, open_store
from holdfast.store.tokens import TokenRow

__all__ = ["SqlStore", "TokenRow", "open_store"]
