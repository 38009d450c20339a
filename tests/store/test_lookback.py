"""The state snapshot reaches as far back as the policy's rules read, over what is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.machines.orphans import orphans
from holdfast.decisions.recovery import restart_budget
from holdfast.model.actions.action import IntentState, Launch, Terminate
from holdfast.model.book import Book, Change, World
from holdfast.model.incidents.incident import Incident, Recovery, RecoveryPhase
from holdfast.model.machine import Instance, ProviderView
from holdfast.model.policies.lookback import Lookback, needed
from holdfast.model.policies.policy import HistoryPolicy, JobPolicy, Policy, RepairPolicy
from holdfast.store import SqlStore, open_store
from support.simulated.provider import FULL
from support.store_nouns import NOW, closed, event, incident, intent, job_key, later, recovery

DAY_S = 86_400


def _book(store: SqlStore, url: str, policy: Policy) -> Book:
    other = open_store(url, needed(policy))
    try:
        return other.load_book(NOW)
    finally:
        other.close()


def test_a_suspect_window_of_a_week_finds_the_job_of_five_days_ago(store: SqlStore, store_url: str) -> None:
    before = later(-5 * DAY_S)
    old = closed("old", later(-5 * DAY_S + 60), node="n2", opened_at=before)
    past = recovery(incident_id="old", phase=RecoveryPhase.RESUMED, created_at=before)
    now = incident("new", node="n3", opened_at=NOW)
    store.commit(
        Change(incidents=(old, now), recoveries=(past,), events=(event(at=later(-5 * DAY_S + 30)),)),
        fence=0,
    )
    policy = Policy(job=JobPolicy(suspect_window_s=7 * DAY_S, suspect_nodes_hardware=2, faults_per_node_day=0.0))

    def refused(book: Book) -> restart_budget.BudgetRefusal | None:
        return restart_budget.refuses(World(NOW, policy, book, None), now, _again(past))

    found = refused(_book(store, store_url, policy))
    assert found is not None
    assert found.suspect
    assert refused(store.load_book(NOW)) is None, "the shipped policy's memory is a day"


def _again(past: Recovery) -> Recovery:
    return replace(past, restarts_before=past.restarts_before + 1, incident_id="new", created_at=NOW)


def test_a_groups_replacements_of_a_month_are_counted(store: SqlStore, store_url: str) -> None:
    launches = tuple(
        intent(f"i{n}/Launch/n{n}.0/1", Launch(f"n{n}", f"token{n}"), incident_id=f"i{n}", planned_at=later(-n * DAY_S))
        for n in (6, 20, 29, 31)
    )
    store.commit(Change(intents=tuple(replace(i, state=IntentState.DONE) for i in launches)), fence=0)
    month = Policy(repair=RepairPolicy(group_window_s=30 * DAY_S))
    assert {i.incident_id for i in store.load_book(NOW).intents.values()} == {"i6"}
    assert {i.incident_id for i in _book(store, store_url, month).intents.values()} == {"i6", "i20", "i29"}


@pytest.mark.parametrize(("days", "loaded"), [(7, False), (30, True)])
def test_earlier_faults_of_a_node_are_loaded_for_as_long_as_they_count(
    store: SqlStore, store_url: str, days: int, loaded: bool
) -> None:
    store.commit(Change(incidents=(closed("old", later(-20 * DAY_S)),)), fence=0)
    book = _book(store, store_url, Policy(repair=RepairPolicy(third_fault_window_s=days * DAY_S)))
    assert ("old" in book.incidents) is loaded


def test_a_policy_that_remembers_little_loads_no_less_than_the_fixed_rules_need(
    store: SqlStore, store_url: str
) -> None:
    """As the practice profile, which forgets earlier faults: a machine launched in vain is known for a week all the same."""
    store.commit(Change(incidents=(closed("old", later(-6.9 * DAY_S)),)), fence=0)
    forgetful = Policy(
        repair=RepairPolicy(third_fault_window_s=0, climb_window_s=0, group_window_s=0),
        history=HistoryPolicy(lemon_s=0),
    )
    assert "old" in _book(store, store_url, forgetful).incidents


def test_what_was_done_about_an_announcement_is_known_while_it_stands(store: SqlStore) -> None:
    """An operator closed it 13 days ago; by now it is due, and another node's closed incidents are as forgotten as before."""
    dealt = closed("dealt", later(-13 * DAY_S), node="n1", goes_at=later(600), operated=1)
    other = closed("other", later(-13 * DAY_S), node="n2")
    seen = incident("seen", node="n1", notice="reboot/x/i-1", goes_at=later(600))
    store.commit(Change(incidents=(dealt, other)), fence=0)
    assert store.load_book(NOW).incidents == {}
    store.commit(Change(incidents=(seen,)), fence=0)
    assert set(store.load_book(NOW).incidents) == {"dealt", "seen"}
    assert set(store.load_book(later(50 * DAY_S)).incidents) == {"seen"}


@pytest.mark.slow
def test_many_announcements_at_once(store: SqlStore) -> None:
    """A region's maintenance: more nodes than a query takes names."""
    going = tuple(incident(f"s{n}", node=f"n{n}", notice=f"reboot/x/i-{n}", goes_at=later(600)) for n in range(1200))
    dealt = tuple(closed(f"d{n}", later(-13 * DAY_S), node=f"n{n}") for n in range(1200))
    store.commit(Change(incidents=(*going, *dealt)), fence=0)
    assert len(store.load_book(NOW).incidents) == 2400


def _failed_long_ago(store: SqlStore, over: Incident) -> None:
    last = intent(
        f"{over.id}/Terminate/i-9/1", Terminate("i-9", "n1"), incident_id=over.id, planned_at=later(-8 * DAY_S)
    )
    store.commit(Change(incidents=(over,), intents=(replace(last, state=IntentState.FAILED),)), fence=0)


def test_a_machine_that_could_not_be_ended_is_not_ended_under_the_same_key_again(store: SqlStore) -> None:
    """The termination failed for good a week and a day ago, its incident was closed after that: a second first attempt is refused by
    the store, and with it the whole cycle, each second."""
    over = closed("0a1b2c3d4e5f", later(-2 * DAY_S), opened_at=later(-9 * DAY_S))
    _failed_long_ago(store, over)
    machine = Instance("i-9", "n1", "running", launched_at=later(-9 * DAY_S), incident=over.id)
    store.see_provider(ProviderView("sim", FULL, NOW, on_trial=(machine,)))
    book = store.load_book(NOW)
    assert orphans(World(NOW, Policy(), book, None)).proposals == ()
    forgotten = replace(book, intents={})
    assert orphans(World(NOW, Policy(), forgotten, None)).proposals != ()


def test_a_recovery_that_is_not_final_is_loaded_whatever_its_age(store: SqlStore) -> None:
    old = recovery(job=job_key(), created_at=later(-100 * DAY_S))
    store.commit(Change(recoveries=(old,)), fence=0)
    assert store.load_book(NOW).recoveries == {old.id: old}


def test_checkpoints_are_forgotten_no_sooner_than_a_hang_is_noticed() -> None:
    hang = timedelta(days=10)
    policy = Policy(hangs=replace(Policy().hangs, init_s=hang.total_seconds()))
    back: Lookback = needed(policy)
    assert back.checkpoints == hang
