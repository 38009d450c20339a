"""The state snapshot, the change, the fence, the steps of an intent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.actions.action import Drain, IntentState, Launch, Requeue, Terminate, Verb
from holdfast.model.book import Book, Brake, BrakeKind, Change, NodeMark, NodeRecord
from holdfast.model.errors import LeaderFencedOff, NotFound, Rejected
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from holdfast.ports import IntentOutcome, Lease, Operation, Store
from holdfast.store import SqlStore, open_store
from support.store_nouns import (
    NOW,
    closed,
    event,
    finding,
    incident,
    intent,
    job_key,
    later,
    order,
    recovery,
    report,
)

DAY_S = 86_400.0
MARK = NodeMark("n1", "inc1", "holdfast[inc1]: gpu.xid 79", "root", NOW)
DONE = IntentOutcome(IntentState.DONE, "drained", result={"n": 1}, mark=MARK)


def test_it_is_the_port(store: SqlStore) -> None:
    port: Store = store
    port.ping()


def test_an_empty_store_is_an_empty_book(store: SqlStore) -> None:
    assert store.load_book(NOW) == Book()


def test_a_change_comes_back_as_the_book(store: SqlStore) -> None:
    change = Change(
        incidents=(incident(),),
        recoveries=(recovery(),),
        intents=(intent(), intent("inc1/Requeue/7/1", Requeue(job_key(), 0), order=1)),
        marks=(MARK,),
        nodes=(NodeRecord("n1", "i-1", "boot-1", frozenset({"GPU-1"})),),
        brakes=(Brake(BrakeKind.DRAINS, NOW, "too many"),),
        events=(event("one"), event("two")),
    )
    store.commit(change, fence=0)
    book = store.load_book(NOW)
    assert book.incidents == {"inc1": incident()}
    assert book.recoveries == {recovery().id: recovery()}
    assert book.intents == {i.key: i for i in change.intents}
    assert book.marks == {"n1": MARK}
    assert book.nodes == {"n1": change.nodes[0]}
    assert book.brakes == {"drains": change.brakes[0]}
    assert [(e.text, e.at, e.detail) for e in store.events()] == [("one", NOW, {"n": 1}), ("two", NOW, {"n": 1})]


def test_a_second_process_sees_the_same_book(store: SqlStore, store_url: str) -> None:
    store.load_book(NOW)
    other = open_store(store_url)
    other.commit(Change(incidents=(incident(),), nodes=(NodeRecord("n1"),)), fence=0)
    assert store.load_book(NOW) == other.load_book(NOW)
    other.commit(Change(nodes=(NodeRecord("n1", "i-7"),)), fence=0)
    assert store.load_book(NOW).nodes == {"n1": NodeRecord("n1", "i-7")}
    other.close()


@pytest.mark.parametrize(("closed_days_ago", "remembered"), [(6.9, True), (7.1, False)])
def test_closed_incidents_are_remembered_for_a_week(store: SqlStore, closed_days_ago: float, remembered: bool) -> None:
    store.commit(Change(incidents=(closed("inc1", later(-closed_days_ago * DAY_S)),)), fence=0)
    assert bool(store.load_book(NOW).incidents) is remembered


def test_memory_of_recoveries_ends_a_day_after_they_do(store: SqlStore) -> None:
    done = recovery(phase=RecoveryPhase.RESUMED, incident_id="old", created_at=later(-3 * DAY_S))
    store.commit(Change(incidents=(closed("old", later(-DAY_S)),), recoveries=(done,), events=(event(),)), fence=0)
    assert store.load_book(later(DAY_S - 1)).recoveries == {done.id: done}
    assert store.load_book(later(DAY_S + 1)).recoveries == {}
    assert store.recoveries(job_id=7) == (done,)
    waiting = replace(done, phase=RecoveryPhase.WAITING)
    store.commit(Change(recoveries=(waiting,)), fence=0)
    assert store.load_book(later(30 * DAY_S)).recoveries == {done.id: waiting}


def test_intents_of_open_incidents_and_of_the_last_hour(store: SqlStore) -> None:
    old = [
        intent("open/Drain/n1/1", incident_id="open", planned_at=later(-DAY_S), state=IntentState.DONE),
        intent("shut/Drain/n1/1", incident_id="shut", planned_at=later(-3601), state=IntentState.DONE),
        intent("shut/Drain/n1/2", incident_id="shut", planned_at=later(-3599), state=IntentState.DONE),
        intent("shut/Drain/n1/3", incident_id="shut", planned_at=later(-DAY_S)),
    ]
    both = (incident("open"), closed("shut", later(-60)))
    store.commit(Change(incidents=both, intents=tuple(old)), fence=0)
    assert sorted(store.load_book(NOW).intents) == ["open/Drain/n1/1", "shut/Drain/n1/2", "shut/Drain/n1/3"]


def test_launches_and_terminations_are_remembered_for_a_week(store: SqlStore) -> None:
    """The cap of a day counts them, and a machine launched in vain may outlive its incident."""
    steps = (Launch("n1", "token"), Terminate("i-1", "n1"))
    intents = [
        intent(f"shut/{type(action).__name__}/{days}/1", action, incident_id="shut", planned_at=later(-days * DAY_S))
        for action in steps
        for days in (6, 8)
    ]
    settled = tuple(replace(i, state=IntentState.DONE) for i in intents)
    store.commit(Change(incidents=(closed("shut", later(-60)),), intents=settled), fence=0)
    assert sorted(store.load_book(NOW).intents) == ["shut/Launch/6/1", "shut/Terminate/6/1"]


def test_findings_of_open_incidents_and_unplaced_ones(store: SqlStore) -> None:
    store.accept(report(1, findings=tuple(finding(code=c) for c in "abc")))
    a, b, c = (f.id for f in sorted(store.load_book(NOW).findings.values(), key=lambda f: f.code))
    both = (incident("open"), closed("shut", NOW))
    store.commit(Change(incidents=both, placed={a: "open", b: "shut"}), fence=0)
    book = store.load_book(NOW)
    assert {i: f.incident_id for i, f in book.findings.items()} == {a: "open", c: None}
    assert set(store.load_book(later(8 * DAY_S)).findings) == {a}
    assert [s.finding.id for s in store.findings(incident_id="shut")] == [b]


def test_an_intents_key_is_unique_for_ever_and_nothing_of_the_change_stays(store: SqlStore) -> None:
    store.commit(Change(intents=(intent(),)), fence=0)
    with pytest.raises(Rejected, match="intent inc1/Drain/n1/1 exists already"):
        store.commit(Change(incidents=(incident(),), intents=(intent(),), events=(event(),)), fence=0)
    with pytest.raises(Rejected, match="x exists already"):
        store.commit(Change(intents=(intent("x"), intent("x"))), fence=0)
    assert store.incidents() == ()
    assert store.events() == ()


def test_one_holder_at_a_time_and_a_growing_fence(store: SqlStore, store_url: str) -> None:
    other = open_store(store_url)
    assert store.take_lease("a", NOW, 10) == Lease("a", 1, later(10))
    assert other.take_lease("b", later(9.9), 10) is None
    assert store.take_lease("a", later(5), 10) == Lease("a", 1, later(15))
    assert other.take_lease("b", later(15), 10) == Lease("b", 2, later(25))
    assert store.take_lease("a", later(16), 10) is None
    assert store.lease() == Lease("b", 2, later(25))
    assert other.take_lease("b", later(99), 10) == Lease("b", 2, later(109))  # ran out, and no one took it
    assert other.take_lease("b", later(99), 0) is not None
    assert store.take_lease("a", later(99), 10) == Lease("a", 3, later(109))
    other.close()


def test_a_stale_fence_can_neither_commit_nor_start_nor_finish(store: SqlStore, store_url: str) -> None:
    other = open_store(store_url)
    stale = store.take_lease("a", NOW, 10)
    assert stale is not None
    store.commit(Change(incidents=(incident(),), intents=(intent(),)), stale.fence)
    fresh = other.take_lease("b", later(11), 10)
    assert fresh is not None
    with pytest.raises(LeaderFencedOff, match="b holds fence 2"):
        store.commit(Change(events=(event(),)), stale.fence)
    with pytest.raises(LeaderFencedOff):
        store.start_intent(intent().key, stale.fence, NOW)
    with pytest.raises(LeaderFencedOff):
        store.finish_intent(intent().key, stale.fence, DONE, NOW)
    assert store.events() == ()
    assert store.intents() == (intent(),)
    other.start_intent(intent().key, fresh.fence, later(12))
    other.close()


def test_an_intent_goes_from_planned_to_done_with_events_and_mark(store: SqlStore) -> None:
    store.commit(Change(incidents=(incident(),), intents=(intent(),)), fence=0)
    store.start_intent(intent().key, 0, later(1))
    store.start_intent(intent().key, 0, later(2))  # asked again after a crash: no second event
    assert [i.state for i in store.due_intents()] == [IntentState.STARTED]
    store.finish_intent(intent().key, 0, DONE, later(3))
    store.finish_intent(intent().key, 0, DONE, later(4))
    (done,) = store.intents()
    assert (done.started_at, done.finished_at, done.outcome, done.result) == (later(1), later(3), "drained", {"n": 1})
    assert isinstance(done.action, Drain)
    assert [(e.kind, e.at) for e in store.events()] == [
        (EventKind.ACTION_STARTED, later(1)),
        (EventKind.ACTION_DONE, later(3)),
    ]
    assert store.load_book(NOW).marks == {"n1": MARK}
    assert store.due_intents() == ()


def test_an_outcome_can_drop_the_mark_and_name_the_machine(store: SqlStore) -> None:
    store.commit(Change(intents=(intent(),), marks=(MARK,)), fence=0)
    served = NodeRecord("n1", "i-2")
    store.finish_intent(intent().key, 0, IntentOutcome(IntentState.DONE, "", drop_mark="n1", node=served), NOW)
    book = store.load_book(NOW)
    assert (book.marks, book.nodes) == ({}, {"n1": served})


@pytest.mark.parametrize("state", [IntentState.PLANNED, IntentState.STARTED])
def test_an_intent_cannot_end_in_the_middle(store: SqlStore, state: IntentState) -> None:
    store.commit(Change(intents=(intent(),)), fence=0)
    with pytest.raises(Rejected, match="cannot end as"):
        store.finish_intent(intent().key, 0, IntentOutcome(state, ""), NOW)


def test_a_settled_intent_stays_settled(store: SqlStore) -> None:
    store.commit(Change(intents=(intent(),)), fence=0)
    store.finish_intent(intent().key, 0, IntentOutcome(IntentState.REFUSED, "an operator's drain"), NOW)
    with pytest.raises(Rejected, match="is refused already"):
        store.start_intent(intent().key, 0, NOW)
    with pytest.raises(Rejected, match="is refused already"):
        store.finish_intent(intent().key, 0, DONE, NOW)
    with pytest.raises(NotFound, match="no intent nothing"):
        store.start_intent("nothing", 0, NOW)


def test_due_intents_in_their_order_without_orders_to_agents(store: SqlStore) -> None:
    planned = (intent("c", planned_at=later(1)), intent("b", order=1), intent("a", order=1), intent("z"), order("o"))
    store.commit(Change(intents=planned), fence=0)
    assert [i.key for i in store.due_intents()] == ["z", "a", "b", "c"]


@pytest.mark.parametrize(
    ("changed", "who", "at_s", "given"),
    [
        ({}, ("n1", "i-1", "boot-1"), 59.0, True),
        ({}, ("n1", "i-1", "boot-1"), 60.0, False),
        ({}, ("n2", "i-1", "boot-1"), 0.0, False),
        ({}, ("n1", "i-2", "boot-1"), 0.0, False),
        ({"boot_id": "boot-1"}, ("n1", "i-1", "boot-1"), 0.0, True),
        ({"boot_id": "boot-1"}, ("n1", "i-1", "boot-2"), 0.0, False),
    ],
)
def test_an_order_goes_to_the_one_it_is_meant_for(
    store: SqlStore, changed: dict[str, Any], who: tuple[str, str, str], at_s: float, given: bool
) -> None:
    store.commit(Change(intents=(order(**changed),)), fence=0)
    assert bool(store.take_orders(*who, later(at_s))) is given
    assert (store.intents()[0].state is IntentState.STARTED) is given


@pytest.mark.parametrize("held", ["pause", "observe", "acknowledge"])
def test_an_order_is_held_when_it_is_asked_for(store: SqlStore, held: str) -> None:
    reset = order(verb=Verb.RESET_GPU)
    mine = incident(id=reset.incident_id, state=IncidentState.OPEN)
    store.commit(Change(incidents=(mine,), intents=(reset,)), fence=0)
    if held != "observe":
        store.operate(Operation(held, "ops", mine.id, "drill"), later(1))
    who = ("n1", "i-1", "boot-1")
    assert store.take_orders(*who, later(2), observes=held == "observe") == ()
    assert store.intents()[0].state is IntentState.PLANNED
    if held == "pause":
        store.operate(Operation("resume", "ops", "", "drill"), later(3))
    assert bool(store.take_orders(*who, later(4))) is (held != "acknowledge")


def test_an_order_is_handed_out_again_until_its_outcome_is_in(store: SqlStore) -> None:
    store.commit(Change(intents=(order(),)), fence=0)
    first = store.take_orders("n1", "i-1", "boot-1", later(1))
    assert store.take_orders("n1", "i-1", "boot-1", later(2)) == first
    assert [e.kind for e in store.events()] == [EventKind.ACTION_STARTED]
    store.finish_intent(order().key, 0, IntentOutcome(IntentState.FAILED, "expired"), later(3))
    assert store.take_orders("n1", "i-1", "boot-1", later(4)) == ()
