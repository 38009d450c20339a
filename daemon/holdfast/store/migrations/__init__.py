"""Alembic's migrations of the store; run by :mod:`holdfast.store.migrate`, never by hand."""
