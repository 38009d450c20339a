"""Figures of incidents: what is stored of closed ones is what their events say, whatever comes later and whatever is damaged."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event as sql_event

from holdfast.metrics import figures as rules
from holdfast.metrics.figures import figures_of
from holdfast.metrics.timings import KINDS
from holdfast.model.book import Change
from holdfast.model.errors import LeaderFencedOff
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import IncidentState
from holdfast.store import SqlStore, open_store
from holdfast.store import figures as stored
from support.store_nouns import NOW, incident, later

K = EventKind
JOBS = ("c/1@1", "c/2@1")


def fence(store: SqlStore) -> int:
    lease = store.take_lease("a", NOW, 10.0)
    assert lease is not None
    return lease.fence


def closed(name: str = "inc1", hours_ago: float = 0.0) -> Change:
    """An incident whose job ran again after a minute, and that was closed after five; then the job resumed."""
    at = NOW - timedelta(hours=hours_ago)

    def event(after_s: float, what: EventKind, job: str | None = None, **detail: object) -> Event:
        return Event(at + timedelta(seconds=after_s), what, name, "n1", job, detail=detail)

    over = replace(
        incident(name),
        state=IncidentState.CLOSED,
        fault_at=at,
        opened_at=at + timedelta(seconds=1),
        closed_at=at + timedelta(seconds=300),
    )
    events = (
        event(0, K.FAULT_OCCURRED),
        event(1, K.INCIDENT_OPENED),
        event(2, K.ACTION_DONE, kind="Drain"),
        event(3, K.JOB_STOPPED, JOBS[0], gpus=8),
        event(60, K.JOB_RUNNING, JOBS[0]),
        event(290, K.NODE_RETURNED),
        event(300, K.INCIDENT_CLOSED),
    )
    return Change(incidents=(over,), events=events)


def answers(store: SqlStore) -> tuple[object, ...]:
    """Every question that reads figures."""
    ids = [i.id for i in store.incidents()]
    return (
        sorted(store.figures_since(NOW - timedelta(days=400)), key=lambda f: f.incident_id),
        store.timings_since(NOW - timedelta(days=400)),
        sorted(store.figures_of(ids, later(10**6)), key=lambda f: f.incident_id),
    )


def computed_by(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Incidents whose figures are computed from their events from now on."""
    seen: list[str] = []

    def noted(name: str, events: Sequence[Event]) -> object:
        seen.append(name)
        return figures_of(name, events)

    monkeypatch.setattr(stored, "figures_of", noted)
    return seen


@st.composite
def lives(draw: st.DrawFn) -> list[Event]:
    """Events of one incident in any order of time, also of kinds that do not count."""
    kinds = st.sampled_from([*KINDS, K.INCIDENT_CLOSED, K.FINDING_JOINED])
    detail = st.fixed_dictionaries(
        {},
        optional={
            "kind": st.sampled_from(["Drain", "Launch", "Requeue"]),
            "gpus": st.integers(0, 64),
            "from": st.just("watching"),
            "to": st.just("open"),
            "by_others": st.booleans(),
            "room": st.sampled_from(["r1", "r2"]),
            "full": st.booleans(),
            "lost_steps": st.integers(0, 1000),
            "stopped_step": st.integers(0, 1000),
            "checkpoint_step": st.integers(0, 1000),
            "checkpoint_at": st.sampled_from([NOW.isoformat(), later(-500).isoformat(), "gar bage"]),
        },
    )
    one = st.tuples(st.floats(0, 1e5), kinds, st.sampled_from([None, *JOBS]), detail)
    return [Event(later(at_s), kind, "inc1", "n1", job, detail=d) for at_s, kind, job, d in draw(st.lists(one))]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=lives())
def test_stored_is_computed(events: list[Event], sqlite_template: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    shutil.copy(sqlite_template, path)
    with closing(open_store(f"sqlite:///{path}")) as store:
        over = replace(closed().incidents[0], closed_at=later(10))
        store.commit(Change(incidents=(over,), events=tuple(events)), fence(store))
        expected, timings = figures_of("inc1", [e for e in store.events() if e.kind in KINDS])
        asked = store.figures_since(NOW), store.timings_since(NOW)
        assert asked == ((expected,), (timings,) if timings is not None else ())
        assert store.keep_figures(None, 10, fence(store)) == 1
        assert (store.figures_since(NOW), store.timings_since(NOW)) == asked
    path.unlink()


def test_a_closed_incident_is_stored_once_and_read_without_its_events(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit(closed(), fence(store))
    before = answers(store)
    assert [store.keep_figures(None, 10, fence(store)) for _ in range(2)] == [1, 0]
    computed = computed_by(store, monkeypatch)
    assert answers(store) == before
    assert computed == []


def test_an_open_incident_is_computed_and_not_stored(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = replace(incident("inc1"), opened_at=NOW)
    store.commit(Change(incidents=(opened,), events=closed().events[:4]), fence(store))
    assert store.keep_figures(None, 10, fence(store)) == 0
    computed = computed_by(store, monkeypatch)
    (got,) = store.figures_since(later(10**6))
    assert (got.jobs, got.jobs_back, computed) == (1, 0, ["inc1"])


def test_what_happens_after_the_end_counts_at_once_and_is_stored_again(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit(closed(), fence(store))
    store.keep_figures(None, 10, fence(store))
    resumed = Event(later(400), K.JOB_RESUMED, "inc1", "n1", JOBS[0], detail={"lost_steps": 3})
    store.commit(Change(events=(resumed,)), fence(store))
    computed = computed_by(store, monkeypatch)
    (got,) = store.figures_since(NOW)
    assert (got.time_to_resumed_s, got.lost_steps) == (400, 3)
    assert computed == ["inc1"]
    assert [store.keep_figures(NOW, 10, fence(store)) for _ in range(2)] == [1, 0]
    computed.clear()
    assert store.figures_since(NOW) == (got,)
    assert computed == []


def test_a_question_about_an_earlier_time_does_not_know_what_came_later(store: SqlStore) -> None:
    store.commit(closed(), fence(store))
    store.keep_figures(None, 10, fence(store))
    ((then,), (now,)) = (store.figures_of(["inc1"], later(at_s)) for at_s in (30, 1000))
    assert (then.jobs_back, then.returned) == (0, False)
    assert (now.jobs_back, now.returned) == (1, True)


def test_figures_of_other_rules_are_computed_again(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "RULES", rules.RULES + 1)
    store.commit(closed(), fence(store))
    store.keep_figures(None, 10, fence(store))
    monkeypatch.setattr(stored, "RULES", rules.RULES)
    computed = computed_by(store, monkeypatch)
    store.figures_since(NOW)
    assert computed == ["inc1"]
    assert [store.keep_figures(None, 10, fence(store)) for _ in range(2)] == [1, 0]


def test_they_are_stored_in_batches_by_the_leader_alone(store: SqlStore) -> None:
    for number in range(5):
        store.commit(closed(f"inc{number}", hours_ago=number), fence(store))
    with pytest.raises(LeaderFencedOff):
        store.keep_figures(None, 2, fence(store) - 1)
    assert [store.keep_figures(None, 2, fence(store)) for _ in range(4)] == [2, 2, 1, 0]


def test_only_what_was_closed_lately_is_looked_at_where_that_is_asked(store: SqlStore) -> None:
    store.commit(closed(hours_ago=48), fence(store))
    assert store.keep_figures(NOW - timedelta(hours=1), 10, fence(store)) == 0


def test_they_go_with_their_incident_and_stay_as_long(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.commit(closed("old", hours_ago=48), fence(store))
    store.commit(closed("new"), fence(store))
    store.keep_figures(None, 10, fence(store))
    store.prune(NOW - timedelta(hours=24))
    with store._readers.begin() as connection:
        assert connection.exec_driver_sql("SELECT incident_id FROM incident_figures").scalars().all() == ["new"]


def test_a_year_is_read_with_one_query(store: SqlStore) -> None:
    """However many incidents there are, as long as they are stored."""
    for number in range(7):
        store.commit(closed(f"inc{number}", hours_ago=number), fence(store))
    store.keep_figures(None, 10, fence(store))
    statements: list[str] = []

    @sql_event.listens_for(store._readers, "before_cursor_execute")
    def _note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    assert len(store.figures_since(NOW - timedelta(days=1))) == 7
    assert len([s for s in statements if s.startswith("SELECT")]) == 1


DAMAGES = ("'gar bage'", "''", "0.5", "1e999", "x'fffe00'", "'{}'", "'[1]'", '\'{"type": "IncidentFigures"}\'')


@pytest.mark.parametrize("column", ["incident_id", "rules", "event_id", "figures", "timings"])
def test_a_damaged_column_changes_no_answer(column: str, tmp_path: Path, sqlite_template: Path) -> None:
    path = tmp_path / "holdfast.db"
    shutil.copy(sqlite_template, path)
    with closing(open_store(f"sqlite:///{path}")) as store:
        for name in ("inc1", "inc2"):
            store.commit(closed(name), fence(store))
        store.keep_figures(None, 10, fence(store))
        before = answers(store)
        for damage in DAMAGES:
            with closing(sqlite3.connect(path)) as db:
                db.execute(f"UPDATE incident_figures SET {column} = {damage} WHERE rowid = 1")  # noqa: S608
                db.commit()
            assert answers(store) == before, damage
            store.keep_figures(None, 10, fence(store))
            assert answers(store) == before, damage


@pytest.mark.parametrize("swapped", ["figures", "timings"])
def test_anothers_document_is_not_taken(swapped: str, tmp_path: Path, sqlite_template: Path) -> None:
    path = tmp_path / "holdfast.db"
    shutil.copy(sqlite_template, path)
    with closing(open_store(f"sqlite:///{path}")) as store:
        for name in ("inc1", "inc2"):
            store.commit(closed(name), fence(store))
        store.keep_figures(None, 10, fence(store))
        before = answers(store)
        with closing(sqlite3.connect(path)) as db:
            (other,) = db.execute(f"SELECT {swapped} FROM incident_figures WHERE incident_id = 'inc2'").fetchone()  # noqa: S608
            db.execute(f"UPDATE incident_figures SET {swapped} = ? WHERE incident_id = 'inc1'", (other,))  # noqa: S608
            db.commit()
        assert answers(store) == before
