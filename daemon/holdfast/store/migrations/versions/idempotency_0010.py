"""Answers to operators' orders are kept for a day by the key that the client gave"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.store.columns import SafeText, SmallWhole, UtcDateTime

revision = "0010"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idempotency",
        sa.Column("token", SafeText(), nullable=False),
        sa.Column("key", SafeText(), nullable=False),
        sa.Column("request", SafeText(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("status", SmallWhole),
        sa.Column("answer", SafeText()),
        sa.PrimaryKeyConstraint("token", "key"),
    )
    op.create_index("idempotency_at", "idempotency", ["at"])
