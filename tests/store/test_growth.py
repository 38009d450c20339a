"""The store stays bounded: old rows are deleted in small batches, reports sooner, and an SQLite file shrinks."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import event, select

from holdfast.model.errors import Unavailable
from holdfast.store import SqlStore, open_store, upkeep
from holdfast.store import tables as t
from holdfast.store.engines import parse_url, writer_engine
from holdfast.store.migrate import BEFORE, COPIES, alembic_config, upgrade
from support.small_disk import small_disk
from support.store_nouns import NOW, finding, later, report


def _reports(store: SqlStore) -> list[int]:
    with store._readers.begin() as connection:
        return sorted(connection.execute(select(t.reports.c.sequence)).scalars())


def test_reports_go_sooner_than_the_rest_and_in_batches(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "BATCH", 3)
    for number in range(10):
        store.accept(report(number, received_at=later(number), findings=(finding(received_at=NOW),)))
    deleted: list[int] = []

    @event.listens_for(store._writer._engine, "after_cursor_execute")
    def _count(_c: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("DELETE FROM reports"):
            deleted.append(cursor.rowcount)  # type: ignore[attr-defined]

    assert store.prune(later(-1000), later(8)) == 8
    assert deleted == [3, 3, 2, 0]
    assert _reports(store) == [8, 9]
    assert len(store.findings()) == 1


def _size(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def _grown(store: SqlStore) -> int:
    for number in range(20):
        node = f"n{number}"
        found = tuple(finding(node=node, component=f"GPU-{n}", summary="x" * 1000) for n in range(100))
        store.accept(report(number, node=node, findings=found))
    assert store.path is not None
    return _size(store.path)


@pytest.mark.slow
def test_what_is_pruned_is_given_back_to_the_file_system(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/holdfast.db")
    before = _grown(store)
    assert store.prune(later(10**6)) > 2000
    assert store.path is not None
    assert _size(store.path) < before / 4
    store.close()


@pytest.mark.slow
def test_a_file_of_an_earlier_release_is_pruned_and_used_again(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE made_before_the_pragma (x)")
    store = open_store(f"sqlite:///{path}")
    before = _grown(store)
    assert store.prune(later(10**6)) > 2000
    assert _size(path) == before
    assert _grown(store) <= before * 1.1
    store.close()


class TestCopyBeforeMigration:
    @pytest.fixture
    def old(self, tmp_path: Path) -> Path:
        """A store as an earlier release made it."""
        path = tmp_path / "holdfast.db"
        engine = writer_engine(parse_url(f"sqlite:///{path}"))
        with engine.begin() as connection:
            command.upgrade(alembic_config(connection), "0001")
            connection.exec_driver_sql("INSERT INTO notes VALUES ('kept', 'yes')")
        engine.dispose()
        return path

    def copies(self, old: Path) -> list[Path]:
        return sorted(old.parent.glob(f"{old.name}{BEFORE}*"))

    def test_it_is_what_was_there(self, old: Path) -> None:
        open_store(f"sqlite:///{old}").close()
        (copy,) = self.copies(old)
        assert copy.name.startswith("holdfast.db.before-0001-")
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
            assert connection.execute("SELECT value FROM notes").fetchall() == [("yes",)]
        assert copy.stat().st_mode & 0o777 == 0o600
        open_store(f"sqlite:///{old}").close()
        assert self.copies(old) == [copy], "a schema that is this release's own needs none"

    def test_a_new_store_needs_none(self, tmp_path: Path) -> None:
        open_store(f"sqlite:///{tmp_path}/new.db").close()
        assert sorted(p.name for p in tmp_path.iterdir()) == ["new.db"]

    def test_without_room_for_it_nothing_is_changed(self, old: Path, tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk") as disk:
            path = disk.path / "holdfast.db"
            with closing(sqlite3.connect(old)) as connection:
                connection.execute("CREATE TABLE bulk (x)")
                connection.execute("INSERT INTO bulk VALUES (zeroblob(5000000))")
                connection.commit()
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            shutil.copy(old, path)
            with pytest.raises(Unavailable, match="full"):
                open_store(f"sqlite:///{path}")
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
            assert [p.name for p in disk.path.iterdir() if "before" in p.name] == []

    def test_the_newest_are_kept(self, old: Path) -> None:
        made = datetime(2026, 3, 1, tzinfo=UTC)
        for n in range(5):
            copy = old.with_name(f"{old.name}{BEFORE}0000-{n}")
            copy.write_text("x")
            stamp = (made - timedelta(days=9 - n)).timestamp()
            os.utime(copy, (stamp, stamp))
        upgrade(writer_engine(parse_url(f"sqlite:///{old}")))
        names = [p.name.partition(BEFORE)[2] for p in self.copies(old)]
        assert len(names) == COPIES
        assert names[:2] == ["0000-3", "0000-4"]
        assert names[2].startswith("0001-")
