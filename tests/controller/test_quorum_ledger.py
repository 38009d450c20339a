"""The quorum service's record as events: their content, their incident, and each exactly once."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.controller.quorum.quorum_note import NOTE
from holdfast.controller.quorum.quorum_watch import QuorumWatch
from holdfast.decisions.elastic.ledger import Read, fold
from holdfast.model.book import Book, World
from holdfast.model.elastic_jobs.rooms import RoomRecord, RoomRules
from holdfast.model.errors import LeaderFencedOff
from holdfast.model.event import Event, EventKind
from holdfast.model.policies.policy import Policy
from holdfast.quorum.nouns import RoomEvent
from support.rooms import T0, MemoryRooms, four_groups, group_job, view_of
from support.simulated.clock import SimClock
from support.simulated.store import MemoryStore

K = EventKind
A, B, C = "0~72.0:a", "1~71.0:b", "2~82.0:c"
RULES = RoomRules(1, 4)
HELD = "holdfast[inc1]: node n3: gpu.xid 79"


def told(events: tuple[Event, ...]) -> list[tuple[str, str | None, bool | None]]:
    return [(e.kind.value.removeprefix("quorum."), e.incident_id, e.detail.get("full")) for e in events]


def play(rooms: MemoryRooms) -> tuple[Event, ...]:
    return fold(Read(), rooms.records(0, 10_000), {j.key.job_id: j for j in four_groups()})[1]


def met() -> MemoryRooms:
    """Three groups that have met in job-71."""
    rooms = MemoryRooms()
    rooms.open("job-71", RULES)
    rooms.meet("job-71", A)
    rooms.now_s += 1
    rooms.meet("job-71", A, B, C)
    return rooms


def again(rooms: MemoryRooms, *members: str) -> None:
    rooms.now_s += 1
    rooms.meet("job-71", *members, step=7)


START = [("joined", None, None), ("formed", None, False), ("joined", None, None), ("joined", None, None)]
START += [("formed", None, False)]


def test_a_loss_is_the_incidents_until_the_job_is_whole() -> None:
    rooms = met()
    rooms.evict("job-71", "2~82.0", HELD)
    again(rooms, A, B)
    again(rooms, A, B, "2~82.1:d")
    events = play(rooms)
    assert told(events[len(START) :]) == [
        ("evicted", "inc1", None),
        ("formed", "inc1", False),
        ("joined", None, None),
        ("formed", "inc1", True),
    ]
    assert [e.text for e in events if e.incident_id] == [
        f"rendezvous job-71: group {C} was shut out: {HELD}",
        "rendezvous job-71: 2 groups continue (quorum 3, step 7)",
        "rendezvous job-71: 3 groups, as many as before the loss (quorum 4, step 7)",
    ]


def test_what_was_left_out_of_a_room_that_is_flooded_is_an_event_and_no_loss() -> None:
    omitted = RoomRecord(9, "job-71", T0, "omitted", reason="120 events left out: more than 2000 an hour")
    rooms = met()
    read, _ = fold(Read(), rooms.records(0, 100), {})
    after, (event,) = fold(read, [omitted], {})
    assert (event.kind, event.text) == (
        K.QUORUM_OMITTED,
        "rendezvous job-71: 120 events left out: more than 2000 an hour",
    )
    assert after.rooms == read.rooms


def test_a_spare_makes_it_whole_with_the_first_quorum() -> None:
    rooms = met()
    rooms.evict("job-71", "2~82.0", HELD)
    again(rooms, A, B, "3~81.0:s")
    assert told(play(rooms))[-1] == ("formed", "inc1", True)


def test_who_fell_silent_before_the_verdict_counts_from_then() -> None:
    rooms = met()
    rooms.now_s += 4.9
    rooms.meet("job-71", A, B)
    rooms.now_s += 0.2
    rooms.tick("job-71")
    again(rooms, A, B)
    rooms.evict("job-71", "2~82.0", HELD)
    again(rooms, A, B, "2~82.1:d")
    kinds = told(play(rooms))[len(START) :]
    assert [k for k in kinds if k[0] != "joined"] == [
        ("lost", None, None),
        ("formed", None, False),
        ("evicted", "inc1", None),
        ("formed", "inc1", True),
    ]


def test_two_incidents_each_have_their_own_word() -> None:
    rooms = met()
    rooms.evict("job-71", "2~82.0", HELD)
    rooms.evict("job-71", "1~71.0", HELD.replace("inc1", "inc2"))
    again(rooms, A)
    again(rooms, A, "1~71.1:x", "2~82.1:y")
    formed = [(e.incident_id, e.detail["full"]) for e in play(rooms) if e.kind is K.QUORUM_FORMED and e.incident_id]
    assert formed == [("inc1", False), ("inc2", False), ("inc1", True), ("inc2", True)]


def test_a_graceful_leave_is_no_loss_and_delays_nobodys() -> None:
    rooms = met()
    rooms.evict("job-71", "2~82.0", HELD)
    rooms._room("job-71").leave(B)
    again(rooms, A, "2~82.1:d")
    assert told(play(rooms))[-1] == ("formed", "inc1", True)


def test_the_same_members_again_are_no_news() -> None:
    rooms = met()
    again(rooms, A, B, C)
    last = rooms.records(0, 100)[-1]
    rooms._record(
        "job-71", RoomEvent("quorum", quorum_id=last.quorum_id + 1, members=last.members)
    )  # after failed commits
    assert told(play(rooms)) == START


def test_an_event_names_the_run_that_slurm_shows() -> None:
    first = next(e for e in play(met()) if e.detail.get("who") == A)
    assert first.job == group_job(72).key.text
    later = fold(Read(), met().records(0, 1), {72: group_job(72, restarts=1)})[1]
    assert later[0].job is None


def test_a_closed_room_is_forgotten_and_an_unknown_word_passed_over() -> None:
    rooms = met()
    rooms.close("job-71")
    newer = replace(rooms.records(0, 1)[0], id=99, kind="dreamt")
    read, events = fold(Read(), (*rooms.records(0, 100), newer), {})
    assert (read.after_id, set(read.rooms)) == (99, {"job-71"})
    assert told(events)[-1] == ("closed", None, None)
    assert fold(Read(), rooms.records(0, 100), {})[0].rooms == {}


def long_story() -> MemoryRooms:
    rooms = met()
    rooms.evict("job-71", "2~82.0", HELD)
    again(rooms, A, B)
    rooms.evict("job-71", "1~71.0", "job 71 was requeued")
    again(rooms, A)
    again(rooms, A, "1~71.1:x", "2~82.1:y")
    return rooms


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=6))
def test_however_it_is_read_the_events_are_the_same(cuts: list[int]) -> None:
    records = long_story().records(0, 1000)
    read, events = Read(), tuple[Event, ...]()
    bounds = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    for begin, end in itertools.pairwise(bounds):
        read, found = fold(read, records[max(begin - 2, 0) : end], {})  # some of it for a second time
        events += found
    assert (read, events) == fold(Read(), records, {})


class Watched:
    """A watch over rendezvous and a store in memory, which a test stops at any point."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.store = MemoryStore()
        lease = self.store.take_lease("test", T0, 1e6)
        assert lease is not None
        self.fence = lease.fence
        self.rooms = long_story()
        self.world = World(T0 + timedelta(seconds=1), Policy(), Book(), view_of(*four_groups()))

    def watch(self) -> QuorumWatch:
        """As after a start of the controller."""
        return QuorumWatch(self.rooms, self.store, self.clock)


def test_a_controller_that_reads_on_after_a_restart_repeats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.controller.quorum.quorum_watch.PAGE", 3)
    place = Watched()
    expected = play(place.rooms)
    for _ in range(3):
        place.watch().read_on(place.world, place.fence)
    stored = place.store.events()
    assert [(e.kind, e.text, e.incident_id) for e in stored] == [(e.kind, e.text, e.incident_id) for e in expected]
    place.watch().read_on(place.world, place.fence + 1)
    assert place.store.events() == stored


def test_what_another_controller_has_read_meanwhile_is_left_to_it() -> None:
    place = Watched()
    slow = place.watch()
    real = place.rooms.records

    def overtaken(after_id: int, limit: int) -> tuple[RoomRecord, ...]:
        found = real(after_id, limit)
        place.rooms.records = real  # type: ignore[method-assign]
        place.watch().read_on(place.world, place.fence)
        return found

    place.rooms.records = overtaken  # type: ignore[method-assign]
    slow.read_on(place.world, place.fence)
    assert len(place.store.events()) == len(play(place.rooms))


def test_who_does_not_lead_writes_nothing() -> None:
    place = Watched()
    with pytest.raises(LeaderFencedOff):
        place.store.record_once(NOTE, None, "x", (), place.fence + 1)
    place.watch().read_on(place.world, place.fence + 1)
    assert place.store.events() == ()
    assert place.store.note(NOTE) is None


def test_the_note_is_read_as_it_was_written() -> None:
    place = Watched()
    place.watch().read_on(place.world, place.fence)
    whole, _ = fold(Read(), place.rooms.records(0, 1000), {})
    assert json.loads(place.store.note(NOTE) or "") == json.loads(json.dumps(asdict(whole)))
    rooms = place.rooms
    again(rooms, A, "1~71.1:x", "2~82.1:y", "3~81.0:z")
    place.watch().read_on(place.world, place.fence)
    assert told(place.store.events())[-2:] == [("joined", None, None), ("formed", None, False)]


def test_a_service_that_is_away_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    place = Watched()
    watch = place.watch()
    place.rooms.away = True
    for _ in range(3):
        assert watch.tend(place.world) is False
        watch.read_on(place.world, place.fence)
    place.rooms.away = False
    for _ in range(3):
        watch.tend(place.world)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[0] for line in lines] == ["event=quorum_service_away", "event=quorum_service_back"]


def test_a_run_that_is_over_is_shut_out_by_the_first_view_after_the_rendezvous_was_read() -> None:
    place = Watched()
    watch = place.watch()

    def tend(state: str) -> bool:
        """A cycle of the loop: Slurm is read, then the rendezvous."""
        now = place.clock.now()
        view = view_of(group_job(72, state=state), *four_groups()[1:], at=now)
        place.clock.advance(0.5)
        return watch.tend(replace(place.world, now=now, view=view))

    assert tend("COMPLETED") is False, "this view is older than the reading: the run may have started in between"
    place.rooms.away = True
    assert tend("COMPLETED") is False
    place.rooms.away = False
    assert tend("COMPLETED") is True
    assert tend("COMPLETED") is False
    assert [call for call in place.rooms.calls if call[0] == "evict" and call[2] == "0~72.0"] == [
        ("evict", "job-71", "0~72.0", "job 72 ended: COMPLETED")
    ]
