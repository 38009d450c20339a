"""Which rendezvous an elastic job has: never that of an earlier job with its id, and always its own."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.controller.quorum.quorum_names import ask_room
from holdfast.controller.quorum.quorum_watch import QuorumWatch
from holdfast.decisions.common.elastic_jobs import ElasticJob, elastic_jobs
from holdfast.decisions.elastic.evictions import due, forsaken, met_in
from holdfast.decisions.elastic.ledger import Read, fold
from holdfast.decisions.elastic.naming import room_of
from holdfast.decisions.elastic.resize import asked_to_leave, last_decision, leaving_groups
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Requeue, SendOrder, Verb
from holdfast.model.book import Book, World
from holdfast.model.elastic_jobs.room_names import KnownRoom, RoomName
from holdfast.model.elastic_jobs.rooms import RoomRules, RoomView
from holdfast.model.ids import UPKEEP
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import Job, JobKey
from support.rooms import BASE, T0, MemoryRooms, flexible_job, group_job, view_of
from support.simulated.clock import SimClock
from support.simulated.store import MemoryStore
from support.store_nouns import intent

SUBMITTED = T0 - timedelta(minutes=2)
S = int(SUBMITTED.timestamp())
EARLIER = S - 86_400
RULES = RoomRules(2, 4)
OLD = RoomName(BASE)
MINE = KnownRoom(BASE, 1001, S, exact=True)


def element(task: int, *, restarts: int = 0, after_s: float = 0.0, **changed: Any) -> Job:
    number = 72 if task == 0 else BASE
    key = JobKey("practice", number, SUBMITTED + timedelta(seconds=after_s))
    return group_job(number, key=key, restarts=restarts, array_task_id=task, nodes=(f"n{task + 1}",), **changed)


def job_of(*elements: Job) -> ElasticJob:
    (job,) = elastic_jobs(view_of(*elements))
    return job


FRESH = job_of(element(0), element(1))
ONE_REQUEUED = job_of(element(0, restarts=1, after_s=50), element(1))
ALL_REQUEUED = job_of(element(0, restarts=1, after_s=50), element(1, restarts=2, after_s=60))


@pytest.mark.parametrize("text", ["job-71-1772366280", "job-71"])
def test_a_name_is_read_as_it_was_written(text: str) -> None:
    name = RoomName.parse(text)
    assert name is not None
    assert name.text == text


@pytest.mark.parametrize("text", ["try-out", "job-", "job-71-", "job-71-5-6", "job-x", "job-71-5x", "xjob-71", ""])
def test_what_a_person_opened_is_no_jobs(text: str) -> None:
    assert RoomName.parse(text) is None


def test_the_time_is_that_of_elements_that_were_never_requeued() -> None:
    assert room_of(FRESH, None, {}) == MINE
    assert room_of(ONE_REQUEUED, None, {}) == MINE
    assert MINE.room == f"job-{BASE}-{S}"


def test_else_it_is_remembered() -> None:
    assert room_of(ALL_REQUEUED, MINE, {}) == MINE


def test_else_it_is_that_of_the_rendezvous_that_is_open() -> None:
    there = {
        RoomName(BASE, S): None,
        RoomName(BASE, EARLIER): None,
        RoomName(99, S): None,
        RoomName(BASE, S + 999): None,
    }
    assert room_of(ALL_REQUEUED, None, there).room == MINE.room


def test_else_a_new_one_whose_name_stays() -> None:
    made = room_of(ALL_REQUEUED, None, {})
    assert (made.submitted_s, made.exact) == (S + 50, False)
    later = job_of(element(0, restarts=2, after_s=70), element(1, restarts=2, after_s=60))
    assert room_of(later, made, {}) == made
    assert room_of(later, None, {made.name: None}).room == made.room
    assert room_of(FRESH, made, {}) == made, "an element that is shown late has the true time"


@pytest.mark.parametrize(
    "earlier", [KnownRoom(BASE, 1001, EARLIER, exact=True), KnownRoom(BASE, 1001, EARLIER, True, old_name=True)]
)
@pytest.mark.parametrize("open_too", [True, False])
def test_a_job_with_the_id_of_an_earlier_one_has_its_own(earlier: KnownRoom, open_too: bool) -> None:
    there: dict[RoomName, datetime | None] = {earlier.name: None} if open_too else {}
    assert room_of(FRESH, earlier, there) == MINE


def test_another_users_is_never_its_own() -> None:
    theirs = replace(MINE, uid=1002)
    assert room_of(ALL_REQUEUED, theirs, {theirs.name: None}).room != theirs.room


def test_one_of_the_release_before_goes_on_until_its_job_ends() -> None:
    known = room_of(FRESH, None, {OLD: SUBMITTED + timedelta(seconds=1)})
    assert (known.room, known.submitted_s) == (f"job-{BASE}", S)
    assert room_of(ALL_REQUEUED, known, {OLD: None}) == known
    assert room_of(ALL_REQUEUED, None, {OLD: SUBMITTED}).room == known.room
    assert room_of(FRESH, None, {OLD: None}).room == known.room, "opened, and without members yet"


def test_one_of_the_release_before_in_which_something_happened_earlier_is_another_jobs() -> None:
    assert room_of(FRESH, None, {OLD: SUBMITTED - timedelta(hours=1)}) == MINE


class Site:
    """A controller's watch with a store and rendezvous in memory."""

    def __init__(self) -> None:
        self.clock, self.store, self.rooms = SimClock(), MemoryStore(), MemoryRooms()
        lease = self.store.take_lease("test", T0, 1e6)
        assert lease is not None
        self.fence = lease.fence

    def world(self, *jobs: Job) -> World:
        now = self.clock.now()
        return World(now, Policy(), self.store.load_book(now), view_of(*jobs, at=now))

    def cycle(self, *jobs: Job) -> None:
        """As after a start of the controller."""
        watch = QuorumWatch(self.rooms, self.store, self.clock)
        watch.look(world := self.world(*jobs), self.fence)
        watch.tend(world)
        self.clock.advance(1)


def test_what_is_known_survives_the_controller_and_the_requeue_of_every_element() -> None:
    site = Site()
    site.rooms.open(OLD.text, RULES)
    site.rooms.meet(OLD.text, "0~72.0:a", "1~71.0:b")
    site.cycle(element(0), element(1))
    (known,) = site.store.load_book(T0).rooms.values()
    assert (known.room, known.submitted_s, known.exact) == (OLD.text, S, True)
    requeued = (element(0, restarts=1, after_s=50), element(1, restarts=1, after_s=50))
    site.cycle(*requeued)
    assert ask_room(site.world(*requeued), site.rooms, job_of(*requeued)).room == OLD.text
    later = (element(0, after_s=9000), element(1, after_s=9000))
    assert ask_room(site.world(*later), site.rooms, job_of(*later)).room == f"job-{BASE}-{S + 9000}"
    site.cycle(*later)
    assert site.store.load_book(T0).rooms[BASE].submitted_s == S + 9000
    site.rooms.close(OLD.text)
    site.cycle()
    assert site.store.load_book(T0).rooms == {}


def test_while_another_controller_leads_nothing_is_remembered() -> None:
    site = Site()
    site.fence += 1
    site.cycle(element(0), element(1))
    assert site.store.load_book(T0).rooms == {}


NEW = (element(0, after_s=100), element(1, after_s=100), flexible_job(82))
"""A job with the ids of one that was submitted 100 s earlier."""
NOW = SUBMITTED + timedelta(seconds=160)
BEFORE = SUBMITTED + timedelta(seconds=90)


def world_after(*stops: Intent) -> World:
    known = {BASE: KnownRoom(BASE, 1001, S + 100, exact=True)}
    return World(
        NOW, Policy(mode=Mode.ACT), Book(intents={i.key: i for i in stops}, rooms=known), view_of(*NEW, at=NOW)
    )


def test_no_step_about_the_earlier_job_shuts_out_a_run_of_the_later_one() -> None:
    stop = intent("inc1/Requeue/72/1", Requeue(JobKey("practice", 72, SUBMITTED), 0), planned_at=BEFORE)
    mine, theirs = (RoomView(RoomName(BASE, at).text, ("0~72.0:a", "1~71.0:b")) for at in (S + 100, S))
    world = world_after(replace(stop, state=IntentState.DONE))
    met = met_in((mine, theirs), BEFORE, {})
    assert due(world, (mine, theirs), met, {})[0] == ()
    about_it = world_after(replace(stop, state=IntentState.DONE, planned_at=NOW))
    assert [(e.room, e.run.selector) for e in due(about_it, (mine, theirs), met, {})[0]] == [(mine.name, "0~72.0")]


def test_no_step_about_the_earlier_jobs_size_counts_for_the_later_one() -> None:
    key = JobKey("practice", 82, SUBMITTED)
    args = {"job_id": 82, "restarts": 0}
    order = SendOrder("n3", "", "", Verb.LEAVE, 60.0, args)
    step = steps.leave_room(elastic_jobs(view_of(*NEW, at=NOW))[0].label, "n3", key, 0, 1)
    asked = replace(
        intent(steps.StepKey(UPKEEP, step, 1).text, order, planned_at=BEFORE - timedelta(hours=1)), incident_id=UPKEEP
    )
    world = world_after(asked)
    (job,) = elastic_jobs(view_of(*NEW, at=NOW))
    assert leaving_groups(job, asked_to_leave(world)) == ()
    assert last_decision(world, job) is None
    world = world_after(replace(asked, planned_at=NOW))
    assert [g.index for g in leaving_groups(job, asked_to_leave(world))] == [2]
    assert last_decision(world, job) is not None


def test_the_rendezvous_of_the_earlier_job_is_closed_although_its_id_is_shown() -> None:
    world = world_after()
    rooms = tuple(RoomView(RoomName(BASE, at).text, ()) for at in (S + 100, S, None))
    for minutes, closed in ((9, ()), (11, (rooms[1].name, rooms[2].name))):
        since = {room.name: NOW - timedelta(minutes=minutes) for room in rooms}
        assert forsaken(world, rooms, since)[0] == closed


def test_the_record_of_the_earlier_job_names_no_run_of_the_later_one() -> None:
    rooms = MemoryRooms(at=BEFORE)
    rooms.open(RoomName(BASE, S).text, RULES)
    rooms.meet(RoomName(BASE, S).text, "0~72.0:a")
    jobs = {job.key.job_id: job for job in NEW}
    _, events = fold(Read(), rooms.records(0, 100), jobs)
    assert {event.job or "" for event in events} == {""}
    rooms.at = NOW
    rooms.open(RoomName(BASE, S + 100).text, RULES)
    rooms.meet(RoomName(BASE, S + 100).text, "0~72.0:x")
    _, events = fold(Read(), rooms.records(0, 100), jobs)
    assert [event.job for event in events if event.job] == [jobs[72].key.text]
