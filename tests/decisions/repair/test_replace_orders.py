"""``holdfast node replace``: an order becomes an incident, is carried out once and about the machine that was seen, or is dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.decisions.repair import replace_orders
from holdfast.decisions.repair.replace_orders import OrderRefusal
from holdfast.model.actions.action import IntentState, Launch, TakeOverDrain
from holdfast.model.book import Brake, BrakeKind, Change
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.operators.node_orders import NodeOrder, OrderVerb
from holdfast.model.operators.proposals import ProposePolicy
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import NodeReason
from holdfast.ports import Operation
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.provider import IN_PLACE, NOTHING
from support.simulated.site import POLICY

_S = IncidentState
ROOMY = replace(
    POLICY,
    repair=replace(
        POLICY.repair,
        budget_cluster_share=1.0,
        launches_per_hour=30,
        launches_per_day=60,
        terminations_per_hour=30,
        terminations_per_day=60,
    ),
)
"""Half of a small cluster's budget is none, and an order uses half at most."""
NODE, OLD, ID = "n1", "i-0001", "0h3k5d2m8x1q"


def a_site(nodes: int = 4, **changed: Any) -> Site:
    return Site(nodes, **{"policy": ROOMY, **changed})


def order(
    site: Site, *, node: str = NODE, machine: str = OLD, over: NodeReason | None = None, number: str = ID
) -> NodeOrder:
    given = NodeOrder(number, node, OrderVerb.REPLACE, site.clock.now(), "ops", "board swap", "OPS-12", over, machine)
    site.store.operate(Operation("replace_node", "ops", node, given.reason, order=given, node=node), given.at)
    return given


def until(site: Site, state: IncidentState, seconds: int = 900) -> Incident:
    for _ in range(seconds):
        if (found := site.store.incidents(node=NODE)) and found[0].state is state:
            return found[0]
        site.run(1)
    raise AssertionError(f"never {state.value}: {site.story()}")


def dropped(site: Site) -> list[str]:
    """What the notices say of orders that are not carried out."""
    return [s for s in site.notices.sent if "is not carried out" in s]


def untouched(site: Site) -> bool:
    return (site.provider.terminated, site.provider.replaced, site.provider.tokens) == ({}, {}, {})


@pytest.mark.parametrize("in_place", [False, True])
def test_a_healthy_node_gets_another_machine_and_returns(in_place: bool) -> None:
    site = a_site(4, can=IN_PLACE) if in_place else a_site(4)
    order(site)
    found = until(site, _S.CLOSED)
    assert (found.kind, found.only_ordered, found.order and found.order.ticket) == (
        IncidentKind.ORDERED,
        True,
        "OPS-12",
    )
    assert "ordered by ops: board swap (ticket OPS-12)" in found.headline
    assert not site.slurm.nodes[NODE].drain
    assert site.machine(NODE).instance_id != OLD
    assert len(site.provider.tokens) == 1
    assert found.order_dropped == ""
    site.run(900, step_s=5)
    assert len(site.provider.tokens) == 1, "an order is carried out once"
    assert dropped(site) == []
    assert site.provider.reported == [], "no fault is reported to the provider"


def test_a_job_runs_to_its_end_first() -> None:
    site = a_site(2)
    job = site.slurm.submit(2, exclusive=True, comment="holdfast")
    site.run(2)
    order(site)
    site.run(600, step_s=2)
    assert (job.state, job.restarts, untouched(site)) == ("RUNNING", 0, True)
    assert "waits for the end of job" in site.incident(NODE).note
    site.slurm.finish(job, "COMPLETED")
    until(site, _S.CLOSED)
    assert site.machine(NODE).instance_id != OLD


# What is not taken


def never(site: Site) -> None:
    site.policy = replace(ROOMY, nodes=(NodeSet("login", nodes=NODE, never_touch=True),))


def observed(site: Site) -> None:
    site.policy = replace(ROOMY, nodes=(NodeSet("lab", nodes=NODE, mode="observe"),))


def ordered_before(site: Site) -> None:
    order(site, number="0h3k5d2m8x1p")
    site.run(3)


def suspect(site: Site) -> None:
    site.machine(NODE).agent_up = False
    until(site, _S.SUSPECTED)


def repaired(site: Site) -> None:
    site.fault(NODE)
    until(site, _S.REPAIRING)


def acknowledged(site: Site) -> None:
    site.operate("pause")
    site.fault(NODE)
    site.run(2)
    site.operate("acknowledge", site.incident(NODE).id)
    site.operate("resume")


CASES: dict[OrderRefusal, tuple[Callable[[Site], Any], dict[str, Any], dict[str, Any]]] = {
    OrderRefusal.UNKNOWN_NODE: (lambda _s: None, {}, {"node": "n9"}),
    OrderRefusal.SPARE: (lambda _s: None, {"spares": (NODE,)}, {}),
    OrderRefusal.MAINTENANCE: (lambda s: s.slurm.operator_reserves("theirs", NODE), {}, {}),
    OrderRefusal.OTHER_MACHINE: (lambda _s: None, {}, {"machine": "i-9999"}),
    OrderRefusal.DRAINED_BY_OTHERS: (lambda s: s.slurm.operator_drains(NODE, "mine", "eve"), {}, {}),
    OrderRefusal.NO_SUCH_DRAIN: (lambda _s: None, {}, {"over": NodeReason("mine", "eve", None)}),
    OrderRefusal.CANNOT_REPLACE: (lambda _s: None, {"can": NOTHING}, {}),
    OrderRefusal.NEVER_TOUCH: (never, {}, {}),
    OrderRefusal.OBSERVE: (observed, {}, {}),
    OrderRefusal.ORDERED_ALREADY: (ordered_before, {}, {}),
    OrderRefusal.AT_WORK: (suspect, {}, {}),
    OrderRefusal.NOT_OURS: (acknowledged, {}, {}),
    OrderRefusal.LATER_ORDER: (lambda _s: None, {}, {}),
    OrderRefusal.EXPIRED: (lambda _s: None, {}, {}),
}


def test_every_refusal_has_a_case() -> None:
    assert set(CASES) == set(OrderRefusal)


@pytest.mark.parametrize("why", [w for w in OrderRefusal if w not in (OrderRefusal.LATER_ORDER, OrderRefusal.EXPIRED)])
def test_what_is_refused_leaves_a_trace_once(why: OrderRefusal) -> None:
    prepare, made, given = CASES[why]
    site = a_site(4, **made)
    prepare(site)
    if why in (OrderRefusal.NEVER_TOUCH, OrderRefusal.OBSERVE):
        site.start_controller()
    site.run(40)
    before = len(site.store.incidents())
    order(site, **given)
    site.run(120, step_s=2)
    (event,) = [
        e for e in site.store.events(kinds=(EventKind.ACTION_REFUSED,)) if e.detail.get("kind") == replace_orders.STEP
    ]
    assert (event.detail["why"], event.detail["who"], event.detail["ticket"]) == (why.value, "ops", "OPS-12")
    assert "\n" not in event.text
    assert len(dropped(site)) == 1
    if why is not OrderRefusal.ORDERED_ALREADY:
        assert untouched(site)
        assert all(i.order is None for i in site.store.incidents())
    if why is not OrderRefusal.AT_WORK:
        assert len(site.store.incidents()) == before
    site.run(3500, step_s=20)
    assert len(dropped(site)) == 1


def test_a_dead_node_whose_machine_runs_is_not_promised_to_be_replaced() -> None:
    """Its network is gone: the provider shows it running, and what runs on it may still write."""
    site = a_site()
    site.machine(NODE).cut_off, site.machine(NODE).unreachable_by = True, {"n2", "n3", "n4"}
    until(site, _S.AWAITING_HUMAN, seconds=2400)
    order(site)
    site.run(30)
    (said,) = dropped(site)
    assert "running with its checks passing" in said
    assert "power it off there, then order it again" in said
    assert untouched(site)


def test_a_node_that_is_being_repaired_is_not_ordered_again() -> None:
    site = a_site(4)
    repaired(site)
    order(site)
    site.run(5)
    assert [e.detail["why"] for e in site.store.events(kinds=(EventKind.ACTION_REFUSED,)) if "why" in e.detail] == [
        "at_work"
    ]
    until(site, _S.CLOSED)
    assert len(site.provider.tokens) == 1


def test_a_later_order_for_the_node_wins() -> None:
    site = a_site(4)
    order(site)
    later = NodeOrder("0h3k5d2m8x1r", NODE, OrderVerb.DRAIN, site.clock.now(), "eve", "mine")
    site.store.operate(Operation("drain_node", "eve", NODE, "mine", order=later, node=NODE), later.at)
    site.run(60)
    assert (site.slurm.nodes[NODE].reason, untouched(site), len(dropped(site))) == ("operator eve: mine", True, 1)


def test_an_order_that_could_not_be_begun_in_time_is_dropped() -> None:
    site = a_site(4)
    order(site)
    site.clock.advance(700)
    site.run(30)
    assert (site.store.incidents(), untouched(site), len(dropped(site))) == ((), True, 1)


# The drain of another operator


def test_a_drain_that_the_order_names_is_taken_over_and_ended() -> None:
    site = a_site(4)
    site.slurm.operator_drains(NODE, "bad fan", "eve")
    site.run(5)
    order(site, over=site.slurm.node(NODE).given_reason)
    until(site, _S.CLOSED)
    (step,) = [i for i in site.store.intents() if isinstance(i.action, TakeOverDrain)]
    assert (step.state, site.slurm.nodes[NODE].drain) == (IntentState.DONE, False)
    assert site.machine(NODE).instance_id != OLD


@pytest.mark.parametrize("moment", ["planned", "before"])
def test_another_drain_in_its_place_stays(moment: str) -> None:
    site = a_site(4)
    site.slurm.operator_drains(NODE, "bad fan", "eve")
    site.run(5)

    def changes(intent: Any, at: str) -> None:
        if isinstance(intent.action, TakeOverDrain) and at == "planned":
            site.slurm.operator_drains(NODE, "not yet", "eve")

    if moment == "planned":
        site.at_boundary = changes
    order(site, over=site.slurm.node(NODE).given_reason)
    if moment == "before":
        site.slurm.operator_drains(NODE, "not yet", "eve")
    site.run(600, step_s=2)
    assert (site.slurm.nodes[NODE].reason, untouched(site), len(dropped(site))) == ("not yet", True, 1)
    assert all(not i.open for i in site.store.incidents())


def test_an_operator_who_takes_the_node_later_keeps_it() -> None:
    site = a_site(2)
    site.slurm.submit(2, exclusive=True)
    site.run(2)
    order(site)
    until(site, _S.CONTAINED)
    site.slurm.operator_drains(NODE, "mine", "eve")
    site.run(120)
    assert (site.slurm.nodes[NODE].reason, untouched(site), len(dropped(site))) == ("mine", True, 1)
    assert not site.incident(NODE).open


# Another machine


@pytest.mark.parametrize("job_over_first", [False, True])
def test_an_order_is_about_no_other_machine(job_over_first: bool) -> None:
    """Exchanged by another hand while the order waits for a job, or right after."""
    site = a_site(2)
    job = site.slurm.submit(2, exclusive=True)
    site.run(2)
    order(site)
    until(site, _S.CONTAINED)
    if job_over_first:
        site.slurm.finish(job, "COMPLETED")
    site.provider.exchange(NODE)
    site.run(120)
    if not job_over_first:
        site.slurm.finish(job, "COMPLETED")
    site.run(900, step_s=2)
    new = site.machine(NODE).instance_id
    assert (new != OLD, new in site.provider.terminated) == (True, False)
    assert list(site.provider.tokens) == ["in-place-by-itself-n1"], "nothing was launched"
    assert len(dropped(site)) == 1
    assert (site.incident(NODE).open, site.slurm.nodes[NODE].drain) == (False, False), site.story()


# A fault


@pytest.mark.parametrize("remedy", [Remedy.RESET_GPU, Remedy.HUMAN])
def test_a_fault_that_comes_while_the_order_waits_is_a_fault(remedy: Remedy) -> None:
    site = a_site(4)
    job = site.slurm.submit(1, exclusive=True, comment="holdfast")
    site.run(2)
    order(site, node=job.nodes[0])
    site.run(5)
    site.fault(NODE, remedy=remedy)
    site.run(2)
    found = site.incident(NODE)
    assert (found.severity, found.only_ordered, found.kind) == (Severity.FATAL, False, IncidentKind.ORDERED)
    until(site, _S.CLOSED)
    assert (site.machine(NODE).instance_id != OLD, job.restarts) == (True, 1)


def test_a_new_machine_is_not_ended_for_what_the_old_one_reports_as_the_order_completes() -> None:
    """For each second of the last minute: a fault of the machine that goes, or went, is no fault of the new one."""
    took = _seconds_to_close()
    for at in range(max(1, took - 40), took + 3):
        site = a_site(3)
        old = site.machine(NODE)
        order(site)
        site.run(at)
        site.agents.find(old)
        site.run(900, step_s=2)
        assert site.machine(NODE).instance_id not in site.provider.terminated


def _seconds_to_close() -> int:
    site = a_site(3)
    order(site)
    for second in range(900):
        if (found := site.store.incidents(node=NODE)) and not found[0].open:
            return second
        site.run(1)
    raise AssertionError(site.story())


def test_a_fault_of_the_new_machine_is_a_fault_of_it() -> None:
    site = a_site(3)
    order(site)
    until(site, _S.VALIDATING)
    new = next(m for m in site.machines.values() if m.node == NODE and m.instance_id != OLD)
    site.agents.find(new)
    site.run(5)
    assert (site.incident(NODE).state, site.incident(NODE).repair_attempt) == (_S.REPAIRING, 1)
    assert OLD not in site.provider.terminated


# An incident that is open


@pytest.mark.parametrize("state", [_S.OPEN, _S.CONTAINED, _S.AWAITING_HUMAN])
def test_an_order_directs_the_incident_at_work(state: IncidentState) -> None:
    site = a_site(2)
    job = None
    if state is _S.OPEN:
        site.operate("pause")
    if state is _S.CONTAINED:
        job = site.slurm.submit(2, exclusive=True)
        site.run(2)
    remedy = Remedy.HUMAN if state is _S.AWAITING_HUMAN else Remedy.RESET_GPU
    site.fault(NODE, remedy=remedy, severity=Severity.DEGRADED)
    number = until(site, state).id
    order(site)
    site.run(2)
    if state is _S.OPEN:
        site.operate("resume")
    if job is not None:
        site.slurm.finish(job, "COMPLETED")
    found = until(site, _S.CLOSED)
    assert (found.id, found.kind, found.order is not None) == (number, IncidentKind.FAULT, True)
    assert site.machine(NODE).instance_id != OLD
    assert {i.id for i in site.store.incidents(node=NODE)} == {number}


def test_after_an_order_the_attempts_begin_afresh_and_a_failure_is_told_again() -> None:
    site = a_site(2)
    site.provider.launches_broken = True
    site.fault(NODE)
    waits = until(site, _S.AWAITING_HUMAN, 3000)
    told = [s for s in site.notices.sent if "needs an operator" in s]
    tried = len(site.provider.tokens)
    order(site)
    site.run(3)
    assert site.incident(NODE).state is not _S.AWAITING_HUMAN
    again = until(site, _S.AWAITING_HUMAN, 3000)
    assert again.id == waits.id
    assert len(site.provider.tokens) == tried + POLICY.repair.attempts
    site.run(30)
    assert len([s for s in site.notices.sent if "needs an operator" in s]) == len(told) + 1
    site.provider.launches_broken = False
    order(site, number="0h3k5d2m8x1r")
    until(site, _S.CLOSED)
    assert site.machine(NODE).instance_id != OLD


def test_an_incident_that_waits_for_an_operator_does_not_skip_the_wait_for_jobs() -> None:
    site = a_site(2)
    job = site.slurm.submit(2, exclusive=True)
    site.run(2)
    site.fault(NODE, remedy=Remedy.HUMAN, severity=Severity.DEGRADED)
    site.run(5)
    order(site)
    site.run(300, step_s=2)
    assert (job.state, untouched(site)) == ("RUNNING", True)


# What holds it back


def test_an_order_waits_for_capacity() -> None:
    site = a_site(2)
    site.provider.capacity = False
    order(site)
    site.run(300, step_s=2)
    assert any("no machine yet" in s for s in site.notices.sent)
    site.provider.capacity = True
    until(site, _S.CLOSED, 3000)
    assert site.machine(NODE).instance_id != OLD


def test_orders_trip_no_brake_and_a_brake_holds_them() -> None:
    site = a_site(12)
    for n in range(1, 9):
        order(site, node=f"n{n}", machine=f"i-{n:04d}", number=f"0h3k5d2m8x{n:02d}")
    site.run(20)
    assert site.book.brakes == {}
    lease = site.store.lease()
    assert lease is not None
    site.store.commit(Change(brakes=(Brake(BrakeKind.DRAINS, site.clock.now(), "drill"),)), lease.fence)
    order(site, node="n11", machine="i-0011", number="0h3k5d2m8x99")
    site.run(60)
    assert not site.slurm.nodes["n11"].drain
    assert "brake 'drains' holds" in site.incident("n11").note
    site.operate("release_brake", "drains")
    site.run(5)
    assert site.slurm.nodes["n11"].drain


@pytest.mark.parametrize("launches", [1, 2, 3, 4])
def test_an_order_leaves_a_budget_for_a_fault(launches: int) -> None:
    repair = replace(ROOMY.repair, launches_per_hour=launches, budget_hour_share=0.0)
    site = a_site(12, policy=replace(ROOMY, repair=repair))
    for n in range(1, 5):
        order(site, node=f"n{n}", machine=f"i-{n:04d}", number=f"0h3k5d2m8x{n:02d}")
    site.run(60)
    begun = [i for i in site.store.intents() if isinstance(i.action, Launch) and i.is_attempt]
    assert len(begun) == launches // 2
    assert "kept for faults" in site.incident("n4").note
    site.fault("n9")
    site.run(10)
    assert any(isinstance(i.action, Launch) and i.action.node == "n9" for i in site.store.intents())


def test_in_mode_propose_the_order_is_the_accept_for_its_machine_alone() -> None:
    asks = ProposePolicy(steps=("drain", "replace", "undrain"))
    site = a_site(2, policy=replace(ROOMY, mode=Mode.PROPOSE, propose=asks))
    order(site)
    until(site, _S.VALIDATING)
    site.run(120, step_s=2)
    found = site.incident(NODE)
    assert OLD in site.provider.terminated
    assert "undrain waits for an operator's accept" in found.note, (
        "the machine that came was not seen when it was ordered"
    )
    assert [r.question.kind for r in found.proposals] == ["undrain"]


def test_an_order_given_in_observe_mode_is_not_done_later() -> None:
    site = a_site(2, policy=replace(ROOMY, mode=Mode.OBSERVE))
    order(site)
    site.run(10)
    site.policy = ROOMY
    site.start_controller()
    site.start_actor()
    site.run(400, step_s=2)
    assert (untouched(site), site.store.incidents()) == (True, ())


def test_a_maintenance_window_holds_the_order_and_the_node_is_not_put_back_half_done() -> None:
    site = a_site(2)
    job = site.slurm.submit(2, exclusive=True)
    site.run(2)
    order(site)
    until(site, _S.CONTAINED)
    site.slurm.operator_reserves("theirs", NODE)
    site.slurm.finish(job, "COMPLETED")
    site.run(300, step_s=2)
    assert (untouched(site), site.slurm.nodes[NODE].drain) == (True, True)
    site.slurm.delete_reservation("theirs")
    until(site, _S.CLOSED)
    assert site.machine(NODE).instance_id != OLD, "it was ordered, and nothing of it was done meanwhile"


def test_a_site_that_takes_no_orders_drops_it() -> None:
    site = a_site(2)
    site.actor.outside = replace(site.actor.outside, node_orders=False)
    order(site)
    site.run(60)
    assert (untouched(site), site.slurm.nodes[NODE].drain, len(dropped(site))) == (True, False, 1)
    assert "actor.node_orders" in dropped(site)[0]


# Dying in between


@pytest.mark.parametrize("boundary", ["planned", "started", "acted", "finished"])
@pytest.mark.parametrize("kind", ["TakeOverDrain", "Drain", "Launch", "Replace", "Terminate", "Assign", "Undrain"])
def test_a_death_at_any_step_does_it_once(kind: str, boundary: str) -> None:
    site = a_site(3, can=IN_PLACE) if kind == "Replace" else a_site(3)
    if kind == "TakeOverDrain":
        site.slurm.operator_drains(NODE, "bad fan", "eve")
        site.run(5)
    site.kill_at = (kind, boundary)
    order(site, over=site.slurm.node(NODE).given_reason if kind == "TakeOverDrain" else None)
    until(site, _S.CLOSED)
    assert site.killed == 1
    assert (len(site.provider.tokens), site.slurm.nodes[NODE].drain, dropped(site)) == (1, False, [])
    assert site.machine(NODE).instance_id != OLD


def test_a_controller_that_starts_again_at_any_second_takes_the_order_once() -> None:
    took = _seconds_to_close()
    for at in (0, 1, 2, 3, 5, took // 2, took - 5, took - 1):
        site = a_site(3)
        order(site)
        site.run(at)
        site.start_controller()
        site.start_actor()
        until(site, _S.CLOSED, 2000)
        assert (len(site.provider.tokens), len(site.store.incidents())) == (1, 1)
