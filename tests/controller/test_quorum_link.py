"""The controller's connection to the quorum service: one contract for the real process and the one in memory; and a broken service."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.kit.rooms import Rooms

from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.model.elastic_jobs.rooms import OpenRoom, RoomRules
from holdfast.model.errors import NotFound, OutsideError, Rejected, Unavailable
from holdfast.ports import QuorumRooms
from support.practice import eventually
from support.rooms import Caller, MemoryRooms, socket_of

RULES = RoomRules(1, 4, heartbeat_timeout_s=60.0)
_numbers = itertools.count(100)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rooms]:
    made = Rooms(tmp_path_factory.mktemp("quorum"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Place:
    """The rendezvous behind the port, and a way to meet in them."""

    def __init__(self, rooms: QuorumRooms) -> None:
        self.rooms = rooms
        self.name = f"job-{next(_numbers)}"

    def meet(self, opened: OpenRoom, group: int, start: str) -> str:
        """Let this group meet alone; returns its full name."""
        if isinstance(self.rooms, MemoryRooms):
            name = f"{group}~{start}:u"
            self.rooms.meet(self.name, name)
            return name
        with Caller(opened, group, start) as caller:
            assert caller.asking().result()
        return f"{group}~{start}:u"

    def view(self) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
        room = next(r for r in self.rooms.rooms() if r.name == self.name)
        return room.known, room.members, room.gone

    def kinds(self) -> list[str]:
        return [r.kind for r in self.rooms.records(0, 10_000) if r.room == self.name]


@pytest.fixture(params=[pytest.param("process", marks=pytest.mark.slow), "memory"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "memory":
        return Place(MemoryRooms())
    return Place(QuorumLink(socket_of(request.getfixturevalue("service").folder)))


def test_the_same_room_has_the_same_door(place: Place) -> None:
    opened = place.rooms.open(place.name, RULES)
    assert place.rooms.open(place.name, RoomRules(1, 2)) == opened
    assert place.rooms.open(f"{place.name}.other", RULES).token != opened.token
    assert place.view() == ((), (), frozenset())


def test_an_evicted_run_is_gone_for_good_and_once(place: Place) -> None:
    opened = place.rooms.open(place.name, RULES)
    name = place.meet(opened, 0, "72.0.1")
    assert place.view()[:2] == ((name,), (name,))
    assert place.rooms.evict(place.name, "0~72.0", "holdfast[inc1]: node n1") == (name,)
    assert place.rooms.evict(place.name, "0~72.0", "holdfast[inc1]: node n1") == ()
    known, _, gone = place.view()
    assert (known, set(gone)) == ((), {"0~72.0"})
    assert place.rooms.evict(place.name, "3~99.0", "never met") == ()
    assert place.view()[2] == {"0~72.0", "3~99.0"}
    assert place.kinds() == ["joined", "quorum", "evicted", "evicted"]
    told, unknown = (r for r in place.rooms.records(0, 10_000) if r.room == place.name and r.kind == "evicted")
    assert (unknown.who, unknown.reason) == ("3~99.0", "never met")
    assert (told.who, told.reason, told.at.utcoffset() is not None) == (name, "holdfast[inc1]: node n1", True)


def test_the_record_is_read_on_from_a_number_and_outlives_the_room(place: Place) -> None:
    opened = place.rooms.open(place.name, RULES)
    place.meet(opened, 0, "72.0")
    place.rooms.close(place.name)
    numbers = [r.id for r in place.rooms.records(0, 10_000)]
    assert numbers == sorted(set(numbers))
    assert place.kinds() == ["joined", "quorum", "closed"]
    assert [r.id for r in place.rooms.records(numbers[-2], 10_000)] == numbers[-1:]
    assert [r.id for r in place.rooms.records(0, 2)] == numbers[:2]
    assert place.name not in [r.name for r in place.rooms.rooms()]


def test_when_it_began_counts_from_its_last_opening(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.controller.quorum.quorum_link._PAGE", 2)
    opened = place.rooms.open(place.name, RULES)
    assert place.rooms.began(place.name) is None
    place.meet(opened, 0, "72.0")
    place.rooms.evict(place.name, "0~72.0", "drill")
    first = next(r for r in place.rooms.records(0, 10_000) if r.room == place.name)
    assert place.rooms.began(place.name) == first.at
    place.rooms.close(place.name)
    assert place.rooms.began(place.name) is None
    place.meet(place.rooms.open(place.name, RULES), 0, "73.0")
    mine = [r for r in place.rooms.records(0, 10_000) if r.room == place.name]
    assert place.rooms.began(place.name) == mine[4].at


def test_a_no_is_a_no(place: Place) -> None:
    with pytest.raises(Rejected, match="min_groups"):
        place.rooms.open(place.name, RoomRules(3, 2))
    with pytest.raises(NotFound, match="there is no room"):
        place.rooms.evict("job-1", "0~1.0", "x")
    with pytest.raises(NotFound):
        place.rooms.close("job-1")


def refused(link: QuorumLink) -> str:
    with pytest.raises(OutsideError) as caught:
        link.rooms()
    assert isinstance(caught.value, Unavailable)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
def test_a_service_that_is_away_hangs_or_comes_back(tmp_path: Path) -> None:
    made, link = Rooms(tmp_path), QuorumLink(socket_of(tmp_path), deadline_s=1.0)
    assert "does not answer" in refused(link)
    try:
        made.start()
        opened = link.open("job-1", RULES)
        assert made.process is not None
        made.process.send_signal(signal.SIGSTOP)
        begun_s = time.monotonic()
        assert "does not answer" in refused(link)
        assert time.monotonic() - begun_s < 10.0
        made.process.send_signal(signal.SIGCONT)
        eventually(lambda: bool(link.rooms()), within_s=30.0)
        made.kill()
        assert "does not answer" in refused(link)
        made.start()
        assert link.open("job-1", RULES) == opened
        socket_of(tmp_path).unlink()
        assert "does not answer" in refused(link)
        eventually(lambda: socket_of(tmp_path).exists(), within_s=30.0)
        assert [r.name for r in link.rooms()] == ["job-1"]
    finally:
        made.stop()


ROOM = {"room": "job-1", "known": [], "members": [], "gone": {}}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "ended in the middle"),
        (b'{"ok": tr', "ended in the middle"),
        (b"[1]\n", "unexpected answer"),
        (b'{"ok": true}\n', "rooms is missing"),  # word: JSON
        (b'{"ok": true, "rooms": [7]}\n', "rooms holds no objects"),  # word: JSON
        (json.dumps({"ok": True, "rooms": [ROOM | {"gone": []}]}).encode() + b"\n", "gone is missing"),
        (b"\xff\xfe\n", "ended in the middle"),
    ],
)
def test_an_answer_that_makes_no_sense_is_no_answer(tmp_path: Path, answer: bytes, says: str) -> None:
    """A socket that sends just this stands in for a service of another release, or one that dies while it sends."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)

        def speak() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        speaking = threading.Thread(target=speak)
        speaking.start()
        assert says in refused(QuorumLink(tmp_path / "s"))
        speaking.join(10)
