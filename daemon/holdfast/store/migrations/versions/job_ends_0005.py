"""How runs of jobs ended, and why, is on record"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.store.columns import SafeText, UtcDateTime, Whole

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_ends",
        sa.Column("id", SafeText(), nullable=False),
        sa.Column("job_id", Whole, nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=False),
        sa.Column("stamp", Whole, nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("job_ends_job", "job_ends", ["job_id"])
    op.create_index("job_ends_ended_at", "job_ends", ["ended_at"])
    op.create_index("job_ends_stamp", "job_ends", ["stamp"])
