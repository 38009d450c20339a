"""Schema, outages, grouped commits, several processes, kill -9."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, event, text

from holdfast.model.book import Change
from holdfast.model.errors import ConfigError, Rejected, Unavailable
from holdfast.store import SqlStore, engines, open_store
from holdfast.store import tables as t
from holdfast.store.engines import parse_url, writer_engine
from holdfast.store.writer import Writer
from support.store_nouns import NOW, finding, incident, report


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    made = writer_engine(parse_url(store_url))
    yield made
    made.dispose()


def test_an_empty_database_gets_the_schema_and_keeps_it(empty_url: str) -> None:
    first = open_store(empty_url)
    first.commit(Change(incidents=(incident(),)), fence=0)
    first.close()
    again = open_store(empty_url)
    assert set(again.load_book(NOW).incidents) == {"inc1"}
    again.close()


@pytest.mark.slow
def test_several_processes_may_open_an_empty_database_at_once(empty_url: str) -> None:
    opened: list[SqlStore] = []
    threads = [threading.Thread(target=lambda: opened.append(open_store(empty_url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 3
    for store in opened:
        store.ping()
        store.close()


@pytest.mark.slow
def test_a_process_that_comes_and_goes_takes_nothing_from_another(tmp_path: Path) -> None:
    """The last process to close an SQLite database removes its log: it must know that others are there."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    look = "import sys; from holdfast.store import open_store; s = open_store(sys.argv[1]); print(len(s.incidents())); s.close()"
    store = open_store(url)
    told = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", look, url], capture_output=True, text=True, timeout=60, check=True)
        told.append(done.stdout.strip())
        store.commit(Change(incidents=(incident(),)), fence=0)
    store.close()
    assert told == ["0", "1"]


def test_the_migrations_make_exactly_the_tables(engine: Engine) -> None:
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, t.metadata) == []


def test_a_schema_of_a_newer_release_is_refused(store_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(ConfigError, match="schema 9999, which this release does not know"):
        open_store(store_url)


def test_an_error_undoes_only_its_own_piece_of_a_group(engine: Engine) -> None:
    commits: list[None] = []
    event.listen(engine, "commit", lambda _connection: commits.append(None))
    started, gate = threading.Event(), threading.Event()
    writer = Writer(engine)

    def hold_up(_connection: Connection) -> bool:
        started.set()
        return gate.wait(10)

    def put(key: str) -> Callable[[Connection], str]:
        def insert(connection: Connection) -> str:
            connection.execute(t.notes.insert(), {"key": key, "value": ""})
            return key

        return insert

    def half(connection: Connection) -> None:
        put("half")(connection)
        raise KeyError("half done")

    first = writer.submit(hold_up)
    assert started.wait(10)
    good = [writer.submit(put(k)) for k in ("a", "b", "c")]
    twice = writer.submit(put("a"))
    failed = writer.submit(half)
    last = writer.submit(put("last"))
    gate.set()
    assert first.result(10)
    assert [f.result(10) for f in good] == ["a", "b", "c"]
    with pytest.raises(Rejected, match="the store refused"):
        twice.result(10)
    with pytest.raises(KeyError):
        failed.result(10)
    assert last.result(10) == "last"
    assert len(commits) == 2  # the gate's, and one for all the others
    writer.close()
    with engine.begin() as connection:
        assert sorted(connection.execute(t.notes.select()).scalars()) == ["a", "b", "c", "last"]


def test_after_an_outage_it_goes_on_by_itself(store: SqlStore, store_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE reports RENAME TO away"))
    with pytest.raises((Unavailable, Rejected), match="the store"):
        store.accept(report())
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE away RENAME TO reports"))
    assert not store.accept(report()).duplicate


def test_a_closed_store_says_so(store_url: str) -> None:
    store = open_store(store_url)
    store.close()
    store.close()
    with pytest.raises(Unavailable, match="the store is closed"):
        store.accept(report())


def test_a_database_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="the store does not answer") as caught:
        open_store("postgresql://holdfast@127.0.0.1:1/none")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"not a database" * 100)
    with pytest.raises(Unavailable, match="not a database"):
        open_store(f"sqlite:///{tmp_path}/x.db")


def test_a_lock_held_too_long_is_unavailable_and_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engines, "BUSY_TIMEOUT_S", 0.05)
    store = open_store(f"sqlite:///{tmp_path}/a.db")
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        store.accept(report())
    assert caplog.text.count("store_busy") == 2
    assert store.load_book(NOW).incidents == {}  # readers continue meanwhile
    other.execute("ROLLBACK")
    other.close()
    assert not store.accept(report()).duplicate
    store.close()


@pytest.mark.parametrize(
    ("pragma", "expected"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", 5000)]
)
def test_sqlite_is_set_up_for_durability(tmp_path: Path, pragma: str, expected: object) -> None:
    engine = writer_engine(parse_url(f"sqlite:///{tmp_path}/a.db"))
    with engine.connect() as connection:
        assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == expected
    engine.dispose()


@pytest.mark.slow
def test_several_processes_write_to_one_store(store: SqlStore, store_url: str) -> None:
    other = open_store(store_url)

    def work(one: SqlStore, boot: str) -> None:
        for n in range(20):
            one.accept(report(n, boot_id=boot, findings=(finding(boot_id=boot, code=str(n)),)))

    threads = [threading.Thread(target=work, args=(one, boot)) for one, boot in ((store, "a"), (other, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.load_book(NOW).findings) == 40
    other.close()


WRITE_UNTIL_KILLED = """
    import sys
    from support.store_nouns import event, incident, intent
    from holdfast.model.book import Change
    from holdfast.store import open_store

    store = open_store(sys.argv[1])
    for n in range(100_000):
        name = f"k{n}"
        change = Change(
            incidents=(incident(name),),
            intents=(intent(f"{name}/Drain/n1/1", incident_id=name),),
            events=tuple(event(incident_id=name) for _ in range(20)),
        )
        store.commit(change, fence=0)
        print(n, flush=True)
"""


@pytest.mark.slow
def test_kill_9_leaves_a_change_whole_or_not_at_all(store: SqlStore, store_url: str) -> None:
    path = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-c", textwrap.dedent(WRITE_UNTIL_KILLED), store_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as writer:
        assert writer.stdout is not None
        for _ in range(15):
            acknowledged = int(writer.stdout.readline())
        writer.kill()
    written = {i.id for i in store.incidents(limit=100_000)}
    assert {f"k{n}" for n in range(acknowledged + 1)} <= written
    assert {i.incident_id for i in store.intents(limit=100_000)} == written
    assert all(len(store.events(incident_id=name)) == 20 for name in written)
    assert not store.accept(report()).duplicate  # no lock was left behind


def test_readers_can_write_nothing(store_url: str) -> None:
    reader = engines.reader_engine(parse_url(store_url))
    with reader.begin() as connection, pytest.raises(Exception, match=r"readonly|read-only"):
        connection.execute(t.notes.insert(), {"key": "a", "value": "b"})
    reader.dispose()
