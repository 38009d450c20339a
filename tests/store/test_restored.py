"""A store that was restored from a backup: what it had only planned is left out, and it begins paused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.model.actions.action import IntentState
from holdfast.model.book import Change
from holdfast.store.restore import mark_restored, restore
from holdfast.store.sql import SqlStore, open_store
from support.store_nouns import incident, intent

NOW = datetime.now(UTC)
OLD = NOW - timedelta(hours=5)


def with_steps(folder: Path) -> SqlStore:
    store = open_store(f"sqlite:///{folder}/holdfast.db")
    begun = intent(key="i1/Drain/n1/1", planned_at=OLD)
    store.commit(
        Change(incidents=(incident("i1"),), intents=(begun, intent(key="i1/Requeue/7r0/1", planned_at=OLD))), fence=0
    )
    store.start_intent(begun.key, 0, OLD)
    return store


def states(store: SqlStore) -> list[IntentState]:
    return [i.state for i in store.intents()]


def test_what_was_planned_is_left_out_and_what_was_begun_goes_on(tmp_path: Path) -> None:
    store = with_steps(tmp_path)
    store.backup(tmp_path / "backup.db")
    store.close()
    restore(f"sqlite:///{tmp_path}/holdfast.db", tmp_path / "backup.db", NOW)
    again = open_store(f"sqlite:///{tmp_path}/holdfast.db")
    assert sorted(states(again)) == [IntentState.STARTED, IntentState.WITHHELD]
    assert [i.key for i in again.due_intents()] == ["i1/Drain/n1/1"]
    book = again.load_book(NOW)
    assert book.restored_at == NOW
    assert book.paused is not None
    assert "holdfast resume" in book.paused
    again.close()


def test_a_step_that_is_planned_afterwards_is_taken(tmp_path: Path) -> None:
    store = with_steps(tmp_path)
    store.close()
    mark_restored(f"sqlite:///{tmp_path}/holdfast.db", NOW)
    for _ in range(2):
        again = open_store(f"sqlite:///{tmp_path}/holdfast.db")
        assert IntentState.PLANNED not in states(again)
        again.close()
    again = open_store(f"sqlite:///{tmp_path}/holdfast.db")
    again.commit(Change(intents=(intent(key="i1/Requeue/7r0/2", planned_at=NOW + timedelta(seconds=1)),)), fence=0)
    again.close()
    again = open_store(f"sqlite:///{tmp_path}/holdfast.db")
    assert IntentState.PLANNED in states(again)
    again.close()


def test_any_other_store_is_as_it_was(tmp_path: Path) -> None:
    with_steps(tmp_path).close()
    store = open_store(f"sqlite:///{tmp_path}/holdfast.db")
    assert sorted(states(store)) == [IntentState.PLANNED, IntentState.STARTED]
    assert store.load_book(NOW).restored_at is None
    store.close()
