"""Orders to replace a machine that are dropped, withdrawn or held up: no machine is ended that was not seen, and the node goes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from decisions.repair.test_replace_orders import ID, NODE, OLD, ROOMY, a_site, dropped, order, until, untouched
from holdfast.actor.second_look import outlived
from holdfast.decisions.repair.replace_orders import waits_for
from holdfast.model.actions import steps
from holdfast.model.actions.action import Drain, IntentState, Launch, Replace
from holdfast.model.actions.budgets import BudgetExtension, BudgetKind
from holdfast.model.actions.steps import Step
from holdfast.model.book import Book, Brake, BrakeKind, Change
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.operators.node_orders import MachineOrder, NodeOrder, OrderVerb
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Mode
from holdfast.ports import Operation
from support.simulated import Site
from support.simulated.provider import IN_PLACE
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob
from support.store_nouns import NOW, incident, intent

_S = IncidentState
TWO_A_DAY = replace(ROOMY, nodes=(NodeSet("prod", nodes="n[1-6]", budgets={"terminations_per_day": 2}),))
SECOND = "0h3k5d2m8x1r"


def said(site: Site) -> list[str]:
    """All notices of orders that are not carried out, whether or not an operator has to act."""
    made = site.store.events(kinds=(EventKind.NOTICE_MADE,))
    return [e.text for e in made if "is not carried out" in e.text]


def waiting_for_a_job(nodes: int = 3, **changed: Any) -> tuple[Site, SimJob]:
    """An order whose node is drained while a job runs there."""
    site = a_site(nodes, **changed)
    job = site.slurm.submit(nodes, exclusive=True)
    site.run(2)
    order(site)
    until(site, _S.CONTAINED)
    site.run(30)
    return site, job


def to(site: Site, **changed: Any) -> None:
    site.policy = replace(ROOMY, **changed)
    site.start_controller()
    site.start_actor()


# A board that was exchanged under the same instance id


@pytest.mark.parametrize("can", [None, IN_PLACE])
@pytest.mark.parametrize("job_over_first", [False, True])
def test_a_machine_whose_board_was_exchanged_is_kept(can: Any, job_over_first: bool) -> None:
    site, job = waiting_for_a_job(2, **({"can": can} if can is not None else {}))
    if job_over_first:
        site.slurm.finish(job, "COMPLETED")
    site.machine(NODE).gpu_prefix = "vendor-new"
    site.provider.power_cycle(NODE)
    site.run(120)
    if not job_over_first:
        site.slurm.finish(job, "COMPLETED")
    site.run(900, step_s=2)
    assert (untouched(site), site.machine(NODE).instance_id, len(dropped(site))) == (True, OLD, 1)
    assert "other GPUs" in dropped(site)[0]
    assert (site.incident(NODE).open, site.slurm.nodes[NODE].drain) == (False, False)


def test_a_board_that_is_exchanged_while_no_machine_can_be_had_is_kept() -> None:
    site = a_site(4)
    site.provider.capacity = False
    order(site)
    until(site, _S.REPAIRING)
    site.run(60)
    site.machine(NODE).gpu_prefix = "vendor-new"
    site.provider.power_cycle(NODE)
    site.run(300)
    site.provider.capacity = True
    site.run(1200, step_s=5)
    assert (untouched(site), len(dropped(site)), site.slurm.nodes[NODE].drain) == (True, 1, False)


def test_a_reboot_alone_drops_no_order() -> None:
    site, job = waiting_for_a_job(2)
    site.slurm.finish(job, "COMPLETED")
    site.provider.power_cycle(NODE)
    until(site, _S.CLOSED)
    assert (site.machine(NODE).instance_id != OLD, dropped(site)) == (True, [])


def test_an_order_of_before_a_board_was_exchanged_is_not_taken() -> None:
    site = a_site(3)
    given = NodeOrder(
        ID, NODE, OrderVerb.REPLACE, site.clock.now(), "ops", "old", "", None, OLD, frozenset({"GPU-gone"})
    )
    site.store.operate(Operation("replace_node", "ops", NODE, "old", order=given, node=NODE), given.at)
    site.run(60)
    assert (untouched(site), site.store.incidents(), len(dropped(site))) == (True, (), 1)


# Withdrawn


@pytest.mark.parametrize("job_over_first", [False, True])
def test_the_close_of_a_waiting_order_puts_the_node_back(job_over_first: bool) -> None:
    site, job = waiting_for_a_job(3)
    if job_over_first:
        site.provider.capacity = False
        site.slurm.finish(job, "COMPLETED")
        until(site, _S.REPAIRING)
        site.run(60)
    site.operate("close", site.incident(NODE).id)
    site.run(30)
    if not job_over_first:
        assert job.state == "RUNNING"
        site.slurm.finish(job, "COMPLETED")
    site.run(900, step_s=2)
    assert (untouched(site), site.slurm.nodes[NODE].drain, site.incident(NODE).open) == (True, False, False)
    assert len(said(site)) == 1
    assert "withdrawn: close by ops" in said(site)[0]
    assert dropped(site) == [], "no one has to act"


def test_the_close_of_an_order_that_was_never_begun_leaves_the_node_in_service() -> None:
    site = a_site(3)
    lease = site.store.lease()
    assert lease is not None
    site.store.commit(Change(brakes=(Brake(BrakeKind.DRAINS, site.clock.now(), "drill"),)), lease.fence)
    order(site)
    site.run(30)
    site.operate("close", site.incident(NODE).id)
    site.run(5)
    site.operate("release_brake", "drains")
    site.run(300)
    assert (untouched(site), site.slurm.nodes[NODE].drain, site.incident(NODE).open) == (True, False, False)
    assert len(said(site)) == 1


def test_the_close_of_an_order_leaves_the_drain_that_it_took_over() -> None:
    site = a_site(3)
    site.slurm.operator_drains(NODE, "bad fan", "eve")
    site.provider.capacity = False
    site.run(5)
    order(site, over=site.slurm.node(NODE).given_reason)
    until(site, _S.REPAIRING)
    site.operate("close", site.incident(NODE).id)
    site.run(600, step_s=2)
    assert (untouched(site), site.slurm.nodes[NODE].drain, site.incident(NODE).open) == (True, True, False)
    assert len(said(site)) == 1


def test_the_close_of_an_order_whose_launch_has_begun_is_a_close() -> None:
    site = a_site(3)
    order(site)
    until(site, _S.VALIDATING)
    site.operate("close", site.incident(NODE).id)
    assert not site.incident(NODE).open


def test_an_order_that_is_withdrawn_as_its_launch_begins_keeps_its_machine() -> None:
    """The launch is begun all the same; what it brings is given back."""
    site = a_site(3)

    def closes(intent: Any, at: str) -> None:
        if (intent.kind, at) == ("Launch", "planned"):
            site.operate("close", site.incident(NODE).id)

    site.at_boundary = closes
    order(site)
    site.run(900, step_s=2)
    assert (OLD in site.provider.terminated, site.machine(NODE).instance_id) == (False, OLD)
    assert (site.slurm.nodes[NODE].drain, site.incident(NODE).open, len(site.provider.terminated)) == (False, False, 1)


@pytest.mark.parametrize("step", [steps.drain(NODE), steps.launch(NODE, 0), steps.replace(NODE, 0)])
@pytest.mark.parametrize("why", ["", "withdrawn: close by ops"])
def test_a_step_that_was_planned_is_not_begun_once_the_order_is_dropped(step: Step, why: str) -> None:
    actions: dict[str, Drain | Launch | Replace] = {
        "Drain": Drain(NODE, "holdfast[inc1]: x"),
        "Launch": Launch(NODE, "inc1-0", OLD),
        "Replace": Replace(NODE, OLD, "boot", "inc1-0", frozenset(), None),
    }
    kept = MachineOrder(ID, NODE, NOW, "ops", "", "", None, OLD)
    state = _S.OPEN if step.kind == "Drain" else _S.REPAIRING
    book = Book(incidents={"inc1": incident(state=state, by_order=True, order=kept, order_dropped=why)})
    refused = outlived(book, intent(f"inc1/{step.text}/1", actions[step.kind]))
    assert (refused.state if refused is not None else None) == (IntentState.REFUSED if why else None)


@pytest.mark.parametrize("how", ["resumed in Slurm", "released"])
def test_an_operators_own_resume_calls_no_one(how: str) -> None:
    site, _ = waiting_for_a_job(3)
    if how == "released":
        over, at = site.slurm.node(NODE).given_reason, site.clock.now()
        given = NodeOrder(SECOND, NODE, OrderVerb.RELEASE, at, "eve", "back", "", over)
        site.store.operate(Operation("release_node", "eve", NODE, "back", order=given, node=NODE), at)
    else:
        site.slurm.operator_resumes(NODE)
    site.run(120)
    assert (site.incident(NODE).open, len(said(site)), dropped(site)) == (False, 1, [])


def test_a_drain_that_another_operator_ordered_is_theirs_by_name() -> None:
    site, _ = waiting_for_a_job(3)
    given = NodeOrder(SECOND, NODE, OrderVerb.DRAIN, site.clock.now(), "eve", "mine")
    site.store.operate(Operation("drain_node", "eve", NODE, "mine", order=given, node=NODE), given.at)
    site.run(120)
    assert (len(dropped(site)), untouched(site)) == (1, True)
    assert "eve drained n1 ('operator eve: mine')" in dropped(site)[0]
    assert "root" not in dropped(site)[0]


# The settings, or a pause, say no meanwhile


def observes(site: Site) -> None:
    to(site, mode=Mode.OBSERVE)


def forbids(site: Site) -> None:
    to(site, nodes=(NodeSet("login", nodes=NODE, never_touch=True),))


def pauses(site: Site) -> None:
    site.operate("pause")


def acts_again(site: Site) -> None:
    if site.book.paused:
        site.operate("resume")
    else:
        to(site)


@pytest.mark.parametrize("change", [observes, forbids, pauses])
@pytest.mark.parametrize("state", [_S.CONTAINED, _S.REPAIRING])
def test_an_order_does_not_outlive_days_in_which_nothing_may_be_done(
    change: Callable[[Site], None], state: IncidentState
) -> None:
    site, job = waiting_for_a_job(3)
    if state is _S.REPAIRING:
        site.provider.capacity = False
        site.slurm.finish(job, "COMPLETED")
        until(site, _S.REPAIRING)
        site.run(60)
        site.provider.capacity = True
    change(site)
    if state is _S.CONTAINED:
        site.slurm.finish(job, "COMPLETED")
    site.run(2 * 86400, step_s=300)
    assert (untouched(site), site.slurm.nodes[NODE].drain, len(set(dropped(site)))) == (True, True, 1)
    assert change is pauses or "stays drained: resume it in Slurm" in dropped(site)[0]
    acts_again(site)
    site.run(900, step_s=2)
    assert (untouched(site), site.slurm.nodes[NODE].drain, site.incident(NODE).open) == (True, False, False)
    assert len(set(dropped(site))) == 1


def test_a_short_pause_drops_no_order() -> None:
    site, job = waiting_for_a_job(3)
    site.operate("pause")
    site.slurm.finish(job, "COMPLETED")
    site.run(3600, step_s=20)
    site.operate("resume")
    until(site, _S.CLOSED)
    assert (site.machine(NODE).instance_id != OLD, dropped(site)) == (True, [])


# Budgets and brakes


def extend(site: Site, kind: BudgetKind) -> None:
    now = site.clock.now()
    more = BudgetExtension(kind, 2, now + timedelta(hours=72), "ops", plus_nodes=2)
    site.store.operate(Operation("extend_budget", "ops", kind.value, "", until=more.until, extension=more), now)


@pytest.mark.parametrize("kind", list(BudgetKind)[::2])
def test_nothing_is_drained_until_the_whole_order_can_be_paid(kind: BudgetKind) -> None:
    """On a small cluster, with one of the two budgets extended, then with both."""
    (other,) = {BudgetKind.ENDED, BudgetKind.BOUGHT} - {kind}
    site = Site(4, policy=POLICY)
    site.run(2)
    seen = site.loop.world
    assert seen is not None
    assert seen.view is not None
    world, view = replace(seen, now=site.clock.now()), seen.view
    asked = NodeOrder(ID, NODE, OrderVerb.REPLACE, site.clock.now(), "ops", "", "", None, OLD)
    told = "; ".join(waits_for(world, view, asked))
    assert all(f"budget extend {each.value} " in told for each in (kind, other)), "all that is too short is named"
    extend(site, kind)
    order(site)
    site.run(300)
    assert (site.slurm.nodes[NODE].drain, site.incident(NODE).state) == (False, _S.OPEN)
    assert f"budget extend {other.value} " in site.incident(NODE).note
    extend(site, other)
    until(site, _S.CLOSED)
    assert site.machine(NODE).instance_id != OLD


def test_a_second_order_is_not_begun_that_could_not_be_ended() -> None:
    site = a_site(6, policy=TWO_A_DAY)
    order(site)
    order(site, node="n2", machine="i-0002", number=SECOND)
    site.run(900)
    assert (site.incident(NODE).open, site.slurm.nodes["n2"].drain, len(site.provider.tokens)) == (False, False, 1)
    assert "kept for faults" in site.incident("n2").note


@pytest.mark.parametrize("fault_first", [False, True])
def test_an_order_that_is_begun_is_ended_although_a_fault_takes_from_the_budget(fault_first: bool) -> None:
    site = a_site(6, policy=TWO_A_DAY)
    if fault_first:
        site.fault("n4")
        site.run(30)
    order(site)
    if not fault_first:
        until(site, _S.VALIDATING)
        site.fault("n4")
    site.run(900)
    assert [site.incident(n).open for n in (NODE, "n4")] == [False, False]
    assert sorted(site.provider.terminated) == ["i-0001", "i-0004"]


def test_a_drained_node_that_a_brake_holds_up_is_told_of_once() -> None:
    site = a_site(
        8, policy=replace(ROOMY, nodes=(NodeSet("prod", nodes="n[1-8]", budgets={"terminations_per_day": 2}),))
    )
    order(site)
    until(site, _S.VALIDATING)
    lease = site.store.lease()
    assert lease is not None
    site.store.commit(Change(brakes=(Brake(BrakeKind.DRAINS, site.clock.now(), "drill"),)), lease.fence)
    site.run(600, step_s=2)
    assert [s for s in site.notices.sent if "waits for more than" in s] == []
    site.run(3600, step_s=5)
    (told,) = [s for s in site.notices.sent if "waits for more than" in s]
    assert "brake 'drains' holds" in told
    assert site.slurm.nodes[NODE].drain
    site.operate("release_brake", "drains")
    until(site, _S.CLOSED)


def test_only_brakes_that_hold_the_node_are_named() -> None:
    site = a_site(6, policy=replace(ROOMY, nodes=(NodeSet("prod", nodes="n[1-2]", brakes={"drains_60min": 1}),)))
    lease = site.store.lease()
    assert lease is not None
    brake = Brake(BrakeKind.DRAINS, site.clock.now(), "drill", None, "prod", "n[1-2]")
    site.store.commit(Change(brakes=(brake,)), lease.fence)
    site.run(2)
    seen = site.loop.world
    assert seen is not None
    assert seen.view is not None
    world, view = replace(seen, now=site.clock.now()), seen.view
    of = {
        n: waits_for(world, view, NodeOrder(ID, n, OrderVerb.REPLACE, world.now, "ops", "", "", None, machine))
        for n, machine in (("n1", "i-0001"), ("n5", "i-0005"))
    }
    assert of == {"n1": ("brake 'drains@prod' holds (holdfast release drains@prod)",), "n5": ()}


# A second order of the same incident


def test_an_order_that_was_carried_out_is_not_called_dropped_by_the_next() -> None:
    site = a_site(2)
    site.provider.launches_broken = True
    order(site)
    until(site, _S.AWAITING_HUMAN, 3000)
    site.provider.launches_broken = False
    order(site, number=SECOND)
    until(site, _S.CLOSED, 3000)
    site.run(60)
    assert (said(site), site.incident(NODE).earlier_orders) == ([], (ID,))
    begun = {i.step for i in site.store.intents() if isinstance(i.action, Launch | Replace) and i.is_attempt}
    site.run(3500, step_s=20)
    assert {i.step for i in site.store.intents() if isinstance(i.action, Launch | Replace) and i.is_attempt} == begun
