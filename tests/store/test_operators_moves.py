"""An operator's order on an incident, on the real store: every such row of the table, and no other step."""

from __future__ import annotations

import itertools

import pytest

from holdfast.model.actions.action import IntentState, Launch
from holdfast.model.book import Change
from holdfast.model.errors import Rejected
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import TRANSITIONS, IncidentState, MovedBy
from holdfast.model.operators.node_orders import MachineOrder
from holdfast.ports import Operation
from holdfast.store import SqlStore
from support.store_nouns import NOW, incident, intent, later

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


@pytest.mark.parametrize(
    ("before", "launch", "withdrawn"),
    [
        (_S.OPEN, None, True),
        (_S.CONTAINED, None, True),
        (_S.REPAIRING, IntentState.FAILED, True),
        (_S.REPAIRING, IntentState.STARTED, False),
        (_S.VALIDATING, IntentState.DONE, False),
        (_S.AWAITING_HUMAN, None, False),
    ],
)
def test_to_close_an_order_that_has_not_begun_withdraws_it(
    store: SqlStore, before: IncidentState, launch: IntentState | None, withdrawn: bool
) -> None:
    ordered = MachineOrder("0h3k5d2m8x1q", "n1", NOW, "ops", "board", "", None, "i-1", frozenset({"GPU-1"}))
    waits = incident(state=before, state_since=NOW, by_order=True, order=ordered)
    begun = [intent("inc1/Launch/n1.0/1", Launch("n1", "inc1-0", "i-1"), state=launch)] if launch is not None else []
    store.commit(Change(incidents=(waits,), intents=tuple(begun)), fence=0)
    close = Operation("close", "ada", "inc1", "drill")
    store.operate(close, later(5))
    found = store.incident("inc1")
    assert found is not None
    assert (found.open, found.order_withdrawn, found.order) == (withdrawn, withdrawn, ordered)
    if withdrawn:
        assert (found.state, found.order_dropped) == (before, "withdrawn: close by ada: drill")
        store.operate(close, later(6))
        assert store.incident("inc1") is not None
        assert not store.load_book(later(7)).incidents["inc1"].open, "a second order closes it"
