"""An operator's order on an incident, on the real store: every such row of the table, and no other step."""

from __future__ import annotations

import itertools

import pytest

from holdfast.model.book import Change
from holdfast.model.errors import Rejected
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import TRANSITIONS, IncidentState, MovedBy
from holdfast.ports import Operation
from holdfast.store import SqlStore
from support.store_nouns import NOW, incident, later

_S = IncidentState
VERBS = {"close": _S.CLOSED, "retry": _S.REPAIRING}
ROWS = {(t.before, t.after) for t in TRANSITIONS if t.by is MovedBy.OPERATOR}


@pytest.mark.parametrize(("verb", "before"), list(itertools.product(VERBS, _S)))
def test_an_operator_makes_the_steps_of_the_table_and_no_others(
    store: SqlStore, verb: str, before: IncidentState
) -> None:
    store.commit(Change(incidents=(incident(state=before, state_since=NOW),)), fence=0)
    order, after = Operation(verb, "ada", "inc1", "drill"), VERBS[verb]
    if (before, after) not in ROWS:
        with pytest.raises(Rejected):
            store.operate(order, later(5))
        assert store.events() == ()
        return
    store.operate(order, later(5))
    found = store.incident("inc1")
    assert found is not None
    closed_at = later(5) if after is _S.CLOSED else None
    assert (found.state, found.state_since, found.closed_at) == (after, later(5), closed_at)
    assert (found.note, found.operated) == (f"{verb} by ada: drill", 1)
    said, moved = store.events()
    assert (said.kind, "to" in said.detail) == (EventKind.OPERATOR, False)
    assert moved.kind is (EventKind.INCIDENT_CLOSED if after is _S.CLOSED else EventKind.INCIDENT_STATE)
    assert (moved.detail["from"], moved.detail["to"], moved.detail["who"]) == (before.value, after.value, "ada")


@pytest.mark.parametrize("in_service", [True, False])
def test_a_node_that_is_out_when_its_incident_is_closed_by_hand_is_remembered(
    store: SqlStore, in_service: bool
) -> None:
    store.commit(Change(incidents=(incident(state=_S.AWAITING_HUMAN, state_since=NOW),)), fence=0)
    store.operate(Operation("close", "ada", "inc1", "drill", in_service=in_service), later(5))
    node = incident().node
    record = store.load_book(later(6)).nodes.get(node)
    assert (record.out_for if record is not None else "") == ("" if in_service else "inc1")
