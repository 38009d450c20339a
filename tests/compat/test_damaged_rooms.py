"""The quorum service's rendezvous and record, and the controller's note of what it read there: damaged, or of another release."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.controller.quorum.quorum_note import NOTE, read_note
from holdfast.controller.quorum.quorum_watch import QuorumWatch
from holdfast.decisions.elastic.ledger import Read, fold
from holdfast.model.book import World
from holdfast.model.elastic_jobs.rooms import RoomRecord
from holdfast.model.event import EventKind
from holdfast.model.policies.policy import Policy
from holdfast.quorum.nouns import Departure, RoomEvent
from holdfast.quorum.state import QuorumStore
from holdfast.store import SqlStore, open_store
from recording import quorum
from recording.releases import releases, script
from recording.stores import restore
from support.quorum_site import Site, with_site

NEWEST = releases()[-1]
ROOM = quorum.ROOM
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAMAGES: dict[str, Callable[[str], object]] = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty": lambda _text: "",
    "a list": lambda _text: "[1]",
    "null": lambda _text: "null",
    "deep": lambda _text: "[" * 100_000,
    "blob": lambda _text: b"\xff\xfe\x00",
    "half a pair": lambda _text: '{"port": "\\ud800"}',
    "wrong types": lambda text: json.dumps({key: [key] for key in json.loads(text)}),
    "texts for numbers": lambda text: json.dumps({k: str(v) for k, v in json.loads(text).items()}),
}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The quorum service's tables as the newest recorded release left them."""
    restore(tmp_path / "holdfast.db", script(NEWEST, "quorum"))
    return tmp_path / "holdfast.db"


def changed(path: Path, table: str, change: Callable[[str], object]) -> list[object]:
    """Change every document of a table; what they are now."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(f"SELECT rowid, document FROM {table}").fetchall()  # noqa: S608
        made = [(change(text), number) for number, text in rows]
        db.executemany(f"UPDATE {table} SET document = ? WHERE rowid = ?", made)  # noqa: S608
        db.execute(f"UPDATE {table} SET document = CAST(document AS TEXT)")  # noqa: S608
        db.commit()
    return [document for document, _ in made]


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith(f"event={event} ")]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_room_that_cannot_be_read_is_set_aside_and_can_be_opened_again(
    database: Path, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    (document,) = changed(database, "quorum_rooms", DAMAGES[how])

    async def scene(site: Site) -> None:
        assert (await site.do(do="status"))["rooms"] == []
        opened = await site.do(do="open", room=ROOM, rules={})
        assert opened["ok"]
        events = await site.do(do="events", room=ROOM)
        assert events["events"][-1]["kind"] == "closed"
        assert (await site.do(do="set_aside"))["count"] == 1

    with_site(tmp_path, scene)
    with closing(sqlite3.connect(database)) as db:
        db.text_factory = lambda data: data.decode(errors="replace")
        ((name, kept),) = db.execute("SELECT name, document FROM quorum_unreadable").fetchall()
    assert name == ROOM
    if how in ("cut off", "a list", "null", "deep"):
        assert kept == document
    (line,) = lines(caplog, "room_unreadable")
    assert " do=" in line


def test_what_a_newer_release_added_to_a_room_is_passed_over(database: Path) -> None:
    def newer(text: str) -> str:
        document = json.loads(text)
        document |= {"colour": "red"}
        document["rules"]["patience_s"] = 4.0
        for member in document["last"]["members"]:
            member["zone"] = "a"
            member["identity"]["shard"] = 3
        document["gone"]["9~9.0"] = ["banished", "x"]
        return json.dumps(document)

    changed(database, "quorum_rooms", newer)
    with closing(QuorumStore(f"sqlite:///{database}")) as state:
        (kept,) = state.load(NOW)
        assert state.set_aside().count == 0
    assert kept.snapshot.last is not None
    assert kept.snapshot.gone["9~9.0"].why is Departure.EVICTED


@pytest.mark.parametrize("how", DAMAGES)
def test_a_record_that_cannot_be_read_hides_no_other(database: Path, how: str) -> None:
    changed(database, "quorum_events", DAMAGES[how])
    with closing(QuorumStore(f"sqlite:///{database}")) as state:
        state.record("job-71", [(NOW, RoomEvent("closed"))])
        found = state.happened()
    assert {r.event.kind for r in found[:-1]} <= {"unreadable"}
    assert found[-1].event.kind == "closed"
    records = [RoomRecord(r.id, r.room, r.at, r.event.kind) for r in found]
    read, _ = fold(Read(), records, {})
    assert read.after_id == found[-1].id


def test_a_record_of_a_newer_release_is_read_as_far_as_it_is_known(database: Path) -> None:
    changed(database, "quorum_events", lambda text: json.dumps({**json.loads(text), "zone": "a"}))
    with closing(QuorumStore(f"sqlite:///{database}")) as state:
        assert [r.event.kind for r in state.happened()][:4] == ["joined", "joined", "joined", "quorum"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'store.db'}")) as opened:
        yield opened


class Records(QuorumLink):
    """A quorum service with two records."""

    def records(self, after_id: int, limit: int) -> tuple[RoomRecord, ...]:
        found = [RoomRecord(n, "job-7", NOW, "joined", who=f"{n}~7.0:u") for n in (1, 2)]
        return tuple(r for r in found if r.id > after_id)[:limit]


class Stopped:
    def now(self) -> datetime:
        return NOW

    def monotonic_s(self) -> float:
        return 0.0


NOTES = {
    "cut off": '{"after_id": 1, "roo',
    "empty": "",
    "a list": "[]",
    "deep": "[" * 100_000,
    "wrong types": '{"after_id": "1", "rooms": 3}',  # word: JSON
    "rooms of other types": (  # word: a test's key
        '{"after_id": 1, "rooms": '  # word: JSON
        '{"job-7": {"members": 4, "losses": {"1": {"groups": "x"}}}}}'
    ),
    "half a pair": '{"after_id": 1, "rooms": {"\\ud800": {"members": ["\\udfff"], "losses": {}}}}',  # word: JSON
    "of a newer release": (
        '{"after_id": 1, "zone": 4, "rooms": '  # word: JSON
        '{"job-7": {"members": [], "losses": {"1": {"groups": 2, "x": 1}}}}}'
    ),
}


@pytest.mark.parametrize("how", NOTES)
def test_a_note_of_what_was_read_ends_nobody_and_repeats_nothing(
    store: SqlStore, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world = World(NOW, Policy(), store.load_book(NOW), None)
    watch = QuorumWatch(Records(tmp_path / "none.sock"), store, Stopped())
    lease = store.take_lease("me", NOW, 60.0)
    assert lease is not None
    watch.read_on(world, lease.fence)
    assert len(joined(store)) == 2
    store.set_note(NOTE, NOTES[how])
    watch.read_on(world, lease.fence)
    watch.read_on(world, lease.fence)
    repeated = 1 if read_note(NOTES[how]) is not None else 0  # it says that the first record alone was read
    assert len(joined(store)) == 2 + repeated
    said = store.note(NOTE)
    assert said is not None
    assert json.loads(said)["after_id"] == 2
    assert len(lines(caplog, "note_unreadable")) == 1 - repeated


def joined(store: SqlStore) -> list[int]:
    return [int(str(e.detail["record"])) for e in store.events(kinds=(EventKind.QUORUM_JOINED,))]
