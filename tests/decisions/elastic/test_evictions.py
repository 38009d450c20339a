"""Which groups are evicted from a rendezvous, and which are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.common.node_incidents import HUNG
from holdfast.decisions.elastic.evictions import Eviction, Fading, due, forsaken, met_in
from holdfast.model.actions.action import Drain, Intent, IntentState, Requeue, SetDown
from holdfast.model.book import Book, Brake, BrakeKind, World
from holdfast.model.elastic_jobs.room_names import RoomName
from holdfast.model.elastic_jobs.rooms import GroupRun, RoomView, run_of
from holdfast.model.incidents.incident import IncidentKind, IncidentState
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey
from holdfast_checks.result import Severity
from support.rooms import BASE, T0, flexible_job, four_groups, group_job, view_of
from support.store_nouns import incident, intent, recovery

SEEN = T0 - timedelta(seconds=1)
ROOM = RoomName(BASE, int((T0 - timedelta(minutes=2)).timestamp())).text
REQUEUE = intent("inc1/Requeue/72/1", Requeue(JobKey("practice", 72, T0), 0), planned_at=T0)
DOWN = intent("inc1/SetDown/n1/1", SetDown("n1", "dead", (72,)), planned_at=T0)
DRAIN = intent("inc1/Drain/n1/1", Drain("n1", "holdfast[inc1]: gpu.xid 79"), planned_at=T0)


def room_of(*members: str, **changed: Any) -> RoomView:
    return replace(RoomView(ROOM, members, members), **changed)


FULL = room_of("0~72.0:a", "1~71.0:b", "2~82.0:c", "3~81.0.2:d")


def world_of(view: ClusterView, *intents: Intent, mode: Mode = Mode.ACT, now: datetime = T0, **book: Any) -> World:
    known = {"incidents": {"inc1": incident(state=IncidentState.OPEN)}, "intents": {i.key: i for i in intents}}
    return World(now, Policy(mode=mode), Book(**{**known, **book}), view)


def due_in(
    world: World, rooms: Sequence[RoomView], met_at: datetime, fading: Fading
) -> tuple[tuple[Eviction, ...], Fading]:
    """As of the time when all these members had first met in their rendezvous."""
    return due(world, rooms, met_in(rooms, met_at, {}), fading)


def evicted(world: World, *rooms: RoomView, fading: Fading | None = None) -> list[tuple[str, str | None]]:
    found, _ = due_in(world, rooms or (FULL,), SEEN, fading or {})
    return [(e.run.selector, e.incident_id) for e in found]


def test_while_all_is_well_nobody_is() -> None:
    assert evicted(world_of(view_of(*four_groups()))) == []


@pytest.mark.parametrize("state", list(IntentState))
@pytest.mark.parametrize("stop", [REQUEUE, DOWN, DRAIN], ids=lambda i: i.kind)
def test_a_stop_on_its_way_shuts_out_the_run_that_it_ends(stop: Intent, state: IntentState) -> None:
    world = world_of(view_of(*four_groups()), replace(stop, state=state))
    under_way = state in (IntentState.PLANNED, IntentState.STARTED, IntentState.DONE)
    assert evicted(world) == ([("0~72.0", "inc1")] if under_way else [])
    observing = world_of(view_of(*four_groups()), replace(stop, state=state), mode=Mode.OBSERVE)
    assert evicted(observing) == []


@pytest.mark.parametrize("state", list(IntentState))
def test_a_group_that_hung_is_shut_out_once_its_stop_has_begun(state: IntentState) -> None:
    """It may report a step at the moment of the decision, and then it is not stopped."""
    hung = {"inc1": incident(state=IncidentState.WATCHING, kind=IncidentKind.HANG, check=HUNG)}
    world = world_of(view_of(*four_groups()), replace(REQUEUE, state=state), incidents=hung)
    begun = state in (IntentState.STARTED, IntentState.DONE)
    assert evicted(world) == ([("0~72.0", "inc1")] if begun else [])


def test_a_run_that_the_room_has_forgotten_is_fenced_too() -> None:
    world = world_of(view_of(*four_groups()), REQUEUE)
    assert evicted(world, room_of("1~71.0:b")) == [("0~72.0", "inc1")]
    assert evicted(world, room_of("1~71.0:b", name="job-99")) == [], "only from its own rendezvous"
    assert evicted(world_of(view_of(*four_groups())), room_of("1~71.0:b")) == []


def test_the_reason_names_the_incident() -> None:
    (found,), _ = due_in(world_of(view_of(*four_groups()), DRAIN), (FULL,), SEEN, {})
    assert found == Eviction(
        ROOM, GroupRun(0, 72, 0), "holdfast[inc1]: node n1: gpu.xid 79 GPU-3: fell off the bus", "inc1"
    )


LATER = T0 + timedelta(seconds=0.5)


@pytest.mark.parametrize(
    "job",
    [
        group_job(72, nodes=("n5",)),
        group_job(72, start_time=LATER),
        group_job(72, start_time=None),
        group_job(72, state="PENDING", nodes=()),
    ],
    ids=["another node", "started since", "start unknown", "does not run"],
)
@pytest.mark.parametrize("stop", [DOWN, DRAIN], ids=lambda i: i.kind)
def test_what_a_node_loses_is_the_run_that_held_it(stop: Intent, job: Job) -> None:
    assert evicted(world_of(view_of(job), stop), room_of("0~72.0:a")) == []


def test_a_later_run_than_slurm_shows_is_not_the_one_that_the_node_held() -> None:
    assert evicted(world_of(view_of(*four_groups()), DOWN, DRAIN), room_of("0~72.1:a")) == [("0~72.0", "inc1")]


def test_a_down_takes_the_jobs_that_it_names() -> None:
    others = replace(DOWN, action=SetDown("n1", "dead", (99,)))
    assert evicted(world_of(view_of(*four_groups()), others)) == []
    unnamed = replace(DOWN, action=SetDown("n1", "dead"))
    assert evicted(world_of(view_of(*four_groups()), unnamed)) == [("0~72.0", "inc1")]


@pytest.mark.parametrize(
    "changed",
    [
        {"severity": Severity.WARNING},
        {"state": IncidentState.WATCHING},
        {"state": IncidentState.CLOSED},
        {"acknowledged": True},
        {"gpu_minors": frozenset({3})},
        {"goes_at": T0 + timedelta(minutes=2)},
    ],
    ids=str,
)
def test_a_drain_alone_ends_nobody_unless_the_fault_is_fatal_and_hurts_it(changed: Mapping[str, Any]) -> None:
    shared = group_job(72, exclusive=False, gpu_indices={"n1": frozenset({5})})
    faults = {"inc1": replace(incident(state=IncidentState.OPEN), **changed)}
    assert evicted(world_of(view_of(shared), DRAIN, incidents=faults), room_of("0~72.0:a")) == []


def test_a_brake_that_holds_the_requeue_holds_the_eviction() -> None:
    held = replace(REQUEUE, key="inc1/Requeue/72/0", state=IntentState.WITHHELD)
    assert evicted(world_of(view_of(*four_groups()), DRAIN, held)) == []
    released = replace(REQUEUE, state=IntentState.PLANNED)
    assert evicted(world_of(view_of(*four_groups()), DRAIN, held, released)) == [("0~72.0", "inc1")]


@pytest.mark.parametrize(
    ("kind", "nodes", "tripped_s", "waits"),
    [
        (BrakeKind.DRAINS, "n7", 0, True),
        (BrakeKind.DRAINS, "n7", 5, True),
        (BrakeKind.DRAINS, "n7", -5, False),
        (BrakeKind.DRAINS, "n9", 5, False),
        (BrakeKind.TASK_DRAINS, "n7", 5, False),
    ],
)
def test_a_brake_on_another_node_of_the_job_holds_the_eviction(
    kind: BrakeKind, nodes: str, tripped_s: float, waits: bool
) -> None:
    """The job has a node in the brake's set, its faulty node is in none: the actor does not start the requeue."""
    stop = replace(REQUEUE, state=IntentState.PLANNED)
    brake = Brake(kind, T0 + timedelta(seconds=tripped_s), "many", None, "prod", nodes, nodes_known=True)
    of_the_job = recovery(72, job=JobKey("practice", 72, T0), nodes_before=("n1", "n7"))
    recoveries = {of_the_job.id: of_the_job}
    shown = world_of(view_of(*four_groups()), stop, brakes={brake.name: brake}, recoveries=recoveries)
    assert evicted(shown) == ([] if waits else [("0~72.0", "inc1")])


@pytest.mark.parametrize(
    ("job", "at_once", "after_s"),
    [
        (group_job(72, restarts=1, state="PENDING", nodes=()), True, 0.0),
        (group_job(72, state="COMPLETED"), True, 0.0),
        (group_job(72, state="NODE_FAIL"), True, 0.0),
        (group_job(72, state="PREEMPTED"), True, 0.0),
        (group_job(72, state="COMPLETING"), False, 2.0),
        (None, False, 10.0),
        (group_job(72, state="PENDING", nodes=()), False, None),
        (group_job(72, state="SUSPENDED"), False, None),
    ],
    ids=[
        "requeued",
        "completed",
        "node fail",
        "preempted",
        "completing",
        "not shown",
        "as old as the run",
        "suspended",
    ],
)
def test_a_run_that_is_over_in_slurm(job: Job | None, at_once: bool, after_s: float | None) -> None:
    view = view_of(*([job] if job else []), group_job(BASE, array_task_id=1))
    room = room_of("0~72.0:a", "1~71.0:b")
    assert evicted(world_of(view, mode=Mode.OBSERVE), room) == ([("0~72.0", None)] if at_once else [])
    if at_once:
        return
    _, fading = due_in(world_of(view), (room,), SEEN, {})
    for passed_s in (1.9, 2.1, 9.9, 10.1, 1000.0):
        now = T0 + timedelta(seconds=passed_s)
        world = world_of(replace(view, read_at=now), now=now)
        over = after_s is not None and passed_s >= after_s
        assert evicted(world, room, fading=fading) == ([("0~72.0", None)] if over else []), passed_s


def test_time_that_passes_after_one_reading_is_no_absence() -> None:
    view, room = view_of(group_job(BASE, array_task_id=1)), room_of("0~72.0:a", "1~71.0:b")
    _, fading = due_in(world_of(view), (room,), SEEN, {})
    now = T0 + timedelta(seconds=12)
    assert evicted(world_of(view, now=now), room, fading=fading) == []
    assert evicted(world_of(replace(view, read_at=now), now=now), room, fading=fading) == [("0~72.0", None)]


def test_who_was_seen_running_in_between_fades_anew() -> None:
    room, going = room_of("0~72.0:a"), view_of(group_job(72, state="COMPLETING"))
    _, fading = due_in(world_of(going), (room,), SEEN, {})
    _, fading = due_in(world_of(view_of(group_job(72))), (room,), SEEN, fading)
    assert fading == {}


def test_the_incident_of_the_recovery_is_the_ground() -> None:
    stopped = recovery(72, restarts_before=0)
    world = world_of(view_of(group_job(72, restarts=1, state="PENDING")), recoveries={stopped.id: stopped})
    assert evicted(world, room_of("0~72.0:a")) == [("0~72.0", "inc1")]


def test_slurms_word_from_before_the_room_was_read_says_nothing_of_who_is_in_it() -> None:
    room = room_of("0~72.1:a")
    assert due_in(world_of(view_of(group_job(BASE))), (room,), T0, {}) == ((), {})


def test_a_run_is_measured_from_its_own_first_reading() -> None:
    first = met_in((room_of("0~72.0:a"),), T0, {})
    later = T0 + timedelta(seconds=5)
    assert met_in((room_of("0~72.0:a", "0~72.1:b", "somebody"),), later, first) == {
        (ROOM, GroupRun(0, 72, 0)): T0,
        (ROOM, GroupRun(0, 72, 1)): later,
    }
    assert met_in((room_of(),), later, first) == {}


@pytest.mark.parametrize("view", [None, view_of(at=T0 - timedelta(minutes=1))], ids=["none", "old"])
def test_without_a_fresh_view_nothing_is_done(view: ClusterView | None) -> None:
    fading: Fading = {(ROOM, GroupRun(0, 72, 0)): T0 - timedelta(hours=1)}
    world = replace(world_of(view_of(), DRAIN, REQUEUE, DOWN), view=view)
    assert due_in(world, (FULL,), SEEN, fading) == ((), fading)
    assert forsaken(world, (FULL,), {ROOM: T0 - timedelta(hours=1)}) == ((), {})


@pytest.mark.parametrize("member", ["titan_0:u", "0~a:u", "0~72:u", "x~72.0:u", "0~72.0.1.2:u", ""])
def test_names_that_holdfast_did_not_give_are_never_judged(member: str) -> None:
    assert run_of(member) is None
    assert evicted(world_of(view_of()), room_of(member)) == []


def test_what_the_room_has_already_is_not_sent_again() -> None:
    world = world_of(view_of(*four_groups()), REQUEUE)
    assert evicted(world, replace(FULL, gone=frozenset({"0~72.0"}))) == []
    two = replace(FULL, known=("0~72.0:a", "0~72.0.1:b", "0~72.0.1:c"))
    assert evicted(world, two) == [("0~72.0", "inc1")]


_STATES = ["RUNNING", "PENDING", "COMPLETING", "COMPLETED", "FAILED", "NODE_FAIL", "SUSPENDED", "CANCELLED", "REQUEUED"]
_JOBS = st.builds(
    lambda number, state, restarts, node: group_job(number, state=state, restarts=restarts, nodes=(node,)),
    st.integers(71, 74),
    st.sampled_from(_STATES),
    st.integers(0, 2),
    st.sampled_from(["n1", "n2", "n3"]),
)
_STOPS = st.builds(
    lambda stop, state, number, restarts: replace(
        stop,
        key=f"{stop.key}{number}{restarts}",
        state=state,
        action=Requeue(JobKey("practice", number, T0), restarts) if isinstance(stop.action, Requeue) else stop.action,
    ),
    st.sampled_from([REQUEUE, DOWN, DRAIN]),
    st.sampled_from(IntentState),
    st.integers(71, 74),
    st.integers(0, 2),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(_JOBS, max_size=5),
    st.lists(_STOPS, max_size=4),
    st.sets(st.builds(GroupRun, st.integers(0, 3), st.integers(71, 74), st.integers(0, 2)), max_size=8),
    st.sampled_from(Mode),
)
def test_a_run_that_slurm_shows_and_nobody_stops_is_never_shut_out(
    jobs: list[Job], stops: list[Intent], runs: set[GroupRun], mode: Mode
) -> None:
    view = view_of(*jobs)
    room = room_of(*(f"{run.selector}:u" for run in runs))
    long_ago = {(ROOM, run): T0 - timedelta(days=1) for run in runs}
    found, _ = due_in(world_of(view, *stops, mode=mode), (room,), SEEN, long_ago)
    begun = (IntentState.STARTED, IntentState.DONE)  # in mode propose only what was accepted has begun
    counts = (IntentState.PLANNED, *begun) if mode is Mode.ACT else begun if mode is Mode.PROPOSE else ()
    under_way = [s for s in stops if s.state in counts]
    for eviction in found:
        job = view.jobs.get(eviction.run.job_id)
        if job is None or job.restarts > eviction.run.restarts:
            assert eviction.run in runs
            continue
        stopped = any(
            (s.action.job.job_id, s.action.restarts) == (eviction.run.job_id, eviction.run.restarts)
            if isinstance(s.action, Requeue)
            else s.action.node in job.nodes
            for s in under_way
            if isinstance(s.action, Requeue | SetDown | Drain)
        )
        over = job.restarts == eviction.run.restarts and job.state not in (
            "RUNNING",
            "PENDING",
            "SUSPENDED",
            "REQUEUED",
        )
        assert over or stopped, eviction
    again = replace(room, gone=frozenset(e.run.selector for e in found))
    assert due_in(world_of(view, *stops, mode=mode), (again,), SEEN, long_ago)[0] == ()


class TestRoomsThatNobodyNeeds:
    def test_a_job_that_slurm_has_forgotten_for_ten_minutes(self) -> None:
        room = room_of()
        since: Mapping[str, datetime] = {}
        for minutes in range(12):
            now = T0 + timedelta(minutes=minutes)
            closing, since = forsaken(world_of(view_of(at=now), now=now), (room,), since)
            assert closing == ((ROOM,) if minutes >= 10 else ())

    @pytest.mark.parametrize(
        "job",
        [
            group_job(90, array_job_id=BASE, state="COMPLETED"),
            group_job(BASE, array_task_id=None, state="PENDING"),
            flexible_job(82, state="PENDING"),
        ],
        ids=["ended", "waits", "its flexible array"],
    )
    def test_one_that_is_shown_stays(self, job: Job) -> None:
        assert forsaken(world_of(view_of(job)), (room_of(),), {ROOM: T0 - timedelta(days=1)}) == ((), {})

    def test_one_that_a_person_opened_stays(self) -> None:
        mine = replace(room_of(), name="try-out")
        assert forsaken(world_of(view_of()), (mine,), {"try-out": T0 - timedelta(days=1)}) == ((), {})
