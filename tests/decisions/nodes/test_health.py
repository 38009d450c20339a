"""One verdict on a node: a table. Unknown is not unhealthy, and out of service is not a fault."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.decisions.nodes.health import Health, health_of, health_of_all
from holdfast.model.agents.report import AgentView
from holdfast.model.book import Book, NodeRecord, SlurmShown, World
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.operators.maintenance import Window
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, Node, Reservation
from holdfast_checks.result import Severity
from support.store_nouns import NOW, incident

H, S, K = Health, IncidentState, IncidentKind
GOOD = AgentView("n1", "i-1", "b-1", last_heard=NOW, first_heard=NOW - timedelta(hours=1), all_ok=True)
KNOWN = NodeRecord("n1", "i-1", "b-1")
IDLE = Node("n1", "IDLE", frozenset())
DRAINED = Node("n1", "IDLE", frozenset({"DRAIN"}), reason="psu", reason_user="ops")
LOST = Node("n1", "DOWN", frozenset({"NOT_RESPONDING"}), reason="Not responding", reason_user="slurm")
OUT = SlurmShown(out=True, kind=EventKind.NODE_DRAINED_BY_OTHERS.value, by="others", reason="psu", user="ops")


def _incident(**changed: Any) -> Incident:
    return incident(node="n1", **changed)


def _world(
    *,
    node: Node | None = IDLE,
    agent: AgentView | None = GOOD,
    record: NodeRecord | None = KNOWN,
    incidents: tuple[Incident, ...] = (),
    reservations: tuple[Reservation, ...] = (),
    windows: tuple[Window, ...] = (),
    frozen: str | None = None,
    age_s: float = 0.0,
) -> World:
    nodes = {"n1": node} if node is not None else {}
    view = ClusterView("c", NOW - timedelta(seconds=age_s), nodes, {}, {r.name: r for r in reservations})
    book = Book(
        incidents={i.id: i for i in incidents}, nodes={"n1": record} if record is not None else {}, windows=windows
    )
    agents = {"n1": (agent,)} if agent is not None else {}
    return World(NOW, Policy(), book, view, agents=agents, frozen=frozen, listening_since=NOW)


WINDOW = Window("w", ("n1",), NOW, NOW + timedelta(hours=1), "ops", "swap")
MAINT = Reservation("m", ("n1",), ("root",), flags=frozenset({"MAINT"}))
TABLE: list[tuple[str, dict[str, Any], Health, bool | None, str]] = [
    ("all well", {}, H.HEALTHY, True, "all checks are OK"),
    ("drained by a person", {"node": DRAINED}, H.HEALTHY, False, "all checks are OK"),
    (
        "drained, as recorded",
        {"node": DRAINED, "record": replace(KNOWN, shown=OUT)},
        H.HEALTHY,
        False,
        "all checks are OK; drained by ops: psu",
    ),
    ("only a warning", {"agent": replace(GOOD, all_ok=False, failing=("net.eth",))}, H.HEALTHY, True, "net.eth"),
    (
        "put back with its fault",
        {
            "agent": replace(GOOD, all_ok=False, failing=("gpu.count",)),
            "incidents": (_incident(severity=Severity.FATAL, state=S.CLOSED, closed_at=NOW),),
        },
        H.HEALTHY,
        True,
        "put back before incident inc1 was repaired; these checks fail: gpu.count",
    ),
    (
        "repaired, and another check warns",
        {
            "agent": replace(GOOD, all_ok=False, failing=("net.eth",)),
            "incidents": (_incident(severity=Severity.FATAL, state=S.CLOSED, closed_at=NOW, validated_at=NOW),),
        },
        H.HEALTHY,
        True,
        "only warn",
    ),
    ("checks still run", {"agent": replace(GOOD, all_ok=False)}, H.NOT_EVALUATED, True, "have not all run"),
    ("fatal", {"incidents": (_incident(severity=Severity.FATAL),)}, H.UNHEALTHY, True, "gpu.xid"),
    ("fatal, out", {"node": DRAINED, "incidents": (_incident(severity=Severity.FATAL),)}, H.UNHEALTHY, False, ""),
    ("degraded", {"incidents": (_incident(severity=Severity.DEGRADED),)}, H.DEGRADED, True, "gpu.xid"),
    (
        "the gravest counts",
        {"incidents": (_incident(id="a", severity=Severity.FATAL), _incident(id="b", severity=Severity.DEGRADED))},
        H.UNHEALTHY,
        True,
        "gpu.xid",
    ),
    ("watched", {"incidents": (_incident(severity=Severity.WARNING, state=S.WATCHING),)}, H.HEALTHY, True, "all"),
    ("about a job", {"incidents": (_incident(kind=K.HANG, severity=Severity.FATAL),)}, H.HEALTHY, True, "all"),
    ("closed", {"incidents": (_incident(state=S.CLOSED, closed_at=NOW),)}, H.HEALTHY, True, "all checks"),
    ("taken over", {"incidents": (_incident(acknowledged=True, severity=Severity.FATAL),)}, H.UNHEALTHY, True, "gpu"),
    ("suspected", {"incidents": (_incident(kind=K.SILENCE, state=S.SUSPECTED),)}, H.UNKNOWN, True, ""),
    ("silent, not dead", {"incidents": (_incident(kind=K.SILENCE, state=S.OPEN),)}, H.UNKNOWN, True, ""),
    ("dead", {"agent": None, "incidents": (_incident(kind=K.SILENCE, dead=True),)}, H.UNHEALTHY, True, ""),
    ("disputed", {"incidents": (_incident(kind=K.DISPUTED),)}, H.UNKNOWN, True, ""),
    ("unreadable", {"incidents": (_incident(kind=K.UNREADABLE),)}, H.UNKNOWN, True, ""),
    ("silent", {"agent": replace(GOOD, last_heard=NOW - timedelta(hours=1))}, H.UNKNOWN, True, "does not report"),
    ("just started", {"agent": None, "frozen": "cold"}, H.UNKNOWN, True, "has just started"),
    ("not reporting", {"agent": None}, H.UNKNOWN, True, "since the controller started"),
    ("no agent", {"agent": None, "record": None}, H.NOT_EVALUATED, True, "no agent"),
    ("DOWN, and reporting", {"node": LOST}, H.UNKNOWN, False, "Slurm set it DOWN (Not responding)"),
    ("a window", {"windows": (WINDOW,)}, H.NOT_EVALUATED, True, "maintenance by ops (swap)"),
    ("a reservation", {"reservations": (MAINT,)}, H.NOT_EVALUATED, True, "MAINT reservation m"),
    (
        "a fault in a window",
        {"windows": (WINDOW,), "incidents": (_incident(severity=Severity.FATAL),)},
        H.NOT_EVALUATED,
        True,
        "maintenance",
    ),
    (
        "asleep",
        {"node": Node("n1", "IDLE", frozenset({"POWERED_DOWN"})), "agent": None},
        H.NOT_EVALUATED,
        False,
        "power saving",
    ),
    ("slurmctld restarts", {"node": Node("n1", "UNKNOWN", frozenset())}, H.HEALTHY, None, "all checks"),
    ("Slurm's answer is old", {"age_s": 3600.0}, H.HEALTHY, None, "all checks"),
    ("not in Slurm", {"node": None}, H.HEALTHY, None, "all checks"),
]


@pytest.mark.parametrize(
    ("given", "health", "in_service", "said"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_the_verdict(given: dict[str, Any], health: Health, in_service: bool | None, said: str) -> None:
    world = _world(**given)
    found = health_of(world, "n1")
    assert found is not None
    assert (found.health, found.in_service) == (health, in_service), found
    assert said in found.reason
    assert found.reason
    assert health_of_all(world).get("n1", found) == found


def test_nothing_is_known_of_such_a_node() -> None:
    assert health_of(_world(), "elsewhere") is None


def test_all_nodes_come_as_people_count() -> None:
    nodes = {n: Node(n, "IDLE", frozenset()) for n in ("n10", "n2", "n1")}
    world = _world()
    found = health_of_all(replace(world, view=replace(world.view, nodes=nodes)))  # type: ignore[type-var]
    assert list(found) == ["n1", "n2", "n10"]


def test_a_verdict_of_an_incident_names_it() -> None:
    found = health_of(_world(incidents=(_incident(id="0h3k5d2m8x1q"),)), "n1")
    assert found is not None
    assert (found.incident_id, found.since) == ("0h3k5d2m8x1q", _incident().fault_at)
