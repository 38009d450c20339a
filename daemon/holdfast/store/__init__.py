"""The store: all state that must survive a restart, in SQLite or PostgreSQL. See :func:`open_store` and :class:`holdfast.ports.Store`."""

from __future__ import annotations

from holdfast.store.sql import SqlStore, open_store, read_tokens

__all__ = ["SqlStore", "open_store", "read_tokens"]
