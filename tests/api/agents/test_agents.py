"""What the controller remembers of its agents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.controller.observing.agents import MACHINES_PER_NODE, AgentRegistry, Hello

T0 = datetime(2026, 3, 1, tzinfo=UTC)


def hear(registry: AgentRegistry, at_s: float, instance: str = "i-1", boot: str = "b-1", **more: object) -> bool:
    hello = Hello("n1", instance, boot, interval_s=10.0, **more)  # type: ignore[arg-type]
    return registry.heard(hello, T0 + timedelta(seconds=at_s), at_s)


def test_first_heard_starts_again_after_a_gap_or_another_boot() -> None:
    registry = AgentRegistry()
    seen = []
    for at_s, boot in ((0, "b-1"), (10, "b-1"), (34, "b-1"), (60, "b-1"), (70, "b-2")):
        news = hear(registry, at_s, boot=boot)
        (view,) = registry.views()["n1"]
        seen.append((news, (view.first_heard - T0).total_seconds()))
    assert seen == [(True, 0), (False, 0), (False, 0), (True, 60), (True, 70)]


def test_two_machines_of_one_node_stand_side_by_side() -> None:
    registry = AgentRegistry()
    hear(registry, 0, "i-old")
    hear(registry, 1, "i-new")
    hear(registry, 2, "i-old")
    assert [v.instance_id for v in registry.views()["n1"]] == ["i-new", "i-old"]
    registry.forget("n1", "i-old")
    assert [v.instance_id for v in registry.views()["n1"]] == ["i-new"]
    registry.forget("n1", "i-new")
    assert registry.views() == {}


def test_machines_are_bounded_and_views_do_not_change() -> None:
    registry = AgentRegistry()
    hear(registry, 0, "i-0")
    before = registry.views()
    for number in range(1, 10):
        hear(registry, number, f"i-{number}")
    assert len(registry.views()["n1"]) == MACHINES_PER_NODE
    assert [v.instance_id for v in before["n1"]] == ["i-0"]


def test_a_report_says_nothing_of_the_checks() -> None:
    registry = AgentRegistry()
    hear(registry, 0, all_ok=True, failing=("gpu.xid",))
    assert not registry.heard(Hello("n1", "i-1", "b-1"), T0, 1.0)
    (view,) = registry.views()["n1"]
    assert (view.all_ok, view.failing, view.heartbeat_interval_s) == (True, ("gpu.xid",), 10.0)


def test_each_heartbeat_says_anew_when_the_fabric_last_carried_bytes() -> None:
    registry, seen = AgentRegistry(), []
    for at_s, silent_s in ((0, None), (10, 4.0), (20, 14.0), (30, None), (40, 0.0)):
        hear(registry, at_s, fabric_silent_s=silent_s)
        registry.heard(
            Hello("n1", "i-1", "b-1"), T0 + timedelta(seconds=at_s + 5), at_s + 5.0
        )  # a report does not contain it
        (view,) = registry.views()["n1"]
        seen.append(None if view.fabric_moved_at is None else (view.fabric_moved_at - T0).total_seconds())
    assert seen == [None, 6, 6, None, 40]
