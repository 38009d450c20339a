"""Schema migration when a store is opened, in one transaction under the write lock."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine

from holdfast.model.errors import ConfigError, Rejected, Unavailable
from holdfast.store.failures import translated
from holdfast.store.upkeep import backup_sqlite

log = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent / "migrations"


def upgrade(engine: Engine) -> None:
    """Migrate to this release's schema. Several processes may call it at once: the first one migrates, the others wait.

    An SQLite store is first copied in its folder; if the copy fails, nothing is changed. Raises ConfigError when a newer release has
    written the schema, Unavailable when the database does not answer or there is no space for the copy."""
    with translated(), engine.begin() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        script = ScriptDirectory.from_config(alembic_config())
        if current == script.get_current_head():
            return
        refuse_unknown(current)
        _copy_first(engine.url, current)
        log.info("event=store_schema_upgrade before=%s after=%s", current or "empty", script.get_current_head())
        command.upgrade(alembic_config(connection), "head")


def _copy_first(url: URL, current: str | None) -> None:
    """Copy the store under the write lock: the copy contains everything committed with the old schema."""
    if current is None:
        return
    if url.get_backend_name() != "sqlite":
        log.warning("event=store_schema_upgrade_without_copy reason=postgresql to_do='pg_dump before an upgrade'")
        return
    store = Path(url.database or "")
    target = store.with_name(f"{store.name}{BEFORE}{current}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    try:
        backup_sqlite(url, target)
    except Rejected as error:
        raise Unavailable(
            f"the store needs schema changes, and is copied first: {error}. Make room for a copy of it, then start again"
        ) from error
    log.info("event=store_copied path=%s", target)
    for old in sorted(store.parent.glob(f"{store.name}{BEFORE}*"), key=lambda each: each.stat().st_mtime)[:-COPIES]:
        old.unlink(missing_ok=True)
        log.info("event=store_copy_removed path=%s", old)


BEFORE = ".before-"
"""File name of a copy: the store's name, the copy's schema and the time."""
COPIES = 3
"""Number of copies kept; older ones are removed once a new one is complete."""


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's settings, without its ini file."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def refuse_unknown(schema: str | None) -> None:
    """Raises ConfigError for a schema that a newer release has written."""
    script = ScriptDirectory.from_config(alembic_config())
    if schema is not None and schema not in {s.revision for s in script.walk_revisions()}:
        raise ConfigError(
            f"the store has schema {schema}, which this release does not know: "
            "a newer Holdfast wrote it. Install that release, or restore a backup of the older one"
        )
