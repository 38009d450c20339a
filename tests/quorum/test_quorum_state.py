"""The stored form of a rendezvous, on both databases, next to the controller's own tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.quorum.identity import GroupIdentity
from holdfast.quorum.nouns import Departure, GoneMember, Quorum, QuorumMember, RendezvousSnapshot, RoomEvent, Rules
from holdfast.quorum.state import QuorumStore, StoredRendezvous, decode, encode, moving
from holdfast.store import open_store
from support.postgres import PostgresServer

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'holdfast.db'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(server.create())


@pytest.fixture
def state(url: str) -> Iterator[QuorumStore]:
    made = QuorumStore(url)
    yield made
    made.close()


def kept(name: str, quorum_id: int = 7) -> StoredRendezvous:
    member = QuorumMember(
        GroupIdentity("0", "a", "ü"), "0~a~p~0:ü", "http://n1:1", "n1:2", 2**40, 8, True, 2, '{"a": 1}'
    )
    gone = {"1~a": GoneMember(Departure.EVICTED, "node n1: gpu.xid 79"), "2~a:u": GoneMember(Departure.LEFT, "")}
    snapshot = RendezvousSnapshot(
        Rules(min_groups=2), Quorum(quorum_id, (member,)), quorum_id + 1, gone, frozenset({"9"}), done=quorum_id == 9
    )
    return StoredRendezvous(name, 4711, ("10.0.0.1",), snapshot, "0a1b")


def test_a_room_comes_back_as_it_was(state: QuorumStore, url: str) -> None:
    empty = StoredRendezvous("empty", 0, (), RendezvousSnapshot(Rules()))
    for room in (kept("b"), empty, kept("b", 9)):
        state.save(room)
    state.close()
    again = QuorumStore(url)
    assert again.load(NOW) == (kept("b", 9), empty)
    again.drop("b", NOW)
    assert again.load(NOW) == (empty,)
    assert [(r.room, r.at, r.event.kind) for r in again.happened()] == [("b", NOW, "closed")]
    again.close()


def test_rooms_move_to_a_database_of_the_services_own_with_the_end_of_their_record(
    state: QuorumStore, url: str, tmp_path: Path
) -> None:
    """The controller's database had them. The controller reads on from the number that it has read last."""
    with closing(open_store(url)):
        state.save(kept("a"), [(NOW, RoomEvent("joined", "0~a"))])
        state.save(kept("b", 9))
        state.drop("b", NOW)
        moved = json.loads(json.dumps(moving(url)))
    own = QuorumStore(f"sqlite:///{tmp_path / 'quorum.db'}")
    assert own.adopt(moved) == 1
    assert own.load(NOW) == (kept("a"),)
    assert own.happened() == state.happened()
    own.record("a", [(NOW, RoomEvent("lost"))])
    assert own.happened()[-1].id == state.happened()[-1].id + 1
    own.drop("a", NOW)
    assert own.adopt(moved) == 0, "it was used already: its content is old"
    own.close()


def test_a_database_without_rooms_gives_none_and_garbage_is_refused(url: str, tmp_path: Path) -> None:
    with closing(open_store(url)):
        assert moving(url) == {"rooms": [], "events": []}
    with closing(QuorumStore(url)) as state:
        assert (
            state.adopt(
                {"rooms": [["a", encode(kept("a"))]], "events": [[41, "a", NOW.isoformat(), {"kind": "joined"}]]}
            )
            == 1
        )
        state.record("a", [(NOW, RoomEvent("lost"))])
        assert [r.id for r in state.happened()] == [41, 42]
    with closing(QuorumStore(f"sqlite:///{tmp_path / 'quorum.db'}")) as state:
        for garbage in ({}, {"rooms": [1], "events": []}, {"rooms": [], "events": [[-1, "a", "x", {}]]}):
            with pytest.raises((ValueError, TypeError, KeyError)):
                state.adopt(garbage)


def test_a_room_of_an_earlier_version_is_not_done() -> None:
    document = encode(kept("a", 9))
    assert decode("a", document).snapshot.done
    del document["done"]
    assert not decode("a", document).snapshot.done


def test_the_record_is_read_on_from_an_id_and_pruned(state: QuorumStore) -> None:
    joined, formed = RoomEvent("joined", "0~a:u"), RoomEvent("quorum", quorum_id=3, step=8, members=("0~a:u", "1~a:u"))
    state.save(kept("a"), [(NOW - timedelta(days=2), joined), (NOW, formed)])
    state.record("b", [(NOW, joined)])
    first, second, third = state.happened()
    assert [(r.room, r.at, r.event) for r in (first, second)] == [
        ("a", NOW - timedelta(days=2), joined),
        ("a", NOW, formed),
    ]
    assert state.happened(after_id=first.id) == (second, third)
    assert state.happened(after_id=first.id, room="b") == (third,)
    assert state.happened(limit=1) == (first,)
    assert state.prune(NOW - timedelta(days=1)) == 1
    assert state.happened() == (second, third)


def test_it_lives_beside_the_controllers_tables_whoever_comes_first(url: str) -> None:
    for first, second in ((QuorumStore, open_store), (open_store, QuorumStore)):
        for opened in (first(url), second(url)):
            opened.close()
