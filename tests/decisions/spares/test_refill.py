"""The size of the spare pool: what returns, what is taken, what goes back, and when an operator is notified."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.policies.policy import SparePolicy
from support.simulated import Site
from support.simulated.site import POLICY


def _site(nodes: int, spares: tuple[str, ...], **policy: object) -> Site:
    return Site(nodes, spares=spares, policy=replace(POLICY, spares=SparePolicy(check_every_s=0, **policy)))  # type: ignore[arg-type]


def _pool(site: Site) -> tuple[str, ...]:
    pool = site.slurm.reservations.get("holdfast-spares")
    return pool.nodes if pool is not None else ()


def _repaired(site: Site, node: str) -> None:
    site.fault(node)
    site.run(400, step_s=2)
    assert not site.incident(node).open, site.story()


@pytest.mark.parametrize(
    ("wanted", "pool"),
    [
        ("", ("n4",)),
        (1, ("n4",)),
        (2, ("n1", "n4")),
    ],
    ids=["no number: what was taken returns, and nothing was", "enough", "one more is wanted"],
)
def test_whether_a_repaired_node_joins(wanted: int | str, pool: tuple[str, ...]) -> None:
    site = _site(4, ("n4",), wanted=wanted)
    _repaired(site, "n1")
    assert _pool(site) == pool


@pytest.mark.parametrize(("wanted", "pool"), [("", ("n1",)), (1, ("n1",)), (0, ())])
def test_what_a_job_took_comes_back_while_it_is_wanted(wanted: int | str, pool: tuple[str, ...]) -> None:
    site = _site(4, ("n4",), wanted=wanted)
    site.slurm.submit(3, comment="holdfast", exclusive=True)
    site.run(5)
    _repaired(site, "n1")
    assert _pool(site) == pool


def test_surplus_goes_back_into_service() -> None:
    site = _site(5, ("n3", "n4", "n5"), wanted=1)
    site.run(5)
    assert _pool(site) == ("n3",)
    assert site.kinds("upkeep") == ["PromoteSpare", "PromoteSpare"]


def test_an_operators_pool_without_a_number_is_left_alone() -> None:
    site = _site(5, ("n3", "n4", "n5"))
    site.run(30)
    assert _pool(site) == ("n3", "n4", "n5")


def test_idle_nodes_join_only_where_the_site_says_so() -> None:
    assert _pool(_site(4, (), wanted=2)) == ()
    site = _site(4, (), wanted=2, refill="idle")
    site.run(5)
    assert _pool(site) == ("n1", "n2")
    assert site.kinds("upkeep") == ["AdoptSpare", "AdoptSpare"]


def test_never_the_last_idle_node() -> None:
    site = _site(3, (), wanted=3, refill="idle")
    site.run(5)
    assert _pool(site) == ("n1", "n2")


def test_never_one_that_a_pending_job_could_use() -> None:
    site = _site(4, (), wanted=1, refill="idle")
    assert _pool(site) == ("n1",)  # while no job waited
    site = Site(4, policy=replace(POLICY, spares=SparePolicy(wanted=1, refill="idle", check_every_s=0)), warm=False)
    site.slurm.operator_drains("n4")
    job = site.slurm.submit(4, exclusive=True)
    site.run(40)
    assert (job.reason, _pool(site)) == ("Resources", ())
    job.held = True  # it may stay so for ever
    site.run(40)
    assert _pool(site) == ("n1",)


def test_a_human_is_told_once_that_the_pool_is_short() -> None:
    site = _site(4, ("n4",), wanted=2, short_s=600)
    site.run(500, step_s=10)
    assert site.notices.sent == []
    site.run(7200, step_s=30)
    assert len(site.notices.sent) == 1
    assert site.notices.sent[0].startswith("the spare pool is short since 2026-03-01 12:")
    assert site.notices.sent[0].endswith(": 1 there, 2 wanted")


def test_the_rule_decides_once_the_history_is_read() -> None:
    site = _site(4, ("n4",), wanted="p99", refill="idle", at_least=2, at_most_share=1.0)
    site.run(5)
    assert _pool(site) == ("n1", "n4")
    wanted = site.loop.observer.background.newest.by_rule
    assert wanted is not None
    assert wanted.number == 2
