"""Brakes and budgets of a node set: they count and hold that set alone, in addition to the site's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast.decisions.brakes.held_back import why_now
from holdfast.decisions.common import brake_scopes
from holdfast.decisions.common.budgets import budgets
from holdfast.decisions.overview import at_work, overview
from holdfast.model.actions.action import Launch, Requeue
from holdfast.model.actions.budgets import BudgetKind
from holdfast.model.book import Book, Brake, BrakeKind, World
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Policy
from support.simulated import Site
from support.simulated.clock import EPOCH
from support.simulated.site import POLICY

NOW = EPOCH
PROD = NodeSet("prod", nodes="n[1-20]", brakes={"drains_60min": 1})
TEST = NodeSet("test", nodes="n[21-40]", brakes={"drains_60min": 5})


def _site(*sets: NodeSet, **repair: object) -> Site:
    """The site's own limits are so wide that only those of the sets hold."""
    brakes = replace(POLICY.brake, drains_10min=1000, drains_60min=1000, stopped_jobs_60min=1000)
    wide = replace(POLICY.repair, **repair)  # type: ignore[arg-type]
    site = Site(40, policy=replace(POLICY, brake=brakes, nodes=sets, repair=wide))
    site.run(21)
    return site


def _fault(site: Site, *numbers: int) -> None:
    for n in numbers:
        site.fault(f"n{n}")
    site.run(3)


def _drained(site: Site) -> set[str]:
    return {n.name for n in site.slurm.nodes.values() if n.drain}


def _holding(site: Site) -> set[str]:
    return {name for name, brake in site.book.brakes.items() if brake.holds}


def _world(site: Site) -> World:
    return World(site.clock.now(), site.policy, site.book, site.slurm.view())


def test_a_tripped_set_waits_and_the_other_set_goes_on_being_repaired() -> None:
    site = _site(PROD, TEST)
    _fault(site, 1, 2, 3)
    assert _holding(site) == {"drains@prod"}
    assert (site.book.brakes["drains@prod"].nodes, site.book.brakes["drains@prod"].nodes_known) == ("n[1-20]", True)
    assert "3 nodes of set 'prod' are suspect within 60 min, more than 1" in site.book.brakes["drains@prod"].reason
    _fault(site, 21, 22)
    site.run(900, step_s=5)
    assert not _drained(site) & {"n1", "n2", "n3"}
    assert {site.incident(f"n{n}").state for n in (1, 2, 3)} == {IncidentState.OPEN}
    assert {site.incident(f"n{n}").state for n in (21, 22)} == {IncidentState.CLOSED}
    assert "brake 'drains@prod' holds" in site.incident("n1").note
    assert any(text.startswith("brake 'drains@prod' holds") for text in site.notices.sent)


def test_it_survives_a_restart_and_is_released_by_its_name() -> None:
    site = _site(PROD, TEST)
    _fault(site, 1, 2)
    site.start_controller()
    site.start_actor()
    site.run(60)
    assert _holding(site) == {"drains@prod"}
    assert _drained(site) == set()
    site.operate("release_brake", "drains@prod")
    site.run(10)
    assert _holding(site) == set()
    assert _drained(site) == {"n1", "n2"}
    _fault(site, 3, 4)
    assert _holding(site) == {"drains@prod"}, "what comes later is counted from zero"


@pytest.mark.parametrize("sets", [(replace(PROD, name="production", brakes={}),), ()], ids=["renamed", "removed"])
def test_a_brake_whose_set_is_gone_holds_the_nodes_that_it_had_and_says_so(sets: tuple[NodeSet, ...]) -> None:
    site = _site(PROD, TEST)
    _fault(site, 1, 2)
    site.policy = replace(site.policy, nodes=(*sets, TEST))
    site.start_controller()
    _fault(site, 25)
    site.run(30)
    assert _drained(site) == {"n25"}
    world = _world(site)
    (waiting,) = [w for w in overview(world, {}, ()).waiting if w.kind == "brake"]
    assert "set 'prod' is no longer in the settings: until it is released the brake holds n[1-20]" in waiting.what
    assert waiting.answer == "holdfast release drains@prod"
    site.operate("release_brake", "drains@prod")
    site.run(10)
    assert _drained(site) == {"n1", "n2", "n25"}


def test_a_renamed_set_trips_no_second_brake_for_the_same_nodes() -> None:
    site = _site(PROD, TEST)
    _fault(site, 1, 2)
    renamed = replace(PROD, name="production")
    site.policy = replace(site.policy, nodes=(renamed, TEST))
    site.start_controller()
    site.run(5)
    _fault(site, 3)
    assert _holding(site) == {"drains@prod"}
    assert len([text for text in site.notices.sent if text.startswith("brake ")]) == 1
    site.operate("release_brake", "drains@prod")
    site.run(5)
    assert _holding(site) == set(), "what its operator saw counts for the new name as well"
    assert _drained(site) == {"n1", "n2", "n3"}
    _fault(site, 4, 5)
    assert _holding(site) == {"drains@production"}, "what comes later is counted from zero"


@pytest.mark.parametrize(
    ("brake", "of_the_set"),
    [
        ({}, True),
        ({"released_at": EPOCH}, True),
        ({"nodes": "n[1-19]"}, False),
        ({"nodes": "n[1-21]"}, False),
        ({"nodes": ""}, False),
        ({"kind": BrakeKind.JOB_STOPS}, False),
        ({"node_set": "test"}, False),
        ({"node_set": ""}, False),
    ],
    ids=str,
)
def test_which_brake_of_another_name_is_that_of_a_renamed_set(brake: dict[str, Any], of_the_set: bool) -> None:
    site = _site(PROD, TEST)
    other = replace(Brake(BrakeKind.DRAINS, NOW, "many", None, "earlier", "n[1-20]", nodes_known=True), **brake)
    world = replace(_world(site), book=Book(brakes={other.name: other}))
    (scope,) = [s for s in brake_scopes.scopes(world) if s.name == "prod"]
    assert (other in scope.brakes(world, BrakeKind.DRAINS)) is of_the_set


def test_one_node_reads_as_one() -> None:
    site = _site(replace(PROD, brakes={"drains_60min": 0}))
    _fault(site, 1)
    assert site.book.brakes["drains@prod"].reason.startswith("1 node of set 'prod' is suspect within 60 min")


def test_a_node_of_two_sets_counts_in_both() -> None:
    both = NodeSet("both", nodes="n[1-40]", brakes={"drains_60min": 2})
    site = _site(replace(PROD, brakes={"drains_60min": 5}), both)
    _fault(site, 1)
    _fault(site, 21)
    assert _drained(site) == {"n1", "n21"}
    _fault(site, 2)
    assert _holding(site) == {"drains@both"}, "one of prod, and two others"
    assert "n2" not in _drained(site)


def test_the_sites_brake_counts_and_holds_every_set() -> None:
    site = _site(replace(PROD, brakes={"drains_60min": 30}))
    site.policy = replace(site.policy, brake=replace(site.policy.brake, drains_60min=2))
    site.start_controller()
    _fault(site, 1, 21, 31)
    assert _holding(site) == {"drains"}
    assert _drained(site) == set()


def test_jobs_that_are_stopped_count_for_the_set_of_the_faulty_node() -> None:
    site = _site(replace(PROD, brakes={"stopped_jobs_60min": 1}))
    jobs = [site.slurm.submit(1, comment="holdfast", exclusive=True) for _ in range(30)]
    site.run(3)
    for n in (1, 2, 25):
        site.fault(f"n{n}", minor=None)
    site.run(60)
    assert _holding(site) == {"job_stops@prod"}
    ended = {i.action.job.job_id for i in site.store.intents() if isinstance(i.action, Requeue) and i.attempt}
    assert ended == {job.job_id for job in jobs if job.restarts}
    assert len(ended) == 1


def test_a_budget_of_a_set_is_spent_by_its_nodes_alone() -> None:
    site = _site(
        NodeSet("prod", nodes="n[1-20]", budgets={"launches_per_day": 1}), launches_per_hour=50, launches_per_day=50
    )
    _fault(site, 1, 2, 21, 22)
    site.run(900, step_s=5)
    launched = {i.action.node for i in site.store.intents() if isinstance(i.action, Launch) and i.attempt}
    assert {"n21", "n22"} < launched
    assert len(launched) == 3
    world = _world(site)
    (mine,) = [b for b in budgets(world) if b.node_set]
    assert (mine.name, mine.kind, mine.day_spent, mine.left) == ("bought@prod", BudgetKind.BOUGHT, 1, 0)
    (waits,) = [d for d in at_work(world) if d.node in ("n1", "n2")]
    assert (waits.held, waits.what) == (True, "held back")
    assert "budget 'bought@prod' is spent: 1 machine within" in waits.reason
    assert "budgets of node set 'prod' in controller.toml" in waits.reason


def test_status_names_the_brake_that_holds_an_incident_and_its_release() -> None:
    site = _site(PROD)
    _fault(site, 1, 2)
    world = _world(site)
    shown = overview(world, {}, ())
    assert shown.sentence == "1 thing needs you; 2 incidents held back."
    assert {d.what for d in shown.doing} == {"held back"}
    assert "held back by brake 'drains@prod' since 2026-03-01 12:0" in shown.doing[0].reason
    assert "`holdfast release drains@prod` ends it" in shown.doing[0].reason


def test_two_spent_steps_of_one_turn_count_for_the_next() -> None:
    site = _site(NodeSet("prod", nodes="n[1-20]", budgets={"launches_per_hour": 2}), launches_per_hour=50)
    _fault(site, 1, 2, 3, 4, 5)
    site.run(300, step_s=5)
    assert len([i for i in site.store.intents() if isinstance(i.action, Launch) and i.attempt]) == 2


HELD = Brake(BrakeKind.DRAINS, NOW, "many", None, "prod", "n[1-2]")
WHOSE: Sequence[tuple[str, Brake, tuple[NodeSet, ...], str, bool]] = [
    ("the site's holds all", replace(HELD, node_set="", nodes=""), (), "n9", True),
    ("a node that it had", HELD, (PROD,), "n1", True),
    ("a node that joined the set", HELD, (PROD,), "n20", True),
    ("another node", HELD, (PROD,), "n21", False),
    ("a node that left the set", HELD, (replace(PROD, nodes="n3"),), "n1", True),
    ("the set is gone: a node that it had", HELD, (), "n2", True),
    ("the set is gone: another node", HELD, (), "n3", False),
    ("it had none when it tripped", replace(HELD, nodes="", nodes_known=True), (), "n9", False),
    ("not known which it had", replace(HELD, nodes=""), (), "n9", True),
    ("not known where Slurm shows nothing", HELD, (replace(PROD, nodes="", partitions=("p",)),), "n9", True),
]


@pytest.mark.parametrize(("why", "brake", "sets", "node", "held"), WHOSE, ids=[w[0] for w in WHOSE])
def test_which_nodes_a_brake_holds(why: str, brake: Brake, sets: tuple[NodeSet, ...], node: str, held: bool) -> None:
    world = World(NOW, Policy(nodes=sets), Book(brakes={brake.name: brake}), None)
    assert bool(brake_scopes.about(world, [brake], [node])) is held, why


def test_a_set_that_is_in_the_settings_is_not_called_lost() -> None:
    world = World(NOW, Policy(nodes=(PROD,)), Book(brakes={HELD.name: HELD}), None)
    assert why_now(world, HELD, ": ") == "many: 0 nodes to drain and 0 running jobs to stop"
    assert "no longer in the settings" in why_now(replace(world, policy=Policy()), HELD, ": ")


@pytest.mark.parametrize(
    ("nodes", "known", "held"), [("n[1-2]", True, "n[1-2]"), ("", False, "every node"), ("", True, "no node")]
)
def test_what_a_brake_of_a_lost_set_holds_in_words(nodes: str, known: bool, held: str) -> None:
    brake = replace(HELD, nodes=nodes, nodes_known=known)
    world = World(NOW, Policy(), Book(brakes={brake.name: brake}), None)
    assert brake_scopes.lost_set(world, brake).endswith(f"until it is released the brake holds {held}")
    assert brake.had_all is (held == "every node")


def test_hours_and_days_of_a_set_that_names_one_of_them() -> None:
    for limits, most in (
        ({"cycles_per_hour": 2}, (2, 48)),
        ({"cycles_per_day": 3}, (3, 3)),
        ({"cycles_per_hour": 0}, (0, 0)),
    ):
        world = World(NOW, Policy(nodes=(replace(PROD, budgets=limits),)), Book(), None)
        (mine,) = [b for b in budgets(world) if b.node_set]
        assert (mine.hour_most, mine.day_most) == most
    assert [b.name for b in budgets(replace(world, policy=Policy()))] == ["ended", "cycled", "bought"]
