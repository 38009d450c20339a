"""``holdfast node drain`` and ``release``: an operator's orders, carried out in Slurm as the operator's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.actor.carry_out import carry_out
from holdfast.decisions.nodes import slurm_drains
from holdfast.model.actions.action import Intent, IntentState
from holdfast.model.errors import Rejected
from holdfast.model.event import EventKind
from holdfast.model.ids import incident_of_reason
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.operators.node_orders import (
    MOST,
    MOST_REASON,
    DrainForOperator,
    NodeOrder,
    NodeOrders,
    OrderVerb,
    ReleaseForOperator,
    order_of,
)
from holdfast.model.policies.policy import Mode
from holdfast.ports import Operation
from support.simulated import Site
from support.simulated.site import POLICY
from support.store_nouns import NOW

REASON = "operator ops: swap the cable [ticket OPS-12]"


def _order(site: Site, verb: OrderVerb, node: str = "n1", number: str = "0000000000aa") -> NodeOrder:
    node_now = site.slurm.node(node)
    over = node_now.given_reason if verb is OrderVerb.RELEASE else None
    order = NodeOrder(number, node, verb, site.clock.now(), "ops", "swap the cable", "OPS-12", over)
    site.store.operate(Operation(f"{verb.value}_node", "ops", node, order.reason, order=order, node=node), order.at)
    return order


def _steps(site: Site) -> list[Intent]:
    return [i for i in site.store.intents() if isinstance(i.action, DrainForOperator | ReleaseForOperator)]


@pytest.mark.parametrize("mode", [Mode.ACT, Mode.OBSERVE])
@pytest.mark.parametrize("paused", [False, True])
def test_a_drain_is_the_operators_and_is_never_taken_back(mode: Mode, paused: bool) -> None:
    site = Site(4, policy=replace(POLICY, mode=mode))
    if paused:
        site.operate("pause")
    _order(site, OrderVerb.DRAIN)
    site.run(900, step_s=5)
    (step,) = _steps(site)
    assert (step.state, site.slurm.nodes["n1"].reason) == (IntentState.DONE, REASON)
    assert [call[0] for call in site.slurm.calls] == ["drain"]
    assert "n1" not in site.book.marks
    assert site.store.incidents() == ()


def test_nothing_is_done_to_a_node_that_an_operator_drained_through_holdfast() -> None:
    site = Site(4)
    _order(site, OrderVerb.DRAIN)
    site.run(10)
    site.fault("n1")
    site.run(900, step_s=5)
    assert site.slurm.nodes["n1"].reason == REASON
    assert (site.provider.terminated, site.provider.cycled, site.slurm.undrained) == ({}, {}, [])
    assert site.incident("n1").open


def test_the_record_says_who_ordered_it() -> None:
    site = Site(4)
    _order(site, OrderVerb.DRAIN)
    site.run(10)
    (event,) = site.store.events(kinds=(EventKind.NODE_DRAINED_BY_OTHERS,))
    assert event.text == f"drained by root: {REASON} (ordered by ops through Holdfast)"
    assert (event.detail["who"], event.detail["ticket"]) == ("ops", "OPS-12")


def test_an_operator_takes_over_what_holdfast_drained() -> None:
    site = Site(4)
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.fault("n1")
    site.run(5)
    assert incident_of_reason(site.slurm.nodes["n1"].reason) is not None
    _order(site, OrderVerb.DRAIN)
    site.run(600, step_s=5)
    assert site.slurm.nodes["n1"].reason == REASON
    assert "i-0001" not in site.provider.terminated


def test_a_drain_of_another_operator_stays() -> None:
    site = Site(4)
    site.slurm.operator_drains("n1", "mine", "eve")
    site.run(5)
    _order(site, OrderVerb.DRAIN)
    site.run(60)
    (step,) = _steps(site)
    assert (step.state, site.slurm.nodes["n1"].reason) == (IntentState.REFUSED, "mine")


def test_a_release_puts_another_s_drain_back_once() -> None:
    site = Site(4)
    site.slurm.operator_drains("n1", "mine", "eve")
    site.run(5)
    _order(site, OrderVerb.RELEASE)
    site.run(10)
    assert not site.slurm.nodes["n1"].drain
    site.slurm.operator_drains("n1", "mine", "eve")
    site.run(900, step_s=5)
    assert site.slurm.nodes["n1"].drain, "a later drain is another one"
    assert [i.state for i in _steps(site)] == [IntentState.DONE]


def test_a_drain_that_has_changed_since_the_order_stays() -> None:
    site = Site(4)
    site.slurm.operator_drains("n1", "mine", "eve")
    site.run(5)
    _order(site, OrderVerb.RELEASE)
    site.slurm.operator_drains("n1", "not yet", "eve")
    site.run(30)
    (step,) = _steps(site)
    assert (step.state, site.slurm.nodes["n1"].reason) == (IntentState.REFUSED, "not yet")


def test_a_release_of_what_holdfast_drained_ends_the_incident_like_scontrol() -> None:
    site = Site(4, policy=replace(POLICY, repair=replace(POLICY.repair, rungs=("human",))))
    site.fault("n1")
    site.run(120, step_s=2)
    assert site.incident("n1").state is IncidentState.AWAITING_HUMAN
    _order(site, OrderVerb.RELEASE)
    site.run(60)
    assert not site.slurm.nodes["n1"].drain
    assert not site.incident("n1").open


def test_an_order_that_could_not_be_carried_out_in_time_is_dropped() -> None:
    site = Site(4)
    _order(site, OrderVerb.DRAIN)
    site.clock.advance(700)
    site.run(30)
    assert (_steps(site), site.slurm.nodes["n1"].drain) == ([], False)


def test_of_a_nodes_orders_the_newest_counts() -> None:
    site = Site(4)
    _order(site, OrderVerb.DRAIN, number="0000000000aa")
    site.slurm.operator_drains("n1", "x", "eve")
    _order(site, OrderVerb.RELEASE, number="0000000000ab")
    site.run(30)
    assert [type(i.action) for i in _steps(site)] == [ReleaseForOperator]


def test_a_restart_of_the_controller_does_not_repeat_an_order() -> None:
    site = Site(4)
    _order(site, OrderVerb.DRAIN)
    site.run(10)
    site.slurm.operator_resumes("n1")
    site.start_controller()
    site.start_actor()
    site.run(1200, step_s=5)
    assert not site.slurm.nodes["n1"].drain
    assert len(_steps(site)) == 1


# Tables


@pytest.mark.parametrize(
    ("by", "reason", "ticket", "expected"),
    [
        ("ops", "psu", "", "operator ops: psu"),
        ("ops", "psu", "OPS-1", "operator ops: psu [ticket OPS-1]"),
        ("ops", "a\nb = 'c'\\d", "", "operator ops: a b c d"),
        ("ops", "Action:Replace", "", "operator ops: Action:Replace"),
        ("ops", "holdfast[0h3k5d2m8x1q]: x", "", "operator ops: holdfast[0h3k5d2m8x1q]: x"),
        ("ops", "Kill task failed", "", "operator ops: Kill task failed"),
    ],
)
def test_the_reason_reads_like_an_operators(by: str, reason: str, ticket: str, expected: str) -> None:
    text = NodeOrder("i", "n1", OrderVerb.DRAIN, NOW, by, reason, ticket).slurm_reason
    assert text == expected
    assert not text.startswith("Action:")
    assert incident_of_reason(text) is None
    assert not slurm_drains.is_slurms(text)


def test_a_long_reason_keeps_its_ticket() -> None:
    text = NodeOrder("i", "n1", OrderVerb.DRAIN, NOW, "ops", "x" * 500, "OPS-1").slurm_reason
    assert (len(text), text.endswith("x [ticket OPS-1]")) == (MOST_REASON, True)


def test_orders_are_bounded_and_forgotten() -> None:
    many = NodeOrders(tuple(NodeOrder(str(n), "n1", OrderVerb.DRAIN, NOW, "ops", "x") for n in range(MOST)))
    with pytest.raises(Rejected, match="within the hour"):
        many.given(many.orders[0])
    assert many.at(NOW + timedelta(hours=2)).orders == ()


def test_the_order_of_a_drain_is_known_by_its_reason() -> None:
    order = NodeOrder("i", "n1", OrderVerb.DRAIN, NOW, "ops", "psu")
    assert order_of([order], "n1", "operator ops: psu") is order
    assert order_of([order], "n2", "operator ops: psu") is None
    assert order_of([order], "n1", "psu") is None


def test_the_actor_drains_for_nobody_without_a_name() -> None:
    site = Site(4)
    intent = Intent("upkeep/x/1", "upkeep", DrainForOperator("n1", "psu"), "", 1, IntentState.PLANNED, site.clock.now())
    assert carry_out(intent, site.actor.outside).state is IntentState.REFUSED
    assert not site.slurm.nodes["n1"].drain
