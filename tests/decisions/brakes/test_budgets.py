"""Budgets on machines: by class and size, counted within the turn, extended by an operator for a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.common.budgets import limits
from holdfast.model.actions.action import Launch, Reboot, Replace, Terminate
from holdfast.model.actions.budgets import BudgetExtension, BudgetKind
from holdfast.model.book import BrakeKind
from holdfast.model.policies.policy import Policy
from holdfast.ports import Operation
from holdfast_checks.result import Remedy
from support.simulated.provider import FULL
from support.simulated.site import POLICY, Site

REPAIR = Policy().repair


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [(0, (4, 12, 1)), (1, (4, 12, 1)), (4, (4, 12, 1)), (16, (4, 12, 4)), (512, (4, 12, 128)), (4096, (20, 81, 1024))],
)
@pytest.mark.parametrize("kind", BudgetKind)
def test_the_shipped_limits_grow_with_the_cluster(kind: BudgetKind, nodes: int, wanted: tuple[int, int, int]) -> None:
    """A fleet of 4,096 has about 17 faults a day."""
    assert limits(REPAIR, kind, nodes) == wanted


@pytest.mark.parametrize("kind", BudgetKind)
def test_none_means_none(kind: BudgetKind) -> None:
    names = {BudgetKind.ENDED: "terminations", BudgetKind.CYCLED: "cycles", BudgetKind.BOUGHT: "launches"}
    nothing = replace(REPAIR, **{f"{names[kind]}_per_hour": 0})  # type: ignore[arg-type]
    assert limits(nothing, kind, 4096)[0] == 0


def _wide(**repair: object) -> Policy:
    """The brakes allow it; only the budgets hold."""
    brakes = replace(POLICY.brake, drains_10min=1000, drains_60min=1000)
    return replace(POLICY, brake=brakes, repair=replace(POLICY.repair, **repair))  # type: ignore[arg-type]


def _done(site: Site, *kinds: type) -> int:
    return sum(1 for i in site.store.intents() if isinstance(i.action, kinds) and i.state.value == "done")


@pytest.mark.parametrize(
    ("remedy", "can", "kinds"),
    [
        (Remedy.REPLACE, FULL, (Launch,)),
        (Remedy.REPLACE, replace(FULL, launch_first=False, replace_in_place=True), (Terminate, Replace)),
        (Remedy.REBOOT, FULL, (Reboot,)),
    ],
    ids=["bought", "ended", "cycled"],
)
def test_twenty_idle_nodes_with_one_fault_at_once_are_not_repaired_at_once(
    remedy: Remedy, can: object, kinds: tuple[type, ...]
) -> None:
    """Counted within the turn: 20 of 20 were replaced in two minutes."""
    site = Site(40, policy=_wide())
    site.provider.can = can  # type: ignore[assignment]
    site.run(21)
    for n in range(1, 21):
        site.agents.find(site.machine(f"n{n}"), remedy=remedy, check="gpu.count", code="lost", minor=None)
    site.react()
    site.run(1800, step_s=10)
    assert _done(site, *kinds) == 4
    site.run(3000, step_s=20)
    assert _done(site, *kinds) > 4


def test_a_quarter_of_a_small_cluster_a_day_and_always_one() -> None:
    site = Site(8, policy=_wide())
    for n in range(1, 5):
        site.fault(f"n{n}")
        site.run(1)
    site.run(1200, step_s=5)
    assert sum(site.provider.terminated.values()) == 2
    assert "machines of 2 different nodes within a day, at most 2" in site.incident("n3").note


@pytest.mark.parametrize("plus_nodes", [0, 1])
def test_an_operator_extends_a_budget_for_a_time(plus_nodes: int) -> None:
    """The limit of different nodes, a share of the cluster, is lifted only where requested."""
    ended = 2 + plus_nodes
    site = Site(8, policy=_wide())
    for n in range(1, 5):
        site.fault(f"n{n}")
        site.run(1)
    site.run(600, step_s=5)
    assert sum(site.provider.terminated.values()) == 2
    for kind in BudgetKind:
        extension = BudgetExtension(kind, 9, site.clock.now() + timedelta(hours=1), "ops", "rack 7", plus_nodes)
        site.store.operate(
            Operation("extend_budget", "ops", kind.value, "rack 7", extension=extension), site.clock.now()
        )
    site.run(600, step_s=5)
    assert sum(site.provider.terminated.values()) == ended
    if not plus_nodes:
        assert "--plus N --nodes N" in site.incident("n3").note
    site.run(3700, step_s=20)
    site.run(600, step_s=5)
    assert sum(site.provider.terminated.values()) == ended, "over: two are too many again, not one more"


def test_a_tripped_brake_collects_evidence_and_begins_no_repair() -> None:
    site = Site(40)
    for n in range(1, 7):
        site.agents.find(site.machine(f"n{n}"))
    site.react()
    site.run(600, step_s=5)
    assert BrakeKind.DRAINS in site.book.brakes
    assert _done(site, Launch, Terminate, Replace, Reboot) == 0
    assert not site.provider.terminated
