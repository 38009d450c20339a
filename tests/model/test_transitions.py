"""One module opens, raises, moves and closes an incident: by the table, with the times and the events of the step."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState, MovedBy, legal
from holdfast.model.incidents.transitions import (
    Detection,
    IllegalTransition,
    NewIncident,
    close,
    move,
    open_incident,
    raise_to,
    remark,
)
from holdfast_checks.result import Remedy, Severity
from support.store_nouns import NOW, incident, later

_S = IncidentState
STEPS = list(itertools.product(_S, _S, MovedBy))


def _in(state: IncidentState) -> Incident:
    closed_at = NOW if state is _S.CLOSED else None
    return replace(incident(), state=state, state_since=NOW, closed_at=closed_at, note="why")


def _new(**changed: object) -> NewIncident:
    plain = NewIncident(
        id="inc1",
        kind=IncidentKind.FAULT,
        node="n1",
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        check="gpu.xid",
        headline="gpu.xid 79: fell off the bus",
        fault_at=later(-3),
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after", "by"), STEPS)
def test_a_step_is_made_if_the_table_has_it(before: IncidentState, after: IncidentState, by: MovedBy) -> None:
    if not legal(before, after, by):
        with pytest.raises(IllegalTransition, match=f"inc1: {before.value} → {after.value} is not in the table"):
            move(_in(before), after, later(5), "done", by=by)
        return
    found, (event,) = move(_in(before), after, later(5), "done", detail={"more": 1}, by=by)
    assert (found.state, found.state_since, found.note) == (after, later(5), "done")
    assert found.closed_at == (later(5) if after is _S.CLOSED else None)
    assert event.detail == {"more": 1, "from": before.value, "to": after.value}
    assert event.text == f"{before.value} → {after.value} (done)"
    assert (event.kind is EventKind.INCIDENT_CLOSED) == (after is _S.CLOSED)


@pytest.mark.parametrize("state", _S)
def test_no_incident_is_opened_in_a_state_that_the_table_has_no_birth_in(state: IncidentState) -> None:
    if legal(None, state):
        found, _ = open_incident(_new(), state, NOW)
        assert (found.state, found.opened_at, found.state_since, found.closed_at) == (state, NOW, NOW, None)
    else:
        with pytest.raises(IllegalTransition, match=f"inc1: nothing → {state.value} is not in the table"):
            open_incident(_new(), state, NOW)


def test_nobody_leaves_a_closed_incident() -> None:
    assert not any(legal(_S.CLOSED, after, by) for after in _S for by in MovedBy)
    with pytest.raises(IllegalTransition):
        close(_in(_S.CLOSED), NOW, "again")


def test_only_an_operator_sends_a_node_back_into_repair() -> None:
    assert not legal(_S.AWAITING_HUMAN, _S.REPAIRING)
    assert legal(_S.AWAITING_HUMAN, _S.REPAIRING, MovedBy.OPERATOR)


def test_the_events_of_a_birth() -> None:
    seen = Detection(at=later(2), fault_at=later(-5), text="said", fault_text="at fault", job="c/7", detail={"code": 1})
    _, (fault, opened) = open_incident(_new(), _S.OPEN, later(4), seen)
    assert (fault.kind, fault.at, fault.text, fault.job) == (EventKind.FAULT_OCCURRED, later(-5), "at fault", "c/7")
    assert (opened.kind, opened.at, opened.text, opened.job) == (EventKind.INCIDENT_OPENED, later(2), "said", "c/7")
    facts = {"check": "gpu.xid", "kind": "fault", "severity": "fatal", "remedy": "replace", "code": 1, "to": "open"}
    assert fault.detail == opened.detail == facts


def test_without_more_a_birth_is_told_by_the_incident_itself() -> None:
    found, (fault, opened) = open_incident(_new(), _S.OPEN, later(4))
    assert (fault.at, opened.at) == (found.fault_at, later(4)) == (later(-3), later(4))
    assert fault.text == opened.text == found.headline


def test_a_suspicion_is_no_detection_until_it_is_raised() -> None:
    found, (suspected,) = open_incident(_new(kind=IncidentKind.SILENCE), _S.SUSPECTED, NOW)
    assert suspected.kind is EventKind.INCIDENT_STATE
    assert (suspected.detail.get("from"), suspected.detail["to"]) == (None, "suspected")
    _, events = raise_to(found, _S.OPEN, later(9), Detection(fault_text="last sign of life"))
    kinds = [EventKind.FAULT_OCCURRED, EventKind.INCIDENT_STATE, EventKind.INCIDENT_OPENED]
    assert [e.kind for e in events] == kinds
    assert [("from" in e.detail, "to" in e.detail) for e in events] == [(True, True), (True, True), (False, False)]


def test_an_adopted_drain_says_nothing_of_a_faults_time() -> None:
    _, events = open_incident(_new(kind=IncidentKind.ADOPTED), _S.AWAITING_HUMAN, NOW)
    assert [e.kind for e in events] == [EventKind.INCIDENT_OPENED]


def test_a_watched_incident_that_is_raised_is_detected_then() -> None:
    seen = Detection(at=later(2), fault_at=later(-5), text="said")
    found, (fault, moved) = raise_to(_in(_S.WATCHING), _S.OPEN, later(4), seen)
    assert (found.state, found.state_since, found.fault_at) == (_S.OPEN, later(4), later(-5))
    assert (fault.kind, fault.at, fault.text) == (EventKind.FAULT_OCCURRED, later(-5), "said")
    assert (moved.kind, moved.at, moved.text) == (EventKind.INCIDENT_STATE, later(2), "watching → open (said)")
    assert fault.detail == moved.detail
    assert (moved.detail["from"], moved.detail["to"]) == ("watching", "open")


def test_one_that_becomes_graver_where_it_is_is_no_step() -> None:
    graver = replace(_in(_S.CONTAINED), severity=Severity.FATAL)
    assert raise_to(graver, _S.CONTAINED, later(4)) == (graver, [])


def test_a_remark_is_no_step() -> None:
    event = remark(_in(_S.OPEN), later(4), "not dead after all", {"more": 1})
    assert (event.kind, event.text, event.detail) == (EventKind.INCIDENT_STATE, "not dead after all", {"more": 1})
