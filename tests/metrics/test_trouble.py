"""Nodes in trouble, as Prometheus shows them: one state each, the gravest."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.metrics.trouble import TroubleState, gpu_of, held_jobs, in_service_with_fault, instance_type_of, troubled
from holdfast.model.agents.report import AgentView
from holdfast.model.book import Book, NodeMark, NodeRecord, World
from holdfast.model.ids import slurm_reason
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, Node
from holdfast_checks.result import Remedy, Severity

NOW = datetime(2026, 1, 1, tzinfo=UTC)
S = IncidentState
INCIDENT = "0h3k5d2m8x1q"
RESUMED_AT = NOW + timedelta(seconds=9)
"""Under the agent that reports now, which was there when the fault was."""
FAULT = Incident("i1", "n1", "", "", S.OPEN, Severity.FATAL, Remedy.REPLACE, "gpu.xid", "gpu.xid 79", NOW, NOW)
RESUMED = replace(FAULT, state=S.CLOSED, closed_at=RESUMED_AT)
IDLE = Node("n1", "IDLE", frozenset())
DRAINED = replace(IDLE, flags=frozenset({"DRAIN"}), reason="ann: fan", reason_user="ann", reason_time=NOW)


def world(node: Node | None = IDLE, *incidents: Incident, failing: tuple[str, ...] = (), **book: Any) -> World:
    view = ClusterView("c", NOW, {node.name: node} if node is not None else {}, {}, {})
    agents = {"n1": (AgentView("n1", "i-1", "b", NOW, NOW, failing=failing),)}
    return World(NOW, Policy(), Book(incidents={i.id: i for i in incidents}, **book), view, agents)


@pytest.mark.parametrize(
    ("node", "incidents", "state"),
    [
        (IDLE, (), None),
        (replace(IDLE, base_state="DOWN", flags=frozenset({"POWERED_DOWN"})), (), None),
        (DRAINED, (), TroubleState.DRAINED_BY_OPERATOR),
        (
            replace(IDLE, base_state="DOWN", reason="Not responding", reason_user="slurm"),
            (),
            TroubleState.DOWN_IN_SLURM,
        ),
        (IDLE, (FAULT,), TroubleState.OPEN),
        (DRAINED, (replace(FAULT, state=S.WATCHING),), TroubleState.DRAINED_BY_OPERATOR),
        (DRAINED, (replace(FAULT, state=S.CONTAINED),), TroubleState.CONTAINED),
        (
            IDLE,
            (replace(FAULT, state=S.WATCHING), replace(FAULT, id="i2", state=S.AWAITING_HUMAN)),
            TroubleState.AWAITING_HUMAN,
        ),
        (IDLE, (replace(FAULT, state=S.CLOSED),), None),
        (IDLE, (replace(FAULT, kind=IncidentKind.HANG, state=S.WATCHING),), None),
        (None, (FAULT,), TroubleState.OPEN),
    ],
)
def test_a_node_has_the_gravest_state(
    node: Node | None, incidents: tuple[Incident, ...], state: TroubleState | None
) -> None:
    found = {each.name: each.state for each in troubled(world(node, *incidents))}
    assert found == ({} if state is None else {"n1": state})


def test_the_machine_is_named_as_far_as_it_is_known() -> None:
    node = replace(DRAINED, gres="gpu:h100:8(S:0-1),nic:2", features=frozenset({"static", "ml.p5.48xlarge"}))
    (found,) = troubled(world(node, nodes={"n1": NodeRecord("n1", "i-1")}))
    assert (found.instance_id, found.instance_type, found.gpu) == ("i-1", "ml.p5.48xlarge", "h100")
    (bare,) = troubled(world(DRAINED))
    assert (bare.instance_id, bare.instance_type, bare.gpu) == ("", "", "")


@pytest.mark.parametrize(
    ("gres", "gpu"), [("gpu:8", ""), ("gpu:a100_1g.5gb:7", "a100_1g.5gb"), ("nic:2,gpu:gh200:4", "gh200"), ("", "")]
)
def test_model_of_the_gpus(gres: str, gpu: str) -> None:
    assert gpu_of(gres) == gpu


@pytest.mark.parametrize(
    ("feature", "known"),
    [("p5.48xlarge", True), ("g4dn.metal", True), ("u7i-6tb.112xlarge", True), ("ib", False), ("rack1.row2", False)],
)
def test_a_feature_that_names_a_type_of_machine(feature: str, known: bool) -> None:
    assert instance_type_of(replace(IDLE, features=frozenset({feature}))) == (feature if known else "")


@pytest.mark.parametrize(
    ("node", "incident", "failing", "faulty"),
    [
        (IDLE, FAULT, (), True),
        (IDLE, replace(FAULT, state=S.WATCHING), (), False),
        (IDLE, replace(FAULT, state=S.WATCHING, acknowledged=True), (), True),
        (IDLE, replace(FAULT, state=S.CLOSED), ("gpu.xid",), True),
        (IDLE, replace(FAULT, state=S.CLOSED), ("net.link",), False),
        (IDLE, RESUMED, ("net.link",), True),
        (IDLE, RESUMED, (), False),
        (IDLE, replace(RESUMED, validated_at=RESUMED.closed_at), ("net.link",), False),
        (IDLE, replace(FAULT, severity=Severity.WARNING, acknowledged=True), (), False),
        (DRAINED, FAULT, ("gpu.xid",), False),
    ],
)
def test_a_resumed_node_with_its_fault(node: Node, incident: Incident, failing: tuple[str, ...], faulty: bool) -> None:
    assert in_service_with_fault(world(node, incident, failing=failing)) == (("n1",) if faulty else ())


def test_held_jobs_are_counted_while_they_are_held() -> None:
    held = replace(FAULT, kind=IncidentKind.HELD_JOB, state=S.WATCHING)
    assert held_jobs(world(IDLE, held, replace(held, id="i2", state=S.CLOSED))) == 1


def test_a_drain_of_ours_without_an_incident() -> None:
    reason = slurm_reason(INCIDENT, "gpu.xid 79")
    ours = replace(DRAINED, reason=reason, reason_user="holdfast")
    mark = NodeMark("n1", INCIDENT, reason, "holdfast", NOW)
    (found,) = troubled(world(ours, marks={"n1": mark}))
    assert found.state is TroubleState.DRAINED_BY_HOLDFAST
    (copied,) = troubled(world(ours))
    assert copied.state is TroubleState.DRAINED_BY_OPERATOR
