"""What ``holdfast nodes`` says of the cluster: the spares as Slurm shows them, and whether Slurm answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.api.node_shapes import ClusterShape
from holdfast.api.views import cluster_shape
from holdfast.cli.reading import cluster_lines
from holdfast.model.book import Book, World
from holdfast.model.cluster import ClusterView, Node, Reservation
from holdfast.model.policy import Policy
from holdfast.model.report import AgentView

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _world(read_at: datetime = NOW) -> World:
    nodes = {name: Node(name, "IDLE", frozenset()) for name in ("n1", "n2")}
    pool = {"holdfast-spares": Reservation("holdfast-spares", ("n2",))}
    return World(NOW, Policy(), Book(), ClusterView("c", read_at, nodes, {}, pool))


def test_spares_are_those_of_the_reservation() -> None:
    shown = cluster_shape(_world(), {}, NOW, leader=True)
    assert {n.name: n.spare for n in shown.nodes} == {"n1": False, "n2": True}


def test_slurm_answers_only_as_long_as_decisions_are_made_on_its_word() -> None:
    limit = timedelta(seconds=Policy().view_max_age_s)
    assert cluster_shape(_world(NOW - limit), {}, NOW, leader=True).slurm_read_at == NOW - limit
    stale = NOW - limit - timedelta(seconds=1)
    assert cluster_shape(_world(stale), {}, NOW, leader=True).slurm_read_at is None


def test_while_no_cycle_passes_slurm_is_not_blamed_for_it() -> None:
    """The world is that of the last cycle; Slurm is read beside it."""
    old = _world(NOW - timedelta(minutes=9))
    assert cluster_shape(old, {}, NOW, leader=True, slurm_seen_at=NOW).slurm_read_at == NOW
    assert cluster_shape(None, {}, NOW, leader=False, slurm_seen_at=NOW).slurm_read_at == NOW, "also on a standby"
    gone = NOW - timedelta(minutes=5)
    assert cluster_shape(old, {}, NOW, leader=True, slurm_seen_at=gone).slurm_read_at is None


def test_many_silent_agents_are_said_to_freeze() -> None:
    long_ago = NOW - timedelta(hours=1)
    agents = {f"n{k}": (AgentView(f"n{k}", "i", "b", long_ago, long_ago),) for k in range(4)}
    view = ClusterView("c", NOW, {name: Node(name, "IDLE", frozenset()) for name in agents}, {}, {})
    world = World(NOW, Policy(), Book(), view, agents)
    assert "silent at once" in (cluster_shape(world, agents, NOW, leader=True).frozen or "")


def test_a_standby_says_who_leads() -> None:
    shown = cluster_shape(None, {}, NOW, leader=False, led_by="head1/0123456789ab")
    assert "this controller is a standby: head1/0123456789ab leads" in cluster_lines(shown)
    older = ClusterShape.read(shown.model_dump(mode="json", exclude={"led_by"}))
    assert "this controller is a standby: another one leads" in cluster_lines(older)
    assert not any("standby" in line for line in cluster_lines(cluster_shape(_world(), {}, NOW, leader=True)))


def test_steps_that_no_actor_takes_are_the_operators_business() -> None:
    text = "no actor takes steps (Drain n1 is not begun): restart holdfast-actor with this release"
    assert text in cluster_lines(cluster_shape(_world(), {}, NOW, leader=True, untaken=text))
    assert not any("no actor" in line for line in cluster_lines(cluster_shape(_world(), {}, NOW, leader=True)))
