"""Figures of closed incidents are kept, and read in place of their events

The table is empty at first: the controller fills it in the background, in batches (:mod:`holdfast.controller.keeping.figures_keeper`).
A question that comes before computes what is missing from the events.

An incident's steps are found in their order: upkeep, which never ends, has those of a year."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.store.columns import SafeText, SmallWhole, Whole

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "incident_figures",
        sa.Column("incident_id", SafeText(), nullable=False),
        sa.Column("rules", SmallWhole(), nullable=False),
        sa.Column("event_id", Whole(), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("timings", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("incident_id"),
    )
    op.drop_index("intents_incident", "intents")
    op.create_index("intents_incident", "intents", ["incident_id", "planned_at", "position", "key"])
