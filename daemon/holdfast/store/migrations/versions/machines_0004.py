"""Launches and terminations are remembered for longer than other steps"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("intents_kind", "intents", ["kind", "planned_at"])
