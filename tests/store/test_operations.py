"""Operators, events, tokens, upkeep."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.runtime.migration import MigrationContext

from holdfast.model.actions.action import IntentState
from holdfast.model.actions.budgets import BudgetExtension, BudgetKind
from holdfast.model.book import Brake, BrakeKind, Change
from holdfast.model.elastic_jobs.room_names import KnownRoom
from holdfast.model.errors import LeaderFencedOff, NotFound, Rejected, Stale, Unavailable
from holdfast.model.event import EventKind
from holdfast.model.ids import UPKEEP
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from holdfast.model.operators.suppression import Suppression
from holdfast.ports import Operation
from holdfast.store import SqlStore, open_store, read_tokens
from holdfast.store.engines import parse_url, writer_engine
from holdfast.store.migrate import alembic_config
from holdfast.store.rows import brake_of
from support.store_nouns import NOW, closed, event, finding, incident, intent, later, recovery, report

HASH = "ab" * 32


def _operate(store: SqlStore, verb: str, target: str = "inc1") -> None:
    store.operate(Operation(verb, "ada", target, "maintenance"), later(5))


def test_the_rendezvous_of_elastic_jobs_are_in_the_next_book(store: SqlStore) -> None:
    assert store.load_book(NOW).rooms == {}
    lease = store.take_lease("a", NOW, 10.0)
    assert lease is not None
    rooms = (KnownRoom(71, 1001, 1772366280, exact=True), KnownRoom(9, 1001, 1772366281, exact=False, old_name=True))
    store.remember_rooms(rooms, lease.fence)
    assert store.load_book(NOW).rooms == {room.base_array_id: room for room in rooms}
    with pytest.raises(LeaderFencedOff):
        store.remember_rooms((), lease.fence + 1)
    store.set_note("quorum.rooms", "{cut off")
    assert store.load_book(NOW).rooms == {}


def test_pause_and_resume(store: SqlStore) -> None:
    _operate(store, "pause", "")
    book = store.load_book(NOW)
    assert (book.paused, book.paused_at) == ("ada: maintenance", later(5))
    store.set_note("paused.at", "some time")
    assert (store.load_book(NOW).paused, store.load_book(NOW).paused_at) == ("ada: maintenance", None)
    _operate(store, "resume", "")
    assert (store.load_book(NOW).paused, store.load_book(NOW).paused_at) == (None, None)
    assert [e.kind for e in store.events()] == [EventKind.PAUSED, EventKind.RESUMED]
    assert store.events()[0].detail["who"] == "ada"


@pytest.mark.parametrize(
    ("verb", "before", "after", "kinds"),
    [
        ("acknowledge", IncidentState.OPEN, IncidentState.OPEN, ["operator"]),
        ("close", IncidentState.CONTAINED, IncidentState.CLOSED, ["operator", "incident.closed"]),
        ("retry", IncidentState.AWAITING_HUMAN, IncidentState.REPAIRING, ["operator", "incident.state"]),
    ],
)
def test_operating_on_an_incident(
    store: SqlStore, verb: str, before: IncidentState, after: IncidentState, kinds: list[str]
) -> None:
    store.commit(Change(incidents=(incident(state=before),)), fence=0)
    _operate(store, verb)
    found = store.incident("inc1")
    assert found is not None
    assert (found.state, found.acknowledged) == (after, verb == "acknowledge")
    assert found.closed_at == (later(5) if verb == "close" else None)
    assert [e.kind.value for e in store.events(incident_id="inc1")] == kinds


@pytest.mark.parametrize("verb", ["acknowledge", "close", "retry"])
def test_an_older_book_cannot_undo_an_operators_word(store: SqlStore, verb: str) -> None:
    before = incident(state=IncidentState.AWAITING_HUMAN)
    store.commit(Change(incidents=(before,)), fence=0)
    _operate(store, verb)
    with pytest.raises(Stale, match="inc1 meanwhile"):
        store.commit(Change(incidents=(replace(before, note="later"),), events=(event(),)), fence=0)
    now = store.load_book(NOW).incidents["inc1"]
    store.commit(Change(incidents=(replace(now, note="seen"),)), fence=0)
    assert store.load_book(NOW).incidents["inc1"] == replace(now, note="seen")


@pytest.mark.parametrize(
    ("verb", "target", "error", "message"),
    [
        ("close", "nope", NotFound, "no incident 'nope'"),
        ("close", "done", Rejected, "closed already"),
        ("retry", "busy", Rejected, "is repairing: only one that waits for an operator"),
        ("retry", "inc1", Rejected, "only one that waits for an operator"),
        ("release_brake", "drains", NotFound, "not tripped"),
        ("explode", "", Rejected, "unknown operation 'explode': use one of accept, acknowledge, close"),
    ],
)
def test_an_operation_that_does_not_fit_is_one_clear_line(
    store: SqlStore, verb: str, target: str, error: type[Exception], message: str
) -> None:
    there = (incident(), incident("busy", state=IncidentState.REPAIRING), closed("done", NOW))
    store.commit(Change(incidents=there), fence=0)
    with pytest.raises(error, match=message):
        _operate(store, verb, target)
    assert store.events() == ()


def test_a_suppression_holds_until_it_ends_or_is_lifted(store: SqlStore) -> None:
    wanted = Suppression("0" * 12, later(3600), "ada", "fan on order", NOW, node="n7", check="gpu.thermal")
    store.operate(Operation("suppress", "ada", wanted.id, "fan on order", wanted), NOW)
    assert store.load_book(later(10)).suppressions == {wanted.id: wanted}
    assert store.load_book(later(3601)).suppressions == {}
    store.operate(Operation("unsuppress", "ada", wanted.id), later(20))
    assert store.load_book(later(30)).suppressions == {}
    assert [e.kind for e in store.events()] == [EventKind.OPERATOR] * 2
    with pytest.raises(NotFound, match="no suppression"):
        store.operate(Operation("unsuppress", "ada", wanted.id), later(40))


def test_an_extension_of_a_budget_holds_until_it_ends_or_another_takes_its_place(store: SqlStore) -> None:
    first = BudgetExtension(BudgetKind.ENDED, 3, later(3600), "ada", "rack 7")
    store.operate(Operation("extend_budget", "ada", "ended", extension=first), NOW)
    assert store.load_book(later(10)).extensions == {BudgetKind.ENDED: first}
    second = replace(first, plus=9, until=later(7200))
    store.operate(Operation("extend_budget", "ada", "ended", extension=second), later(20))
    assert store.load_book(later(3601)).extensions == {BudgetKind.ENDED: second}
    assert store.load_book(later(7201)).extensions == {}
    with pytest.raises(Rejected, match="nothing to extend"):
        store.operate(Operation("extend_budget", "ada", "ended", extension=first), later(9000))


def test_releasing_a_brake(store: SqlStore) -> None:
    store.commit(Change(brakes=(Brake(BrakeKind.DRAINS, NOW, "too many"),)), fence=0)
    _operate(store, "release_brake", "drains")
    assert store.load_book(NOW).brakes == {"drains": Brake(BrakeKind.DRAINS, NOW, "too many", released_at=later(5))}
    with pytest.raises(NotFound, match="not tripped; none is"):
        _operate(store, "release_brake", "drains")
    assert [e.kind for e in store.events()] == [EventKind.BRAKE_RELEASED]


def test_the_brake_of_a_set_is_kept_and_released_by_its_name(store: SqlStore) -> None:
    site, mine = Brake(BrakeKind.DRAINS, NOW, "all"), Brake(BrakeKind.DRAINS, NOW, "few", None, "prod", "n[1-8]")
    store.commit(Change(brakes=(site, mine)), fence=0)
    assert store.load_book(NOW).brakes == {"drains": site, "drains@prod": mine}
    with pytest.raises(NotFound, match="'drains@test' is not tripped; tripped: drains, drains@prod"):
        _operate(store, "release_brake", "drains@test")
    _operate(store, "release_brake", "drains@prod")
    left = store.load_book(NOW).brakes
    assert {name: brake.holds for name, brake in left.items()} == {"drains": True, "drains@prod": False}


def test_a_brake_of_a_set_that_cannot_be_read_holds_every_node_and_is_released_by_its_name() -> None:
    unread = brake_of({"kind": 7}, "drains@prod", NOW)
    assert (unread.name, unread.holds, unread.had(("n99",))) == ("drains@prod", True, True)
    assert brake_of({}, "of_a_newer_release@prod", NOW).kind is BrakeKind.DRAINS


def test_a_fault_after_an_operators_close_is_news(store: SqlStore) -> None:
    store.accept(report(1, findings=(finding(),)))
    first = next(iter(store.load_book(NOW).findings))
    store.commit(Change(incidents=(incident(),), placed={first: "inc1"}), fence=0)
    _operate(store, "close")
    store.accept(report(2, findings=(finding(),)))
    assert len(store.load_book(NOW).findings) == 1


def test_events_by_cursor_kind_time_and_incident(store: SqlStore) -> None:
    store.commit(Change(events=tuple(event(f"e{n}", at=later(n)) for n in range(10))), fence=0)
    other = event("other", incident_id="inc2", kind=EventKind.PAUSED, at=later(99))
    store.commit(Change(events=(other,)), fence=0)
    page = store.events(limit=4)
    assert [e.text for e in page] == ["e0", "e1", "e2", "e3"]
    assert [e.text for e in store.events(after_id=page[-1].id, limit=2)] == ["e4", "e5"]
    assert [e.text for e in store.events(since=later(9))] == ["e9", "other"]
    assert [e.text for e in store.events(kinds=(EventKind.PAUSED, EventKind.RESUMED))] == ["other"]
    assert store.events(incident_id="inc2")[0] == replace(other, id=page[-1].id + 7)


def test_incidents_newest_first(store: SqlStore) -> None:
    all_of_them = [incident(f"i{n}", node=f"n{n % 2}", opened_at=later(n)) for n in range(4)]
    store.commit(Change(incidents=(*all_of_them, closed("old", NOW, opened_at=later(-9)))), fence=0)
    assert [i.id for i in store.incidents()] == ["i3", "i2", "i1", "i0", "old"]
    assert [i.id for i in store.incidents(only_open=True, limit=2)] == ["i3", "i2"]
    assert [i.id for i in store.incidents(node="n1", since=later(2))] == ["i3"]
    assert store.incident("nope") is None


def test_notes(store: SqlStore) -> None:
    assert store.note("cluster") is None
    store.set_note("cluster", "a")
    store.set_note("cluster", "b")
    assert store.note("cluster") == "b"


def test_tokens(store: SqlStore) -> None:
    store.add_token("agent", "n1", HASH, NOW, later(60))
    row = store.find_token(HASH)
    assert row is not None
    assert (row.role, row.subject, row.created_at) == ("agent", "n1", NOW)
    assert (row.valid(later(59)), row.valid(later(60))) == (True, False)
    with pytest.raises(Rejected, match="exists already"):
        store.add_token("viewer", "x", HASH, NOW)
    with pytest.raises(Rejected, match="SHA-256"):
        store.add_token("viewer", "x", "the token itself", NOW)
    assert store.revoke_token(HASH)
    assert not store.revoke_token("cd" * 32)
    assert [t.valid(NOW) for t in store.tokens()] == [False]
    assert store.find_token("cd" * 32) is None


def _hash(number: int) -> str:
    return f"{number:064x}"


def _end(store: SqlStore, number: int) -> datetime | None:
    row = store.find_token(_hash(number))
    assert row is not None
    return row.expires_at


def test_the_last_use_of_a_token_is_on_record(store: SqlStore) -> None:
    store.add_token("viewer", "grafana", _hash(1), NOW)
    store.tokens_used({_hash(1): later(60), _hash(9): later(60)})
    store.tokens_used({_hash(1): later(30)})
    (row,) = store.tokens()
    assert row.last_used_at == later(60), "another controller's report may come late"


def test_tokens_are_ended_but_not_those_that_were_used_of_late(store: SqlStore) -> None:
    for number in range(5):
        store.add_token("agent", "n1", _hash(number), later(number), later(200) if number == 1 else None)
    store.tokens_used({_hash(2): later(401), _hash(3): later(400)})
    assert store.revoke_token(_hash(4))
    ended = store.end_tokens([_hash(n) for n in (0, 1, 2, 3, 4, 9)], later(1000))
    assert [(row.hash, row.expires_at) for row in ended] == [(_hash(0), later(1000)), (_hash(3), later(1000))]
    assert [_end(store, n) for n in range(5)] == [later(1000), later(200), None, later(1000), None], (
        "another controller saw the third in use"
    )
    assert store.end_tokens([_hash(0)], later(1001)) == (), "once"


def test_an_ended_token_is_pruned_with_the_rest(store: SqlStore) -> None:
    store.add_token("viewer", "a", _hash(1), later(-200), later(-100))
    store.add_token("viewer", "b", _hash(2), later(-200), later(-10))
    store.add_token("viewer", "c", _hash(3), later(-200))
    assert store.prune(later(-50)) == 1
    assert {row.subject for row in store.tokens()} == {"b", "c"}


def test_reading_tokens_makes_no_store_and_changes_none(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    with pytest.raises(NotFound):
        read_tokens(f"sqlite:///{path}")
    assert not path.exists()
    engine = writer_engine(parse_url(f"sqlite:///{path}"))
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "0005")
    with pytest.raises(Unavailable):
        read_tokens(f"sqlite:///{path}")
    with engine.begin() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == "0005"
    engine.dispose()


def test_pruning_takes_what_is_old_and_nothing_of_an_open_incident(store: SqlStore) -> None:
    old = later(-100)
    incidents = (incident("open", opened_at=old), closed("shut", old, opened_at=old), closed("new", NOW, opened_at=old))
    texts = ("open", "shut", "new", None)
    store.accept(report(1, received_at=old, findings=(finding(received_at=old, fault_at=old),)))
    placed = {next(iter(store.load_book(NOW).findings)): "shut"}
    final = recovery(incident_id="shut", phase=RecoveryPhase.GONE, created_at=old)
    change = Change(
        incidents=incidents,
        placed=placed,
        recoveries=(final,),
        intents=(intent("shut/x/1", incident_id="shut", state=IntentState.DONE, planned_at=old),),
        events=tuple(event(str(name), incident_id=name, at=old) for name in texts),
    )
    store.commit(change, fence=0)
    assert store.prune(later(-50)) == 7  # report, finding, intent, recovery, incident and two events
    assert [e.text for e in store.events()] == ["open", "new"]
    assert {i.id for i in store.incidents()} == {"open", "new"}
    assert (store.findings(), store.intents(), store.recoveries()) == ((), (), ())
    assert store.prune(later(-50)) == 0


def test_orders_of_no_incident_are_pruned_by_their_age(store: SqlStore) -> None:
    old, done = later(-100), IntentState.DONE
    key = "upkeep/SendOrder/check.light/n1.{}/1"
    intents = (
        intent(key.format(1), incident_id=UPKEEP, state=done, planned_at=old),
        intent(key.format(2), incident_id=UPKEEP, state=IntentState.STARTED, planned_at=old),
        intent(key.format(3), incident_id=UPKEEP, state=done, planned_at=NOW),
    )
    store.commit(Change(intents=intents, events=(event("old", incident_id=UPKEEP, at=old),)), fence=0)
    assert store.prune(later(-50)) == 2
    assert [i.key for i in store.intents()] == [key.format(2), key.format(3)]


def test_a_backup_is_a_whole_store(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/a.db")
    store.commit(Change(incidents=(incident(),), events=(event(),)), fence=0)
    store.backup(tmp_path / "copy.db")
    with pytest.raises(Rejected, match="exists already"):
        store.backup(tmp_path / "copy.db")
    with pytest.raises(Rejected, match="cannot write the backup"):
        store.backup(tmp_path / "nowhere" / "copy.db")
    store.close()
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    copy = open_store(f"sqlite:///{tmp_path}/copy.db")
    assert copy.load_book(NOW).incidents == {"inc1": incident()}
    copy.close()
