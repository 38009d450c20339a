"""The first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.store.columns import SafeText, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "brakes",
        sa.Column("kind", SafeText(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("kind"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stated_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("saved_restarts", sa.Integer(), nullable=False),
        sa.Column("stamp", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("checkpoints_stamp", "checkpoints", ["stamp"], unique=False)
    op.create_index("checkpoints_stated_at", "checkpoints", ["stated_at"], unique=False)
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("kind", SafeText(), nullable=False),
        sa.Column("incident_id", SafeText(), nullable=True),
        sa.Column("node", SafeText(), nullable=True),
        sa.Column("job", SafeText(), nullable=True),
        sa.Column("text", SafeText(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("events_at", "events", ["at"], unique=False)
    op.create_index("events_incident", "events", ["incident_id", "id"], unique=False)
    op.create_index("events_kind", "events", ["kind", "at"], unique=False)
    op.create_table(
        "findings",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("node", SafeText(), nullable=False),
        sa.Column("instance_id", SafeText(), nullable=False),
        sa.Column("check_id", SafeText(), nullable=False),
        sa.Column("component", SafeText(), nullable=False),
        sa.Column("identity", SafeText(), nullable=False),
        sa.Column("sticky", sa.Boolean(), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("incident_id", SafeText(), nullable=True),
        sa.Column("cleared_at", UtcDateTime(timezone=True), nullable=True),
        sa.Column("repeats", sa.BigInteger(), nullable=False),
        sa.Column("last_fault_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("findings_incident", "findings", ["incident_id"], unique=False)
    op.create_index(
        "findings_live",
        "findings",
        ["identity"],
        unique=True,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live"),
    )
    op.create_index(
        "findings_node",
        "findings",
        ["node"],
        unique=False,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live"),
    )
    op.create_index(
        "findings_unplaced",
        "findings",
        ["last_seen_at"],
        unique=False,
        sqlite_where=sa.text("incident_id IS NULL"),
        postgresql_where=sa.text("incident_id IS NULL"),
    )
    op.create_table(
        "incidents",
        sa.Column("id", SafeText(), nullable=False),
        sa.Column("node", SafeText(), nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("opened_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("closed_at", UtcDateTime(timezone=True), nullable=True),
        sa.Column("operated", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("incidents_closed_at", "incidents", ["closed_at"], unique=False)
    op.create_index("incidents_node", "incidents", ["node", "opened_at"], unique=False)
    op.create_index(
        "incidents_open",
        "incidents",
        ["id"],
        unique=False,
        sqlite_where=sa.text("is_open = 1"),
        postgresql_where=sa.text("is_open"),
    )
    op.create_index("incidents_opened_at", "incidents", ["opened_at"], unique=False)
    op.create_table(
        "intents",
        sa.Column("key", SafeText(), nullable=False),
        sa.Column("incident_id", SafeText(), nullable=False),
        sa.Column("kind", SafeText(), nullable=False),
        sa.Column("node", SafeText(), nullable=True),
        sa.Column("state", SafeText(), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("planned_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("intents_incident", "intents", ["incident_id"], unique=False)
    op.create_index("intents_planned_at", "intents", ["planned_at"], unique=False)
    op.create_index(
        "intents_unsettled",
        "intents",
        ["node", "kind"],
        unique=False,
        sqlite_where=sa.text("settled = 0"),
        postgresql_where=sa.text("NOT settled"),
    )
    op.create_table(
        "inventories",
        sa.Column("node", SafeText(), nullable=False),
        sa.Column("instance_id", SafeText(), nullable=False),
        sa.Column("boot_id", SafeText(), nullable=False),
        sa.Column("received_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node", "instance_id"),
    )
    op.create_table(
        "lease",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("holder", SafeText(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "marks",
        sa.Column("node", SafeText(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "nodes",
        sa.Column("name", SafeText(), nullable=False),
        sa.Column("instance_id", SafeText(), nullable=False),
        sa.Column("stamp", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("nodes_stamp", "nodes", ["stamp"], unique=False)
    op.create_table(
        "notes",
        sa.Column("key", SafeText(), nullable=False),
        sa.Column("value", SafeText(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "recoveries",
        sa.Column("id", SafeText(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("incident_id", SafeText(), nullable=False),
        sa.Column("created_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("final_at", UtcDateTime(timezone=True), nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("recoveries_created_at", "recoveries", ["created_at"], unique=False)
    op.create_index("recoveries_final_at", "recoveries", ["final_at"], unique=False)
    op.create_index(
        "recoveries_going_on",
        "recoveries",
        ["id"],
        unique=False,
        sqlite_where=sa.text("final_at IS NULL"),
        postgresql_where=sa.text("final_at IS NULL"),
    )
    op.create_index("recoveries_incident", "recoveries", ["incident_id"], unique=False)
    op.create_index("recoveries_job", "recoveries", ["job_id"], unique=False)
    op.create_table(
        "reports",
        sa.Column("node", SafeText(), nullable=False),
        sa.Column("boot_id", SafeText(), nullable=False),
        sa.Column("outbox_id", SafeText(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("received_at", UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("node", "boot_id", "outbox_id", "sequence"),
    )
    op.create_index("reports_received_at", "reports", ["received_at"], unique=False)
    op.create_table(
        "stamps",
        sa.Column("name", SafeText(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "evidence",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("incident_id", SafeText(), nullable=False),
        sa.Column("node", SafeText(), nullable=False),
        sa.Column("received_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("bundle", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("evidence_incident", "evidence", ["incident_id", "id"], unique=False)
    op.create_index("evidence_received_at", "evidence", ["received_at"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("hash", SafeText(), nullable=False),
        sa.Column("role", SafeText(), nullable=False),
        sa.Column("subject", SafeText(), nullable=False),
        sa.Column("created_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("expires_at", UtcDateTime(timezone=True), nullable=True),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup: the store is never migrated backwards")
