"""Database tables. Fields that are searched or changed in place have a column; the rest is one JSON document (:mod:`.codec`).

A change here needs a migration as well: a test compares the two."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Index, Integer, LargeBinary, MetaData, Table, text

from holdfast.store.columns import BigId, Flag, SafeText, SmallWhole, UtcDateTime, Whole, name_columns

metadata = MetaData()

lease = Table(
    "lease",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("holder", SafeText, nullable=False),
    Column("fence", Whole, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
)

notes = Table(
    "notes",
    metadata,
    Column("key", SafeText, primary_key=True),
    Column("value", SafeText, nullable=False),
)

stamps = Table(
    # Counters that grow with every change of a table, so that readers fetch only new rows.
    "stamps",
    metadata,
    Column("name", SafeText, primary_key=True),
    Column("value", Whole, nullable=False),
)

reports = Table(
    # One row per accepted report, to detect repeated deliveries.
    "reports",
    metadata,
    Column("node", SafeText, primary_key=True),
    Column("boot_id", SafeText, primary_key=True),
    Column("outbox_id", SafeText, primary_key=True),
    Column("sequence", Whole, primary_key=True, autoincrement=False),
    Column("received_at", UtcDateTime, nullable=False),
    Index("reports_received_at", "received_at"),
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("node", SafeText, nullable=False),
    Column("is_open", Flag, nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("closed_at", UtcDateTime),
    Column("operated", SmallWhole, nullable=False),  # number of changes by operators
    Column("document", JSON, nullable=False),
    Index("incidents_open", "id", sqlite_where=text("is_open = 1"), postgresql_where=text("is_open")),
    Index("incidents_node", "node", "opened_at"),
    Index("incidents_opened_at", "opened_at"),
    Index("incidents_closed_at", "closed_at"),
)

incident_figures = Table(
    # Closed incidents as questions about many read them, computed from their events; see figures.py for when a row counts.
    "incident_figures",
    metadata,
    Column("incident_id", SafeText, primary_key=True),
    Column("rules", SmallWhole, nullable=False),
    Column("event_id", Whole, nullable=False),  # newest event of the incident when it was computed
    Column("figures", JSON, nullable=False),
    Column("timings", JSON, nullable=False),  # read where each incident is shown
)

findings = Table(
    "findings",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("node", SafeText, nullable=False),
    Column("instance_id", SafeText, nullable=False),
    Column("check_id", SafeText, nullable=False),
    Column("component", SafeText, nullable=False),
    Column("identity", SafeText, nullable=False),  # digest that identifies a repetition: see reports.identity
    Column("sticky", Flag, nullable=False),
    Column("live", Flag, nullable=False),  # repetitions are only counted: neither cleared nor of a closed incident
    Column("incident_id", SafeText),
    Column("cleared_at", UtcDateTime),
    Column("repeats", Whole, nullable=False),
    Column("last_fault_at", UtcDateTime, nullable=False),
    Column("last_seen_at", UtcDateTime, nullable=False),
    Column("document", JSON, nullable=False),
    Index("findings_live", "identity", unique=True, sqlite_where=text("live = 1"), postgresql_where=text("live")),
    Index("findings_node", "node", sqlite_where=text("live = 1"), postgresql_where=text("live")),
    Index("findings_incident", "incident_id"),
    Index(
        "findings_unplaced",
        "last_seen_at",
        sqlite_where=text("incident_id IS NULL"),
        postgresql_where=text("incident_id IS NULL"),
    ),
    sqlite_autoincrement=True,
)

recoveries = Table(
    "recoveries",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("job_id", Whole, nullable=False),
    Column("incident_id", SafeText, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("final_at", UtcDateTime),
    Column("document", JSON, nullable=False),
    Index(
        "recoveries_going_on", "id", sqlite_where=text("final_at IS NULL"), postgresql_where=text("final_at IS NULL")
    ),
    Index("recoveries_final_at", "final_at"),
    Index("recoveries_incident", "incident_id"),
    Index("recoveries_job", "job_id"),
    Index("recoveries_created_at", "created_at"),
)

intents = Table(
    "intents",
    metadata,
    Column("key", SafeText, primary_key=True),
    Column("incident_id", SafeText, nullable=False),
    Column("kind", SafeText, nullable=False),
    Column("node", SafeText),  # the node of an order or action
    Column("state", SafeText, nullable=False),
    Column("settled", Flag, nullable=False),
    Column("planned_at", UtcDateTime, nullable=False),
    Column("position", SmallWhole, nullable=False),
    Column("document", JSON, nullable=False),
    Index("intents_unsettled", "node", "kind", sqlite_where=text("settled = 0"), postgresql_where=text("NOT settled")),
    Index("intents_incident", "incident_id", "planned_at", "position", "key"),
    Index("intents_planned_at", "planned_at"),
    Index("intents_kind", "kind", "planned_at"),
)

marks = Table(
    "marks",
    metadata,
    Column("node", SafeText, primary_key=True),
    Column("document", JSON, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", SafeText, primary_key=True),
    Column("instance_id", SafeText, nullable=False),
    Column("stamp", Whole, nullable=False),
    Column("document", JSON, nullable=False),
    Index("nodes_stamp", "stamp"),
)

inventories = Table(
    # The newest inventory of every machine that reported for a node, serving or not yet.
    "inventories",
    metadata,
    Column("node", SafeText, primary_key=True),
    Column("instance_id", SafeText, primary_key=True),
    Column("boot_id", SafeText, nullable=False),
    Column("received_at", UtcDateTime, nullable=False),
    Column("document", JSON, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("job_id", Whole, primary_key=True, autoincrement=False),
    Column("node", SafeText, primary_key=True),  # node of the reporting agent: no node overwrites another's record
    Column("stated_at", UtcDateTime, nullable=False),  # time of its newest statement
    Column("saved_restarts", SmallWhole, nullable=False),  # run that reported the newest saved step
    Column("stamp", Whole, nullable=False),
    Column("document", JSON, nullable=False),
    Index("checkpoints_stamp", "stamp"),
    Index("checkpoints_stated_at", "stated_at"),
)

job_ends = Table(
    # How each run that failed, was ended or was lost ended, and why.
    "job_ends",
    metadata,
    Column("id", SafeText, primary_key=True),  # the run
    Column("job_id", Whole, nullable=False),
    Column("ended_at", UtcDateTime, nullable=False),
    Column("stamp", Whole, nullable=False),
    Column("document", JSON, nullable=False),
    Index("job_ends_job", "job_id"),
    Index("job_ends_ended_at", "ended_at"),
    Index("job_ends_stamp", "stamp"),
)

brakes = Table(
    "brakes",
    metadata,
    Column("kind", SafeText, primary_key=True),
    Column("document", JSON, nullable=False),
)

suppressions = Table(
    "suppressions",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("document", JSON, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("at", UtcDateTime, nullable=False),
    Column("kind", SafeText, nullable=False),
    Column("incident_id", SafeText),
    Column("node", SafeText),
    Column("job", SafeText),
    Column("text", SafeText, nullable=False),
    Column("detail", JSON, nullable=False),
    Index("events_incident", "incident_id", "id"),
    Index("events_at", "at"),
    Index("events_kind", "kind", "at"),
    Index("events_node", "node", "id"),
    sqlite_autoincrement=True,
)

evidence = Table(
    "evidence",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("incident_id", SafeText, nullable=False),
    Column("node", SafeText, nullable=False),
    Column("received_at", UtcDateTime, nullable=False),
    Column("bundle", LargeBinary, nullable=False),
    Index("evidence_incident", "incident_id", "id"),
    Index("evidence_received_at", "received_at"),
)

idempotency = Table(
    # Operators' orders by the key that the client gave, with the answer: a repeated order is answered and not carried out again.
    "idempotency",
    metadata,
    Column("token", SafeText, primary_key=True),  # its hash
    Column("key", SafeText, primary_key=True),
    Column("request", SafeText, nullable=False),  # digest
    Column("at", UtcDateTime, nullable=False),
    Column("status", SmallWhole),  # null: it has not been answered
    Column("answer", SafeText),
    Index("idempotency_at", "at"),
)
tokens = Table(
    "tokens",
    metadata,
    Column("hash", SafeText, primary_key=True),
    Column("role", SafeText, nullable=False),
    Column("subject", SafeText, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("revoked", Flag, nullable=False),
    Column("last_used_at", UtcDateTime),
    Column("recorded_since", UtcDateTime),  # for a token created before its use was recorded
)

name_columns(metadata)
