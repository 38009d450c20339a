"""What may be done to a node: the most restrictive of the tables that have it, and never more than the site's mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.decisions.common.node_policy import least_shown, policy_for
from holdfast.model.operators.proposals import DEFAULT_STEPS, ProposePolicy, StepKind
from holdfast.model.policies.node_sets import RUNGS, NodeSet
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import Node

OBS, P, A = Mode.OBSERVE, Mode.PROPOSE, Mode.ACT
K = StepKind
ALL = frozenset(StepKind(step) for step in DEFAULT_STEPS)


def node(name: str = "n1", partition: str = "a", *features: str) -> Node:
    return Node(name, "IDLE", frozenset(), partitions=(partition,), features=frozenset(features))


def named(**changed: Any) -> NodeSet:
    return NodeSet(**{"name": "s", "nodes": "n[1-2]", **changed})


CASES: list[tuple[str, Mode, Mode | None, tuple[NodeSet, ...], Node | None, Mode, frozenset[StepKind]]] = [
    ("no table", A, None, (), node(), A, frozenset()),
    ("propose everywhere", P, None, (), node(), P, ALL),
    ("by name", A, None, (named(mode="propose"),), node(), P, ALL),
    ("by partition", A, None, (named(nodes="", partitions=("a",), mode="observe"),), node(), OBS, frozenset()),
    ("another partition", A, None, (named(nodes="", partitions=("b",), mode="observe"),), node(), A, frozenset()),
    (
        "by feature",
        A,
        None,
        (named(nodes="", features=("h100",), mode="observe"),),
        node("n1", "a", "h100"),
        OBS,
        frozenset(),
    ),
    ("any selector is enough", A, None, (named(partitions=("b",), mode="observe"),), node(), OBS, frozenset()),
    ("the site's mode is the most", OBS, None, (named(mode="act"),), node(), OBS, frozenset()),
    ("propose and act: propose", A, None, (named(mode="act"), named(name="t", mode="propose")), node(), P, ALL),
    ("the order does not matter", A, None, (named(name="t", mode="propose"), named(mode="act")), node(), P, ALL),
    (
        "observe and propose: observe",
        A,
        None,
        (named(mode="observe"), named(name="t", mode="propose")),
        node(),
        OBS,
        frozenset(),
    ),
    ("its own steps", A, None, (named(mode="propose", steps=("replace",)),), node(), P, frozenset({K.REPLACE})),
    (
        "steps of two tables add up",
        A,
        None,
        (named(mode="propose", steps=("replace",)), named(name="t", mode="propose", steps=("reboot",))),
        node(),
        P,
        frozenset({K.REPLACE, K.REBOOT}),
    ),
    ("a table cannot ask less than the site", P, None, (named(mode="propose", steps=("replace",)),), node(), P, ALL),
    ("other nodes", A, OBS, (named(nodes="n9", mode="act"),), node(), OBS, frozenset()),
    ("not among the others", A, OBS, (named(mode="act"),), node(), A, frozenset()),
    ("never touch", A, None, (named(never_touch=True), named(name="t", mode="act")), node(), OBS, frozenset()),
    (
        "not known: each table by partition counts",
        A,
        None,
        (named(nodes="", partitions=("b",), mode="observe"),),
        None,
        OBS,
        frozenset(),
    ),
    ("not known: tables by name do not", A, None, (named(nodes="n7", mode="observe"),), None, A, frozenset()),
]


@pytest.mark.parametrize(
    ("mode", "others", "sets", "shown", "wanted", "asks"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_policy_of_a_node(
    mode: Mode,
    others: Mode | None,
    sets: tuple[NodeSet, ...],
    shown: Node | None,
    wanted: Mode,
    asks: frozenset[StepKind],
) -> None:
    found = policy_for("n1", shown, Policy(mode=mode, other_nodes=others or "", nodes=sets))
    assert (found.mode, found.asks) == (wanted, asks)
    assert found.never_touch == any(each.never_touch for each in sets)
    assert found.why


def test_rungs_are_what_every_table_and_the_site_allow() -> None:
    sets = (named(rungs=("reset_gpu", "reboot")), named(name="t", rungs=("reboot", "replace")))
    assert policy_for("n1", node(), Policy(mode=A, nodes=sets)).rungs == {"reboot"}
    site = Policy(mode=A)
    assert policy_for("n1", node(), replace(site, repair=replace(site.repair, rungs=("replace",)))).rungs == {"replace"}
    assert policy_for("n9", node("n9"), Policy(mode=A, nodes=sets)).rungs == set(RUNGS)


def test_the_reason_names_the_table_that_decided() -> None:
    sets = (named(name="loose", mode="act"), named(name="tight", mode="observe"), named(name="mid", mode="propose"))
    found = policy_for("n1", node(), Policy(mode=A, nodes=sets))
    assert found.why == "node set 'tight': mode = 'observe'"
    assert found.sets == ("loose", "tight", "mid")


def test_a_job_on_several_sets_is_as_restricted_as_its_most_restricted_node() -> None:
    policy = Policy(mode=A, nodes=(named(nodes="n2", mode="propose"), named(name="t", nodes="n3", never_touch=True)))
    shown = {name: node(name) for name in ("n1", "n2", "n3")}
    assert least_shown(("n1",), shown, policy).mode is A
    assert least_shown(("n1", "n2"), shown, policy).mode is P
    assert least_shown(("n1", "n2", "n3"), shown, policy).never_touch


def test_a_kind_of_another_release_is_no_question() -> None:
    policy = Policy(mode=P, propose=replace(ProposePolicy(), steps=("drain", "beam_up")))
    assert policy_for("n1", node(), policy).asks == {K.DRAIN}
