"""A token's last use is recorded"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

from holdfast.store.columns import UtcDateTime

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of the tokens that are there nothing is known before now: none counts as unused for that, and none replaces another."""
    op.add_column("tokens", sa.Column("last_used_at", UtcDateTime()))
    op.add_column("tokens", sa.Column("recorded_since", UtcDateTime()))
    tokens = sa.table("tokens", sa.column("recorded_since", UtcDateTime()))
    op.execute(tokens.update().values(recorded_since=datetime.now(UTC)))
