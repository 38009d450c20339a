"""A store that an earlier release has written is brought up to date without a loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from alembic import command
from sqlalchemy import JSON, Boolean, Engine, column, insert, inspect, select, table

from holdfast.model.access.handover import watched
from holdfast.model.access.tokens import Mark, marks
from holdfast.model.book import CheckpointRecord
from holdfast.store import open_store
from holdfast.store import tables as t
from holdfast.store.codec import decode, encode
from holdfast.store.columns import UtcDateTime
from holdfast.store.engines import parse_url, writer_engine
from holdfast.store.migrate import alembic_config, upgrade
from support.store_nouns import NOW

OLD = table(
    "checkpoints",
    column("job_id"),
    column("stated_at", UtcDateTime),
    column("saved_restarts"),
    column("stamp"),
    column("document", JSON),
)

OLD_TOKENS = table(
    "tokens",
    column("hash"),
    column("role"),
    column("subject"),
    column("created_at", UtcDateTime),
    column("revoked", Boolean),
)


@pytest.fixture
def engine(empty_url: str) -> Iterator[Engine]:
    """An empty database as the first release made it."""
    made = writer_engine(parse_url(empty_url))
    with made.begin() as connection:
        command.upgrade(alembic_config(connection), "0001")
    yield made
    made.dispose()


def test_checkpoints_are_kept_by_node_from_the_second_schema_on(engine: Engine) -> None:
    records = [
        CheckpointRecord(job, 1000, 2, "/ckpt", fenced=True, saved_step=40, saved_at=NOW, node=node)
        for job, node in ((7, "n1"), (8, ""))
    ]
    with engine.begin() as connection:
        rows = [
            {"job_id": r.job_id, "stated_at": NOW, "saved_restarts": 2, "stamp": n, "document": encode(r)}
            for n, r in enumerate(records, 1)
        ]
        connection.execute(insert(OLD), rows)
    upgrade(engine)
    c = t.checkpoints.c
    with engine.begin() as connection:
        found = connection.execute(select(t.checkpoints).order_by(c.job_id)).all()
        assert inspect(connection).get_pk_constraint("checkpoints")["constrained_columns"] == ["job_id", "node"]
    assert [(row.node, row.stated_at, row.saved_restarts, row.stamp) for row in found] == [
        ("n1", NOW, 2, 1),
        ("", NOW, 2, 2),
    ]
    assert [decode(CheckpointRecord, row.document) for row in found] == records


def test_tokens_of_before_the_sixth_schema_go_on_and_replace_nothing(empty_url: str) -> None:
    made = writer_engine(parse_url(empty_url))
    with made.begin() as connection:
        command.upgrade(alembic_config(connection), "0005")
        connection.execute(
            insert(OLD_TOKENS),
            [
                {"hash": f"{n:064x}", "role": "agent", "subject": "n1", "created_at": NOW, "revoked": False}
                for n in (1, 2)
            ],
        )
    made.dispose()
    with closing(open_store(empty_url)) as store:
        since = datetime.now(UTC)
        store.tokens_used({f"{2:064x}": since})
        rows = store.tokens()
        assert watched(rows, {}, since, since) == {}, "what its node uses was not recorded"
        assert all(row.valid(since + timedelta(days=3650)) for row in rows)
        assert Mark.UNUSED not in marks(rows[0], since)
        assert Mark.UNUSED in marks(rows[0], since + timedelta(days=31))
        store.add_token("agent", "n1", f"{3:064x}", since)
        store.tokens_used({f"{3:064x}": since})
        assert len(watched(store.tokens(), {}, since, since)) == 2, "a new one replaces them"
