"""Checks that the site's policy lets only observe on a node: recorded and shown, and no drain follows, whatever the agent reported."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.decisions.common.check_policy import (
    SaidKind,
    SaidOfChecks,
    Versions,
    checks_for,
    observed,
    said_everywhere,
    said_of_checks,
    undecided,
)
from holdfast.decisions.incidents.correlate import correlate
from holdfast.model.actions.action import Drain
from holdfast.model.book import Book, World
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, Node
from holdfast_checks.acting import CheckPolicy, Lists
from holdfast_checks.result import Remedy, Severity
from support.simulated.site import POLICY, Site
from support.store_nouns import NOW, finding

MARGIN = "gpu.temperature_margin_c"


def node(*partitions: str) -> Node:
    return Node("n1", "IDLE", frozenset(), partitions=partitions)


def a_set(name: str = "debug", **said: Any) -> NodeSet:
    return NodeSet(**{"name": name, "partitions": ("debug",), **said})


def world(policy: Policy, shown: Node | None) -> World:
    nodes = {shown.name: shown} if shown is not None else {}
    return World(NOW, policy, Book(), ClusterView("c", NOW, nodes, {}, {}))


SITE = Policy(checks=CheckPolicy(Lists(observe_only=("gpu.xid",))))
SET = Policy(nodes=(a_set(observe_only=("gpu.xid",)),))
BY_NAME = Policy(nodes=(a_set(partitions=(), nodes="n[1-4]", observe_only=("gpu.xid",)),))


@pytest.mark.parametrize(
    ("policy", "shown", "counts", "waits"),
    [
        (Policy(), node("debug"), Severity.FATAL, False),
        (SITE, node("debug"), Severity.WARNING, False),
        (SITE, None, Severity.WARNING, False),
        (SET, node("debug"), Severity.WARNING, False),
        (SET, node("train"), Severity.FATAL, False),
        (SET, None, Severity.FATAL, True),
        (BY_NAME, None, Severity.WARNING, False),
        (Policy(nodes=(a_set(observe_only=("gpu.ecc",)),)), None, Severity.FATAL, False),
    ],
    ids=["none", "site", "site, not shown", "set", "other set", "set, not shown", "by name, not shown", "other check"],
)
def test_how_a_fatal_finding_counts(policy: Policy, shown: Node | None, counts: Severity, waits: bool) -> None:
    fatal, there = finding(), world(policy, shown)
    seen = observed(there, fatal)
    assert (seen.severity, undecided(there, fatal)) == (counts, waits)
    if counts is Severity.WARNING:
        assert (seen.remedy, seen.would_severity, seen.would_remedy) == (Remedy.NONE, fatal.severity, fatal.remedy)
        assert observed(there, seen) == seen, "what would have been is not weighed twice"


def test_while_slurm_does_not_show_a_node_its_finding_waits_and_then_counts() -> None:
    book = Book(findings={1: replace(finding(), id=1)})
    waiting = correlate(replace(world(SET, None), book=book), lambda _: "new")
    assert (waiting.incidents, waiting.placed) == ((), {})
    (opened,) = correlate(replace(world(SET, node("train")), book=book), lambda _: "new").incidents
    assert opened.state is IncidentState.OPEN


TWO = replace(
    SET,
    checks=CheckPolicy(Lists(("gpu.nvlink",), ("gpu.ecc",)), {MARGIN: 4}),
    nodes=(
        a_set(observe_only=("gpu.xid",), thresholds={"gpu": {"temperature_margin_c": 2.0}}),
        a_set("old", thresholds={"gpu": {"temperature_margin_c": 6.0}, "host": {"load_per_cpu": 8.0}}),
        a_set("other", partitions=("b",), observe_only=("gpu.count",)),
    ),
)


def test_each_table_of_a_node_adds_and_the_mildest_threshold_counts() -> None:
    found = checks_for("n1", node("debug"), TWO)
    assert found.lists == Lists(("gpu.nvlink",), ("gpu.ecc", "gpu.xid"))
    assert found.thresholds == {MARGIN: 2.0, "host.load_per_cpu": 8.0}
    assert set(said_of_checks("n1", node("debug"), TWO)) == {
        SaidOfChecks("gpu.nvlink", None, "[checks]", True, SaidKind.ACTS),
        SaidOfChecks("gpu.ecc", None, "[checks]", True, SaidKind.OBSERVES),
        SaidOfChecks(MARGIN, 4, "[checks]", False, SaidKind.THRESHOLD),
        SaidOfChecks("gpu.xid", None, "debug", True, SaidKind.OBSERVES),
        SaidOfChecks(MARGIN, 2.0, "debug", True, SaidKind.THRESHOLD),
        SaidOfChecks(MARGIN, 6.0, "old", False, SaidKind.THRESHOLD),
        SaidOfChecks("host.load_per_cpu", 8.0, "old", True, SaidKind.THRESHOLD),
    }
    assert [each.by for each in said_everywhere(TWO)].count("other") == 1


def test_nodes_of_the_same_tables_have_the_same_version() -> None:
    version = Versions(TWO)
    assert version("n1", node("debug")) == version("n2", node("debug")) == checks_for("n1", node("debug"), TWO).version
    assert len({version("n1", node(*names)) for names in (("debug",), ("train",), ("b",), ("b", "debug"))}) == 4


LESS = replace(
    SET,
    checks=CheckPolicy(Lists(("*",), ("gpu.ecc",)), {}, ("host.disk",)),
    nodes=(
        a_set(act_on=("gpu.nvlink", "efa.count"), checks_off=("gpu.xid",)),
        a_set("old", act_on=("efa.count", "gpu.ecc"), checks_off=("host.disk", "efa.count")),
        a_set("other", partitions=("b",), act_on=("*",), checks_off=("gpu.count",)),
    ),
)


def test_a_set_takes_checks_away_and_switches_checks_off() -> None:
    found = checks_for("n1", node("debug"), LESS)
    assert found.lists == Lists(("efa.count",), ("gpu.ecc",))
    assert set(found.off) == {"host.disk", "gpu.xid", "efa.count"}
    backwards = replace(LESS, nodes=tuple(reversed(LESS.nodes)))
    assert checks_for("n1", node("debug"), backwards).version == found.version, "in any order"
    assert checks_for("n1", node("b"), LESS).lists.act_on == ("*",), "a set that names all takes none away"
    said = {(s.name, s.by, s.counts) for s in said_of_checks("n1", node("debug"), LESS) if s.what is SaidKind.ACTS}
    assert ("gpu.nvlink", "debug", False) in said, "the other set does not name it"
    assert ("efa.count", "old", False) in said, "it is off"
    off = {(s.name, s.by) for s in said_of_checks("n1", node("debug"), LESS) if s.what is SaidKind.OFF}
    assert off == {
        ("host.disk", "[checks]"), ("gpu.xid", "debug"), ("host.disk", "old"), ("efa.count", "old")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("site", "mine", "left"),
    [
        (("a", "b"), (), ("a", "b")),
        (("a", "b"), ("b", "c"), ("b",)),
        (("a",), ("*",), ("a",)),
        (("*",), ("a",), ("a",)),
        (("*",), ("*",), ("*",)),
        ((), ("a",), ()),
    ],
)
def test_act_on_of_a_set_never_adds_a_check(
    site: tuple[str, ...], mine: tuple[str, ...], left: tuple[str, ...]
) -> None:
    assert CheckPolicy(Lists(site)).restricted((), {}, act_on=mine).lists.act_on == left


def test_what_a_check_that_is_off_reports_all_the_same_is_a_warning() -> None:
    """Of an older agent, which cannot switch it off."""
    policy = Policy(checks=CheckPolicy(off=("gpu.xid",)))
    assert observed(world(policy, None), finding()).severity is Severity.WARNING
    assert undecided(world(Policy(nodes=(a_set(checks_off=("gpu.xid",)),)), None), finding())


OBSERVED = replace(POLICY, nodes=(NodeSet(name="quiet", nodes="n1", observe_only=("gpu.xid",)),))


def test_no_drain_follows_where_the_check_only_observes() -> None:
    """The agent of n1 is of an earlier release: it reports the fault in full."""
    site = Site(2, policy=OBSERVED)
    site.run(30)
    for name in ("n1", "n2"):
        site.fault(name)
    site.run(60)
    by_node = {i.node: i for i in site.store.incidents()}
    assert (by_node["n1"].state, by_node["n1"].severity) == (IncidentState.WATCHING, Severity.WARNING)
    assert by_node["n2"].state is not IncidentState.WATCHING
    drained = {intent.action.node for intent in site.store.intents() if isinstance(intent.action, Drain)}
    assert drained == {"n2"}
    assert site.clock.now() - by_node["n1"].opened_at > timedelta(seconds=30)
