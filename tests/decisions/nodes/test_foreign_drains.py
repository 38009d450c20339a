"""Drains and DOWNs of others are on record: each change once, bounded, and over restarts of the controller."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.decisions.nodes import foreign_drains
from holdfast.decisions.nodes.foreign_drains import (
    MOST_A_TURN,
    MOST_ALIKE,
    MOST_AN_HOUR,
    MOST_SINGLE,
    follow_foreign_drains,
)
from holdfast.decisions.turn import apply
from holdfast.model.book import Book, Change, NodeRecord, SlurmShown, World
from holdfast.model.event import Event, EventKind
from holdfast.model.policies.drain_rules import DrainRule
from holdfast.model.policies.policy import HistoryPolicy, Policy
from holdfast.model.slurm.cluster import ClusterView, Node
from support.simulated import Site
from support.simulated.site import POLICY
from support.store_nouns import NOW

DRAINED, DOWN = EventKind.NODE_DRAINED_BY_OTHERS, EventKind.NODE_DOWN
BACK, FIRST = EventKind.NODE_RESUMED_BY_OTHERS, EventKind.NODES_FIRST_READ
KINDS = (FIRST, DRAINED, DOWN, BACK)


def _events(site: Site) -> list[tuple[EventKind, str]]:
    return [(e.kind, e.node or "") for e in site.store.events(kinds=KINDS)]


def test_a_drain_that_appears_changes_and_goes_is_three_events() -> None:
    site = Site(4)
    site.slurm.operator_drains("n1", "bad fan", "ops")
    site.run(5)
    site.slurm.operator_drains("n1", "fan on order", "ops")
    site.run(5)
    site.slurm.operator_resumes("n1")
    site.run(60)
    assert _events(site) == [(FIRST, ""), (DRAINED, "n1"), (DRAINED, "n1"), (BACK, "n1")]
    _, first, second, back = site.store.events(kinds=KINDS)
    assert (first.text, first.detail["user"]) == ("drained by ops: bad fan", "ops")
    assert second.text == "drained by ops: fan on order"
    assert (back.detail["reason"], back.detail["out_s"]) == ("fan on order", 10.0)
    assert site.slurm.calls == []


def test_a_restart_of_the_controller_records_nothing_again() -> None:
    site = Site(4)
    site.slurm.operator_drains("n1", "bad fan", "ops")
    site.run(5)
    before = _events(site)
    for _ in range(3):
        site.start_controller()
        site.run(40)
    assert _events(site) == before


def test_what_changed_while_no_controller_ran_is_recorded_once_at_its_start() -> None:
    site = Site(4)
    site.slurm.operator_drains("n1", "bad fan", "ops")
    site.run(5)
    site.slurm.operator_resumes("n1")
    site.slurm.operator_drains("n2", "vendor", "eve")
    site.start_controller()
    site.run(40)
    assert _events(site) == [(FIRST, ""), (DRAINED, "n1"), (BACK, "n1"), (DRAINED, "n2")]


def test_holdfasts_own_drains_are_none_of_others() -> None:
    site = Site(4)
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.fault("n1")
    site.run(900, step_s=5)
    assert any(e.kind is EventKind.NODE_RETURNED for e in site.store.events())
    assert _events(site) == [(FIRST, "")]


def test_slurms_own_drain_that_holdfast_takes_over_has_no_end_by_others() -> None:
    site = Site(4)
    site.slurm.operator_drains("n1", "Kill task failed", "root")
    site.run(900, step_s=5)
    assert _events(site) == [(FIRST, ""), (DRAINED, "n1")]
    (_, event) = site.store.events(kinds=KINDS)
    assert (event.detail["by"], event.text) == ("slurm", "drained by Slurm: Kill task failed")
    shown = site.book.nodes["n1"].shown
    assert shown is not None
    assert not shown.out


def test_an_operator_who_takes_holdfasts_drain_over_is_recorded() -> None:
    site = Site(4)
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.fault("n1")
    site.run(5)
    site.slurm.operator_drains("n1", "mine now", "ops")
    site.run(20)
    assert _events(site) == [(FIRST, ""), (DRAINED, "n1")]


def test_a_site_s_rule_names_the_drain_and_does_nothing_else() -> None:
    rules = (DrainRule("^NHC:", "node health check", score=True),)
    policy = replace(POLICY, history=replace(POLICY.history, drain_rules=rules))
    site = Site(4, policy=policy)
    site.slurm.operator_drains("n1", "NHC: check_hw_ib failed", "root")
    site.run(900, step_s=10)
    assert (site.slurm.calls, site.store.incidents()) == ([], ())
    (event,) = site.store.events(kinds=(DRAINED,))
    assert (event.detail["category"], event.detail["scores"]) == ("node health check", True)
    assert event.text == "node health check: drained by root: NHC: check_hw_ib failed"


# Tables


def _node(name: str, **more: Any) -> Node:
    return Node(name, "IDLE", frozenset(), **more)


def _out(name: str, reason: str = "psu", user: str = "ops", *, down: bool = False) -> Node:
    state, flags = ("DOWN", frozenset[str]()) if down else ("IDLE", frozenset({"DRAIN"}))
    return Node(name, state, flags, reason=reason, reason_user=user, reason_time=NOW)


def _world(*nodes: Node, book: Book | None = None, policy: Policy = POLICY) -> World:
    view = ClusterView("c", NOW, {n.name: n for n in nodes}, {}, {})
    return World(now=NOW, policy=policy, book=book or Book(nodes_since=NOW), view=view)


def _after(world: World, change: Change, *nodes: Node, later_s: float = 1.0) -> World:
    now = world.now + timedelta(seconds=later_s)
    view = ClusterView("c", now, {n.name: n for n in nodes}, {}, {})
    return replace(world, now=now, book=apply(world.book, change), view=view)


def _turn(world: World, *nodes: Node, later_s: float = 1.0) -> tuple[World, tuple[Event, ...]]:
    """The next turn, in which Slurm shows these nodes."""
    world = _after(world, Change(), *nodes, later_s=later_s)
    change = follow_foreign_drains(world)
    return replace(world, book=apply(world.book, change)), change.events


def test_the_first_reading_of_thousands_is_one_event() -> None:
    nodes = [_out(f"n{n}", f"reason {n % 7}") if n <= 3000 else _node(f"n{n}") for n in range(1, 4097)]
    world = _world(*nodes, book=Book())
    change = follow_foreign_drains(world)
    (event,) = change.events
    assert (event.kind, event.node, event.detail["count"], event.detail["nodes"]) == (FIRST, None, 3000, "n[1-3000]")
    assert "3000 of 4096 nodes are out of service" in event.text
    assert len(event.text) < 400
    assert (len(event.detail["groups"]), change.nodes_since, len(change.nodes)) == (7, NOW, 3000)
    _, again = _turn(replace(world, book=apply(world.book, change)), *nodes)
    assert again == ()


def test_thousands_that_change_alike_are_a_few_events_each_way() -> None:
    names = [f"n{n:04d}" for n in range(4096)]
    down = [_out(n, "Not responding", "slurm", down=True) for n in names]
    world, went = _turns(_world(*map(_node, names)), *down)
    assert [(e.kind, e.node, e.detail["count"]) for e in went] == [(DOWN, None, MOST_A_TURN)] * 4
    assert went[0].text.startswith("1024 nodes DOWN by Slurm: Not responding: n[0000-1023]")
    assert {r.shown.kind for r in world.book.nodes.values() if r.shown is not None} == {DOWN.value}
    world, back = _turns(world, *map(_node, names))
    assert [(e.kind, e.node, e.detail["count"]) for e in back] == [(BACK, None, MOST_A_TURN)] * 4
    assert len(world.book.nodes) == 4096


def _turns(world: World, *nodes: Node) -> tuple[World, list[Event]]:
    """Turns until nothing is recorded any more."""
    found: list[Event] = []
    while True:
        world, events = _turn(world, *nodes)
        if not events:
            return world, found
        found += events


def test_few_that_change_alike_are_an_event_each() -> None:
    names = [f"n{n}" for n in range(MOST_ALIKE)]
    _, went = _turn(_world(*map(_node, names)), *map(_out, names))
    assert sorted(e.node or "" for e in went) == sorted(names)


def test_thousands_that_change_for_reasons_of_their_own_are_bounded() -> None:
    names = [f"n{n}" for n in range(1000)]
    _, went = _turn(_world(*map(_node, names)), *(_out(n, f"Kill task failed (JobId={n[1:]})") for n in names))
    assert len(went) == MOST_SINGLE + 1
    (many,) = (e for e in went if e.node is None)
    assert many.detail["count"] == 1000 - MOST_SINGLE
    assert len(many.detail["groups"]) == foreign_drains.MOST_GROUPS


def test_a_node_that_flaps_is_recorded_only_so_often_and_then_as_it_is() -> None:
    world = _world(_node("n1"))
    recorded: list[Event] = []
    for n in range(200):
        node = _out("n1", "Not responding", "slurm", down=True) if n % 2 == 0 else _node("n1")
        world, events = _turn(world, node)
        recorded += events
    assert len(recorded) == MOST_AN_HOUR
    world, events = _turn(world, _out("n1"), later_s=3600)
    assert [e.text for e in events] == [
        f"drained by ops: psu; more than {MOST_AN_HOUR} changes within the hour before, of which the last are not recorded"
    ]


_S = SlurmShown(out=True, kind=DRAINED.value, by="others", reason="psu", user="ops", time=NOW, since=NOW)


@pytest.mark.parametrize(
    ("before", "shown", "expected"),
    [
        (None, _node("n1"), []),
        (None, _out("n1"), [DRAINED]),
        (None, _out("n1", "Not responding", "slurm", down=True), [DOWN]),
        (None, _out("n1", "holdfast[0h3k5d2m8x1q]: gpu.xid 79"), []),
        (_S, _out("n1"), []),
        (_S, _out("n1", "psu : Not responding", "slurm"), []),
        (_S, _out("n1", "psu : reboot issued", "slurm"), []),
        (_S, _out("n1", "psu", "eve"), [DRAINED]),
        (_S, _out("n1", "fan"), [DRAINED]),
        (_S, _out("n1", down=True), [DOWN]),
        (_S, _out("n1", "holdfast[0h3k5d2m8x1q]: gpu.xid 79"), []),
        (_S, _node("n1"), [BACK]),
        (_S, Node("n1", "UNKNOWN", frozenset()), []),
        (_S, Node("n1", "IDLE", frozenset({"POWERED_DOWN"})), []),
        (replace(_S, out=False), _node("n1"), []),
        (replace(_S, out=False), _out("n1"), [DRAINED]),
    ],
)
def test_what_counts_as_a_change(before: SlurmShown | None, shown: Node, expected: list[EventKind]) -> None:
    nodes = {} if before is None else {"n1": NodeRecord("n1", shown=before)}
    change = follow_foreign_drains(_world(shown, book=Book(nodes=nodes, nodes_since=NOW)))
    assert [e.kind for e in change.events] == expected


def test_an_old_view_of_slurm_records_nothing() -> None:
    world = _world(_out("n1"))
    assert follow_foreign_drains(replace(world, now=NOW + timedelta(hours=1))).empty


@pytest.mark.parametrize(
    ("reason", "user", "category"),
    [
        ("NHC: bad mount", "root", "health check"),
        ("look at NHC: bad mount", "root", ""),
        ("[HC] ib down", "root", "ours"),
        ("[HC] ib down", "alice", ""),
        ("psu", "root", ""),
    ],
)
def test_the_first_rule_that_matches_counts(reason: str, user: str, category: str) -> None:
    rules = (
        DrainRule("^NHC:", "health check"),
        DrainRule(r"\[HC\]", "ours", user="root"),
        DrainRule(r"HC", "late", "x"),
    )
    policy = replace(POLICY, history=HistoryPolicy(drain_rules=rules))
    (event,) = follow_foreign_drains(_world(_out("n1", reason, user), policy=policy)).events
    assert event.detail.get("category", "") == category
