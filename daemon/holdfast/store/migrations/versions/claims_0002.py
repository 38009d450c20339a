"""What a job says of its checkpoints is kept by job and node"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.store.columns import SafeText, UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The node stands in each record already; it becomes part of the key."""
    before = sa.table(
        "checkpoints",
        sa.column("job_id", sa.BigInteger()),
        sa.column("stated_at", UtcDateTime(timezone=True)),
        sa.column("saved_restarts", sa.Integer()),
        sa.column("stamp", sa.BigInteger()),
        sa.column("document", sa.JSON()),
    )
    kept = [dict(row) for row in op.get_bind().execute(sa.select(before)).mappings()]
    op.drop_table("checkpoints")
    after = op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", SafeText(), nullable=False),
        sa.Column("stated_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("saved_restarts", sa.Integer(), nullable=False),
        sa.Column("stamp", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "node"),
    )
    op.create_index("checkpoints_stamp", "checkpoints", ["stamp"], unique=False)
    op.create_index("checkpoints_stated_at", "checkpoints", ["stated_at"], unique=False)
    if kept:
        op.bulk_insert(after, [{**row, "node": row["document"].get("node", "")} for row in kept])
