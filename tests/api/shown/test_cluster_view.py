"""What ``holdfast nodes`` says of the cluster: the spares as Slurm shows them, and whether Slurm answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.api.answers.node_shapes import ClusterShape
from holdfast.api.shown.restraints import Head
from holdfast.api.shown.views import cluster_shape
from holdfast.cli.common.restraints import held_lines
from holdfast.cli.views.reading import cluster_lines, node_row
from holdfast.model.actions.budgets import BudgetExtension, BudgetKind
from holdfast.model.agents.report import AgentView
from holdfast.model.book import Book, Brake, BrakeKind, World
from holdfast.model.parts import DiskRoom
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, Node, Reservation
from support.simulated import Site
from support.store_nouns import incident

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = Head()


def _world(read_at: datetime = NOW) -> World:
    nodes = {name: Node(name, "IDLE", frozenset()) for name in ("n1", "n2")}
    pool = {"holdfast-spares": Reservation("holdfast-spares", ("n2",))}
    return World(NOW, Policy(), Book(), ClusterView("c", read_at, nodes, {}, pool))


def test_spares_are_those_of_the_reservation() -> None:
    shown = cluster_shape(_world(), {}, NOW, HEAD)
    assert {n.name: n.spare for n in shown.nodes} == {"n1": False, "n2": True}


def test_slurm_answers_only_as_long_as_decisions_are_made_on_its_word() -> None:
    limit = timedelta(seconds=Policy().view_max_age_s)
    assert cluster_shape(_world(NOW - limit), {}, NOW, HEAD).slurm_read_at == NOW - limit
    stale = NOW - limit - timedelta(seconds=1)
    assert cluster_shape(_world(stale), {}, NOW, HEAD).slurm_read_at is None


def test_while_no_cycle_passes_slurm_is_not_blamed_for_it() -> None:
    """The world is that of the last cycle; Slurm is read separately."""
    old = _world(NOW - timedelta(minutes=9))
    assert cluster_shape(old, {}, NOW, HEAD, slurm_seen_at=NOW).slurm_read_at == NOW
    assert cluster_shape(None, {}, NOW, Head(leads=False), slurm_seen_at=NOW).slurm_read_at == NOW, "also on a standby"
    gone = NOW - timedelta(minutes=5)
    assert cluster_shape(old, {}, NOW, HEAD, slurm_seen_at=gone).slurm_read_at is None


def test_many_silent_agents_are_said_to_freeze() -> None:
    long_ago = NOW - timedelta(hours=1)
    agents = {f"n{k}": (AgentView(f"n{k}", "i", "b", long_ago, long_ago),) for k in range(4)}
    view = ClusterView("c", NOW, {name: Node(name, "IDLE", frozenset()) for name in agents}, {}, {})
    world = World(NOW, Policy(), Book(), view, agents)
    (line,) = [line for line in cluster_lines(cluster_shape(world, agents, NOW, HEAD)) if line.startswith("frozen: ")]
    assert "silent at once" in line
    assert "no silent node is found dead (docs/dead-nodes.md)" in line


def test_a_standby_says_who_leads() -> None:
    shown = cluster_shape(None, {}, NOW, Head(leads=False, led_by="head1/0123456789ab"))
    assert "this controller is a standby: head1/0123456789ab leads" in cluster_lines(shown)
    older = ClusterShape.read(shown.model_dump(mode="json", exclude={"led_by", "not_leading"}))
    assert "this controller does not lead; as last read another one does" in cluster_lines(older)
    assert not any("lead" in line for line in cluster_lines(cluster_shape(_world(), {}, NOW, HEAD)))


FULL = DiskRoom(0, 40 * 2**30, 2**30, "/var/lib/holdfast/holdfast.db", "/var")
TROUBLE = "the last 9 cycles failed, nothing is decided: database or disk is full"


def test_a_controller_on_a_full_disk_names_the_disk_and_claims_no_other_leader() -> None:
    """Its lease ran out because it could not renew it: there may be no other leading controller."""
    (line,) = [
        line
        for line in cluster_lines(cluster_shape(None, {}, NOW, Head(leads=False, trouble=TROUBLE, disk=FULL)))
        if "does not lead" in line
    ]
    assert line == (
        "this controller does not lead, as it could not renew its lease (its store's disk is full: 0 MiB free of 40.0 GiB on /var "
        "(100 % used); the store /var/lib/holdfast/holdfast.db has 1.0 GiB); whether another one leads is not known here"
    )
    other = cluster_shape(None, {}, NOW, Head(leads=False, led_by="head2/ab", trouble=TROUBLE))
    assert f"({TROUBLE}); head2/ab led when that was last read" in "".join(cluster_lines(other))


HELD = Book(
    paused="ann: storage",
    paused_at=NOW - timedelta(minutes=9),
    brakes={
        "drains": Brake(BrakeKind.DRAINS, NOW - timedelta(minutes=3), "9 drains in 10 minutes, at most 3"),
        "job_stops": Brake(BrakeKind.JOB_STOPS, NOW, "x", released_at=NOW),
    },
    extensions={
        BudgetKind.ENDED: BudgetExtension(BudgetKind.ENDED, 10, NOW + timedelta(hours=4), "bob", "rack 7", 2),
        BudgetKind.BOUGHT: BudgetExtension(BudgetKind.BOUGHT, 3, NOW - timedelta(hours=4), "bob"),
    },
)


def test_what_holds_it_back_is_said_with_who_since_when_and_what_to_do() -> None:
    shown = cluster_shape(replace(_world(), book=HELD), {}, NOW, HEAD)
    assert held_lines(shown) == [
        "paused since 2025-12-31 23:51:00 UTC by ann: storage; nothing is done until `holdfast resume`",
        "brake drains holds: 9 drains in 10 minutes, at most 3 (when it tripped); now held back: 0 nodes to drain and 0 running jobs to "
        "stop; tripped at 2025-12-31 23:57:00 UTC; `holdfast runbook brake`, then release it with `holdfast release drains`",
        "budget ended is extended by 10 machines (of 2 more different nodes a day) until 2026-01-01 04:00:00 UTC, by bob: rack 7",
    ]
    older = replace(_world(), book=replace(HELD, paused_at=None))
    assert held_lines(cluster_shape(older, {}, NOW, HEAD))[0].startswith("paused by ann: storage;")
    assert held_lines(cluster_shape(_world(), {}, NOW, HEAD)) == []


def test_steps_that_no_actor_takes_are_the_operators_business() -> None:
    text = "no actor takes steps (Drain n1 has not started): restart holdfast-actor with this release"
    shown = cluster_shape(_world(), {}, NOW, HEAD)
    assert text in cluster_lines(shown.model_copy(update={"untaken": text}))
    assert not any("no actor" in line for line in cluster_lines(cluster_shape(_world(), {}, NOW, HEAD)))


def test_an_arrays_element_is_shown_as_people_know_it() -> None:
    site = Site(1)
    first, second = (site.slurm.submit(1, gpus=1, array_job_id=4, array_task_id=n) for n in (1, 2))
    plain = site.slurm.submit(1, gpus=1)
    site.run(2)
    (node,) = cluster_shape(site.loop.world, {}, NOW, HEAD).nodes
    assert node.jobs == [first.job_id, second.job_id, plain.job_id]
    assert node_row(node)[5] == f"4_1, 4_2, {plain.job_id}"
    assert node_row(node.model_copy(update={"job_names": []}))[5] == ", ".join(map(str, node.jobs)), (
        "of an older controller"
    )


def test_a_node_says_once_why_a_brake_holds() -> None:
    reason = HELD.brakes["drains"].reason
    withheld = replace(incident("inc"), note=f"brake 'drains' holds: {reason}")
    book = Book(incidents={"inc": withheld}, brakes=HELD.brakes)
    (why,) = [n.why for n in cluster_shape(replace(_world(), book=book), {}, NOW, HEAD).nodes if n.why]
    assert why.count(reason) == 1


@pytest.mark.parametrize("note", ["", "paused by ann: storage", "waits for the end of job 7"])
def test_a_node_says_once_that_it_is_paused(note: str) -> None:
    book = Book(incidents={"inc": replace(incident("inc"), note=note)}, paused="ann: storage")
    (why,) = [n.why for n in cluster_shape(replace(_world(), book=book), {}, NOW, HEAD).nodes if n.why]
    assert (why.count("ann: storage"), why.count("paused by")) == (1, 1)
    assert note in why
