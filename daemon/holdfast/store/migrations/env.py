"""Alembic's entry: runs the migrations on the connection that :mod:`holdfast.store.migrate` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from holdfast.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,  # SQLite too: the engine begins its transactions explicitly
    render_as_batch=True,
    user_module_prefix="",
)
with context.begin_transaction():
    context.run_migrations()
