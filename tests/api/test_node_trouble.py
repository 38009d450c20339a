"""What is wrong with a node in service of which no open incident speaks, and which nodes `holdfast nodes --bad` lists for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.api.shown.views import node_shape
from holdfast.cli.views.reading import is_bad
from holdfast.model.agents.report import AgentView
from holdfast.model.book import Book, NodeRecord, World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.operators.maintenance import Window
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import ClusterView, Node
from support.store_nouns import NOW, incident

IDLE = Node("n1", "IDLE", frozenset())
HAD_ONE = NodeRecord("n1", "i-1", boot_id="b")
AGENT = AgentView("n1", "i-1", "b", NOW, NOW - timedelta(hours=1))
FAILING = replace(AGENT, failing=("net.link",))
RESUMED = replace(incident("x1"), node="n1", state=IncidentState.CLOSED, closed_at=NOW - timedelta(minutes=9))
WINDOW = Window("w1", ("n1",), NOW - timedelta(hours=1), NOW + timedelta(hours=1), "ann", "fan")
UNREPAIRED = "put back before incident x1 was repaired; these checks fail: net.link"
NOT_SINCE = "its agent has not reported since the controller started"


@pytest.mark.parametrize(
    ("node", "agent", "book", "trouble"),
    [
        (IDLE, AGENT, {}, ""),
        (IDLE, None, {}, ""),
        (IDLE, None, {"nodes": {"n1": HAD_ONE}}, NOT_SINCE),
        (IDLE, FAILING, {}, ""),
        (IDLE, FAILING, {"incidents": {"x1": RESUMED}}, UNREPAIRED),
        (IDLE, AGENT, {"incidents": {"x1": RESUMED}}, ""),
        (IDLE, FAILING, {"incidents": {"x1": replace(RESUMED, validated_at=NOW)}}, ""),
        (IDLE, FAILING, {"incidents": {"x1": RESUMED}, "windows": (WINDOW,)}, ""),
    ],
    ids=[
        "well", "never had an agent", "its agent is gone", "it only warns", "resumed", "resumed and well", "repaired", "in maintenance",
    ],
)  # fmt: skip
def test_a_node_in_service_is_bad_for_a_reason_alone(
    node: Node, agent: AgentView | None, book: dict[str, Any], trouble: str
) -> None:
    agents = {"n1": (agent,)} if agent is not None else {}
    world = World(NOW, Policy(mode=Mode.ACT), Book(**book), ClusterView("c", NOW, {"n1": node}, {}, {}), agents)
    shown = node_shape("n1", world, agents, NOW)
    assert shown is not None
    assert (shown.trouble, is_bad(shown)) == (trouble, bool(trouble))


def test_just_after_a_start_no_agent_is_missed() -> None:
    view = ClusterView("c", NOW, {"n1": IDLE}, {}, {})
    world = World(NOW, Policy(), Book(nodes={"n1": HAD_ONE}), view, frozen="just started")
    shown = node_shape("n1", world, {}, NOW)
    assert shown is not None
    assert not is_bad(shown)


def test_an_open_incident_is_bad_whatever_it_says() -> None:
    opened: Incident = replace(incident("x1"), node="n1")
    view = ClusterView("c", NOW, {"n1": IDLE}, {}, {})
    shown = node_shape("n1", World(NOW, Policy(), Book(incidents={"x1": opened}), view), {}, NOW)
    assert shown is not None
    assert is_bad(shown)
