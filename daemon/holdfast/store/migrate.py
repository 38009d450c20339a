"""The schema: brought up to date when a store is opened, in one transaction under the write lock."""

from __future__ import annotations

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from holdfast.model.errors import ConfigError
from holdfast.store.failures import translated

log = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent / "migrations"


def upgrade(engine: Engine) -> None:
    """Make the schema this release's own. Several processes may do so at once: the first one works, the others wait.

    Raises ConfigError when a newer release has written the schema, Unavailable when the database does not answer."""
    with translated(), engine.begin() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        script = ScriptDirectory.from_config(alembic_config())
        if current == script.get_current_head():
            return
        _refuse_unknown(current, script)
        log.info("store_schema_upgrade before=%s after=%s", current or "empty", script.get_current_head())
        command.upgrade(alembic_config(connection), "head")


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's settings, without its ini file."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _refuse_unknown(current: str | None, script: ScriptDirectory) -> None:
    if current is not None and current not in {s.revision for s in script.walk_revisions()}:
        raise ConfigError(
            f"the store has schema {current}, which this release does not know: "
            "a newer Holdfast wrote it. Install that release, or restore a backup of the older one"
        )
