"""A launch finds the end of the old machine in the budgets before it is begun; of a long wait for a budget you are notified once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.brakes.guard import unpaid
from holdfast.decisions.common.budgets import Purse
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Launch, Proposal, Terminate
from holdfast.model.actions.budgets import BudgetExtension, BudgetKind
from holdfast.model.actions.steps import StepKey
from holdfast.model.book import Book, World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Policy
from support.simulated.clock import EPOCH
from support.simulated.site import POLICY, Site
from support.store_nouns import incident

ONE = {"terminations_per_day": 1}
PROD = NodeSet("prod", nodes="n[1-8]", budgets=ONE)
TWO = {"terminations_per_day": 2}
WAITS = "n2 waits for a budget: "


def _policy(*sets: NodeSet, **repair: object) -> Policy:
    return replace(POLICY, nodes=sets, repair=replace(POLICY.repair, **repair))  # type: ignore[arg-type]


def _launched(site: Site) -> set[str]:
    taken = (i for i in site.store.intents() if isinstance(i.action, Launch) and i.attempt)
    return {i.action.node for i in taken if isinstance(i.action, Launch)}


def _told(site: Site) -> list[str]:
    return [m.subject for m in site.notices.messages if WAITS in m.subject]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "more", "name"),
    [
        (_policy(PROD), _policy(replace(PROD, budgets=TWO)), "ended@prod"),
        (_policy(**ONE), _policy(**TWO), "ended"),
    ],
    ids=["of a set", "of the site"],
)
def test_no_machine_is_launched_whose_predecessor_may_not_end(policy: Policy, more: Policy, name: str) -> None:
    site = Site(8, policy=policy)
    site.fault("n1")
    site.run(1200, step_s=15)
    assert site.incident("n1").state is IncidentState.CLOSED
    site.fault("n2")
    site.run(1200, step_s=15)
    assert _launched(site) == {"n1"}
    assert len(site.provider.live()) == 8
    assert f"budget {name!r} is spent: 1 machine within" in site.incident("n2").note
    assert not _told(site)
    site.run(900, step_s=15)
    (told,) = _told(site)
    assert f"budget {name!r} is spent" in told
    site.policy = more
    site.start_controller()
    site.run(1200, step_s=15)
    assert site.incident("n2").state is IncidentState.CLOSED
    assert [s.startswith("over: ") for s in _told(site)] == [False, True]


@pytest.mark.slow
def test_of_two_faults_at_once_one_is_launched_and_finishes() -> None:
    site = Site(8, policy=_policy(PROD))
    for node in ("n1", "n2"):
        site.fault(node)
    site.run(1200, step_s=15)
    (node,) = _launched(site)
    assert site.incident(node).state is IncidentState.CLOSED
    assert len(site.provider.live()) == 8


@pytest.mark.slow
def test_what_is_launched_keeps_its_end_while_others_ask() -> None:
    """The second fault comes while the first one's successor is validated."""
    site = Site(8, policy=_policy(PROD))
    site.fault("n1")
    while not _launched(site):
        site.run(5)
    site.fault("n2")
    site.run(60)
    assert site.incident("n1").state is not IncidentState.CLOSED
    assert "(1 of them yet to be ended by replacements under way)" in site.incident("n2").note
    site.run(1200, step_s=15)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert _launched(site) == {"n1"}


WIDE = {BudgetKind.ENDED: BudgetExtension(BudgetKind.ENDED, 50, EPOCH + timedelta(hours=4), "ann", plus_nodes=50)}
"""Of the site's budget, so that the set's alone holds."""
FAULT = replace(incident("inc2"), node="n2", instance_id="i-2", state=IncidentState.REPAIRING)
OTHER = replace(incident("inc1"), node="n1", instance_id="i-1", state=IncidentState.VALIDATING)
LAUNCH = Launch("n2", "inc2-0", "i-2")


def _intent(action: Launch | Terminate, of: str, state: IntentState = IntentState.DONE) -> Intent:
    step = steps.launch(action.node, 0) if isinstance(action, Launch) else steps.terminate(action.instance_id)
    return Intent(StepKey(of, step, 1).text, of, action, "", 1, state, EPOCH)


BEGUN = _intent(Launch("n1", "inc1-0", "i-1"), "inc1", IntentState.STARTED)
FAILED = replace(BEGUN, state=IntentState.FAILED)
ENDED = _intent(Terminate("i-1", "n1"), "inc1")
HELD: list[tuple[str, Incident, Incident, tuple[Intent, ...], bool]] = [
    ("one is left", FAULT, OTHER, (), False),
    ("another launch has begun", FAULT, OTHER, (BEGUN,), True),
    ("it failed", FAULT, OTHER, (FAILED,), False),
    ("its attempt is over", FAULT, replace(OTHER, repair_attempt=1), (BEGUN,), False),
    ("an operator took it over", FAULT, replace(OTHER, acknowledged=True), (BEGUN,), False),
    ("it had no machine to end", FAULT, replace(OTHER, instance_id=""), (BEGUN,), False),
    ("it has ended its old machine", FAULT, OTHER, (BEGUN, ENDED), True),
    (
        "it is of another set",
        FAULT,
        replace(OTHER, node="n9"),
        (_intent(Launch("n9", "inc1-0", "i-1"), "inc1"),),
        False,
    ),
    ("a dead machine", replace(FAULT, dead=True), OTHER, (BEGUN,), False),
    ("no machine to end", replace(FAULT, instance_id=""), OTHER, (BEGUN,), False),
    ("its machine is ended", FAULT, OTHER, (BEGUN, _intent(Terminate("i-2", "n2", fence=True), "inc2")), False),
]


@pytest.mark.parametrize(("why", "fault", "other", "intents", "held"), HELD, ids=[h[0] for h in HELD])
def test_which_launch_waits_for_an_end(
    why: str, fault: Incident, other: Incident, intents: tuple[Intent, ...], held: bool
) -> None:
    book = Book({i.id: i for i in (fault, other)}, intents={i.key: i for i in intents}, extensions=WIDE)
    world = World(EPOCH, replace(Policy(), nodes=(PROD,)), book, None)
    assert (Purse(world).cannot_end(LAUNCH, fault) is not None) is held, why


def _unpaid(action: Launch | Terminate, *intents: Intent) -> str:
    """Why a step for what a user's job can cause is not paid, where two of the set's three ends are spent."""
    users = replace(FAULT, by_job=True)
    three = replace(PROD, budgets={"terminations_per_day": 3})
    taken = {i.key: i for i in (*intents, BEGUN, ENDED, _intent(Terminate("i-7", "n7"), "inc7"))}
    world = World(
        EPOCH, replace(Policy(), nodes=(three,)), Book({users.id: users}, intents=taken, extensions=WIDE), None
    )
    step = steps.launch("n2", 0)
    why = unpaid(world, Purse(world), Proposal(users.id, step, action, ""))
    return why.text if why is not None else ""


def test_what_a_users_job_can_cause_launches_from_half_of_the_ends_and_finishes_from_all() -> None:
    assert _unpaid(LAUNCH).startswith("half of budget ended@prod is spent")
    assert not _unpaid(Terminate("i-2", "n2"), _intent(LAUNCH, "inc2"))
    assert _unpaid(Terminate("i-2", "n2")).startswith("half of budget ended@prod is spent")


def test_two_launches_of_one_turn_share_what_is_left() -> None:
    book = Book({i.id: i for i in (FAULT, OTHER)}, extensions=WIDE)
    purse = Purse(World(EPOCH, replace(Policy(), nodes=(PROD,)), book, None))
    assert purse.take(Launch("n1", "inc1-0", "i-1")) is None
    spent = purse.cannot_end(LAUNCH, FAULT)
    assert spent is not None
    assert (spent.name, spent.owed) == ("ended@prod", 1)
