"""A node's history, health, sheet and orders over the API, on the real store."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from api.conftest import T0
from holdfast.api.shown.history import entries
from holdfast.controller.observing.agents import Hello
from holdfast.model.agents.report import Inventory, Report
from holdfast.model.background import Background, Lemon, Outage
from holdfast.model.book import Book, Change, NodeRecord, World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.operators.node_orders import OrderVerb
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, Node
from holdfast.ports import Operation
from holdfast_checks.result import Severity
from support.store_nouns import incident

K = EventKind
ID = "0h3k5d2m8x1q"
ROUTES = ("/v1/nodes/health", "/v1/nodes/n1/health", "/v1/nodes/n1/history", "/v1/nodes/n1/sheet", "/v1/lemons")
ORDERS = (
    ("/v1/nodes/n1/notes", {"text": "x"}),
    ("/v1/nodes/n1/drain", {"reason": "x"}),
    ("/v1/nodes/n1/release", {"note": "x"}),
)


def _at(seconds: float) -> Any:
    return T0 + timedelta(seconds=seconds)


def _world(*nodes: Node, incidents: tuple[Incident, ...] = (), **book: Any) -> World:
    shown = nodes or (Node("n1", "IDLE", frozenset()),)
    view = ClusterView("c", T0, {n.name: n for n in shown}, {}, {})
    known = {"n1": NodeRecord("n1", "i-1", "b-1")}
    return World(T0, Policy(), Book(incidents={i.id: i for i in incidents}, nodes=known, nodes_since=T0, **book), view)


def _drained(by: str = "ops", reason: str = "bad fan") -> Node:
    return Node("n1", "IDLE", frozenset({"DRAIN"}), reason=reason, reason_user=by, reason_time=T0)


DRAIN = Event(
    _at(10),
    K.NODE_DRAINED_BY_OTHERS,
    None,
    "n1",
    text="drained by ops: bad fan",
    detail={"user": "ops", "by": "others"},
)
STORY = (
    Event(
        _at(0),
        K.NODES_FIRST_READ,
        text="first reading of Slurm: 2 of 4 nodes",
        detail={
            "nodes": "n[1-2]",
            "count": 2,
            "groups": [
                {"kind": K.NODE_DRAINED_BY_OTHERS.value, "by": "others", "reason": "psu", "user": "eve", "nodes": "n1"}
            ],
        },
    ),
    Event(_at(5), K.NODE_RESUMED_BY_OTHERS, None, "n1", text="back in service", detail={"reason": "psu"}),
    DRAIN,
    Event(_at(20), K.OPERATOR, None, None, text="pause by op", detail={"verb": "pause", "who": "op", "target": ""}),
    Event(
        _at(30),
        K.OPERATOR,
        text="maintain n[1-8] by op: swap",
        detail={"verb": "maintain", "who": "op", "target": "n[1-8]", "reason": "swap"},
    ),
    Event(_at(40), K.NODE_RESUMED_BY_OTHERS, None, "n1", text="back in service", detail={"reason": "bad fan"}),
    Event(_at(50), K.NODE_DOWN, text="3 nodes DOWN", detail={"nodes": "n[2-4]", "count": 3, "groups": []}),
    Event(_at(60), K.INCIDENT_OPENED, ID, "n1", text="gpu.xid 79"),
    Event(_at(61), K.NODE_OUT, ID, "n1", text="out of service: holdfast", detail={"by": "ours"}),
    Event(_at(62), K.JOB_HURT, ID, None, "c/7@1", text="job 7 of ann is affected"),
    Event(_at(63), K.ACTION_DONE, ID, "n1", text="drained", detail={"kind": "Drain"}),
    Event(_at(64), K.ACTION_DONE, ID, "n1", text="rebooted", detail={"kind": "Reboot"}),
    Event(_at(99), K.NODE_RETURNED, ID, "n1", text="back in service", detail={"by_others": False}),
    Event(_at(100), K.INCIDENT_CLOSED, ID, "n1", text="closed (proved)"),
)


def test_the_whole_story_of_a_node_is_one_timeline(served: Any) -> None:
    served.commit(
        Change(incidents=(incident(id=ID, node="n1", state=IncidentState.CLOSED, closed_at=T0),), events=STORY)
    )
    served.world = _world()
    got = served.call("GET", "/v1/nodes/n1/history").json()
    shown = [(e["about"], e["who"], e["text"], e["lasted_s"]) for e in got["entries"]]
    assert shown == [
        ("out", "eve", "out of service when Holdfast first read Slurm: drained by eve: psu", 5.0),
        ("back", "", "back in service", None),
        ("out", "ops", "drained by ops: bad fan", 30.0),
        ("operator", "op", "maintain n[1-8] by op: swap", None),
        ("back", "", "back in service", None),
        ("incident", "Holdfast", "incident opened: gpu.xid 79", None),
        ("out", "Holdfast", "out of service: holdfast", 38.0),
        ("job", "Holdfast", "job 7 of ann is affected", None),
        ("step", "Holdfast", "reboot done: rebooted", None),
        ("back", "Holdfast", "back in service", None),
        ("incident", "Holdfast", "incident closed: closed (proved)", None),
    ]
    assert (got["next_cursor"], got["recorded_since"]) == (None, "2026-03-01T12:00:00Z")
    other = served.call("GET", "/v1/nodes/n3/history").json()["entries"]
    assert [e["text"] for e in other][-1] == "DOWN by another user: no reason is on record (with 2 other nodes at once)"


def test_pages_go_back_and_none_is_lost_or_shown_twice(served: Any) -> None:
    events = [replace(DRAIN, at=_at(n), text=f"drained {n}") for n in range(25)]
    shared = [
        Event(_at(n + 0.5), K.NODE_DOWN, text=f"down {n}", detail={"nodes": "n[1-9]", "count": 9, "groups": []})
        for n in range(0, 25, 5)
    ]
    served.commit(Change(events=tuple(sorted((*events, *shared), key=lambda e: e.at))))
    served.world = _world()
    found: list[int] = []
    cursor = None
    for _ in range(20):
        got = served.call("GET", f"/v1/nodes/n1/history?limit=4{f'&cursor={cursor}' if cursor else ''}").json()
        found = [e["id"] for e in got["entries"]] + found
        cursor = got["next_cursor"]
        if cursor is None:
            break
    assert found == sorted(set(found))
    assert len(found) == 30


def test_since_and_limit(served: Any) -> None:
    served.commit(Change(events=tuple(replace(DRAIN, at=_at(n * 3600)) for n in range(10))))
    served.world = _world()
    since = (T0 + timedelta(hours=7)).isoformat().replace("+00:00", "Z")
    assert len(served.call("GET", f"/v1/nodes/n1/history?since={since}").json()["entries"]) == 3
    assert len(served.call("GET", "/v1/nodes/n1/history?limit=2").json()["entries"]) == 2
    assert served.call("GET", "/v1/nodes/n1/history?limit=0").status_code == 422
    assert served.call("GET", "/v1/nodes/nobody/history").status_code == 404


def test_machines_with_their_gpus_and_boots(served: Any) -> None:
    gpus: dict[str, dict[str, str | int]] = {
        "GPU-b": {"minor": 1, "serial": "123", "pci": "0000:01:00.0"},
        "GPU-a": {"minor": 0},
    }
    for number, (machine, boot) in enumerate((("i-1", "b-1"), ("i-1", "b-2"))):
        served.store.accept(
            Report("n1", machine, boot, "o", number, _at(number), inventory=Inventory(gpus, driver_version="570.1"))
        )
    served.world = _world()
    got = served.call("GET", "/v1/nodes/n1/history").json()
    (machine,) = got["machines"]
    assert (machine["instance_id"], machine["boot_id"], machine["serving"]) == ("i-1", "b-2", True)
    assert [(g["uuid"], g["serial"]) for g in machine["gpus"]] == [("GPU-a", ""), ("GPU-b", "123")]
    assert [(e["about"], e["text"]) for e in got["entries"]] == [("machine", "machine i-1 has booted: boot b-2")]


# Entries: a table


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (Event(T0, K.NODE_OUT, ID, "n1", text="out", detail={"by": "foreign"}), False),
        (Event(T0, K.NODE_OUT, ID, "n1", text="out", detail={"by": "ours"}), True),
        (Event(T0, K.INCIDENT_STATE, ID, "n1", text="x", detail={"to": "awaiting_human"}), True),
        (Event(T0, K.INCIDENT_STATE, ID, "n1", text="x", detail={"to": "repairing"}), False),
        (Event(T0, K.ACTION_DONE, ID, "n1", text="x", detail={"kind": "SendOrder", "verb": "probe_peer"}), False),
        (Event(T0, K.ACTION_FAILED, ID, "n1", text="x", detail={"kind": "SendOrder", "verb": "reset_gpu"}), True),
        (Event(T0, K.ACTION_DONE, ID, "n1", text="x", detail={"kind": "Undrain"}), False),
        (Event(T0, K.NODE_DOWN, text="x", detail={"nodes": "n[2-4]"}), False),
        (Event(T0, K.NODE_DOWN, text="x", detail={"nodes": "n[1-4]", "count": 4}), True),
        (Event(T0, K.NODE_DOWN, text="x", detail={}), False),
        (Event(T0, K.NODES_FIRST_READ, text="x", detail={"nodes": 7, "groups": "?"}), False),
        (Event(T0, K.NODES_FIRST_READ, text="x", detail={"nodes": "n1", "groups": ["?", {"nodes": 7}]}), True),
        (Event(T0, K.OPERATOR, text="x", detail={"verb": "suppress", "target": "n1"}), False),
        (Event(T0, K.NODE_RETURNED, ID, "n1", text="x", detail={"by_others": True}), True),
    ],
)
def test_what_is_shown_of_a_node(event: Event, shown: bool) -> None:
    assert len(entries([event], "n1")) == shown


def test_a_return_by_others_is_shown_once() -> None:
    returned = Event(_at(1), K.NODE_RETURNED, ID, "n1", text="back in service", detail={"by_others": True})
    resumed = Event(T0, K.NODE_RESUMED_BY_OTHERS, None, "n1", text="back", detail={})
    assert [e.kind for e in entries([resumed, returned], "n1")] == [K.NODE_RESUMED_BY_OTHERS]
    assert len(entries([resumed, replace(returned, at=_at(3600))], "n1")) == 2


# Health


def test_health_of_one_and_of_all(served: Any) -> None:
    assert served.call("GET", "/v1/nodes/n1/health").status_code == 503
    bad = incident(id=ID, node="n2", severity=Severity.FATAL)
    served.world = _world(Node("n1", "IDLE", frozenset()), Node("n2", "IDLE", frozenset()), incidents=(bad,))
    served.agents.heard(Hello("n1", "i-1", "b-1", all_ok=True), T0, served.clock.monotonic_s())
    got = served.call("GET", "/v1/nodes/n1/health").json()
    assert (got["health"], got["in_service"], got["reason"]) == ("healthy", True, "all checks are OK")
    assert served.call("GET", "/v1/nodes/nobody/health").status_code == 404
    everything = served.call("GET", "/v1/nodes/health").json()
    assert [(n["node"], n["health"]) for n in everything["nodes"]] == [("n1", "healthy"), ("n2", "unhealthy")]
    assert everything["counts"] == {"healthy": 1, "degraded": 0, "unhealthy": 1, "unknown": 0, "not_evaluated": 0}


def test_a_loop_that_stands_still_makes_nodes_unknown_not_healthy(served: Any) -> None:
    served.world = _world()
    served.agents.heard(Hello("n1", "i-1", "b-1", all_ok=True), T0, served.clock.monotonic_s())
    served.clock.passed_s = 3600.0
    got = served.call("GET", "/v1/nodes/n1/health").json()
    assert (got["health"], got["in_service"]) == ("unknown", None)


# Orders


def test_a_note_is_on_record_with_who_and_ticket(served: Any) -> None:
    served.world = _world(incidents=(incident(id=ID, node="n1"),))
    got = served.call("POST", "/v1/nodes/n1/notes", json={"text": "fan\nordered", "ticket": "OPS-12"})
    assert (got.status_code, got.json()["incident_id"]) == (200, ID)
    (entry,) = served.call("GET", "/v1/nodes/n1/history").json()["entries"]
    assert (entry["who"], entry["ticket"], entry["text"]) == (
        "op",
        "OPS-12",
        "note: fan ordered",
    )
    (event,) = served.store.events(incident_id=ID)
    assert event.detail["ticket"] == "OPS-12"


def test_a_drain_becomes_an_order_with_its_event(served: Any) -> None:
    served.world = _world()
    got = served.call("POST", "/v1/nodes/n1/drain", json={"reason": "swap", "ticket": "OPS-12"}).json()
    (order,) = served.store.load_book(T0).node_orders
    assert (order.id, order.verb, order.by) == (got["order_id"], OrderVerb.DRAIN, "op")
    assert order.slurm_reason == "operator op: swap [ticket OPS-12]"
    assert "operator op: swap [ticket OPS-12]" in got["text"]
    assert served.woken == 1


def test_a_release_names_what_was_seen(served: Any) -> None:
    served.world = _world(_drained())
    assert served.call("POST", "/v1/nodes/n1/release", json={"note": "swapped"}).status_code == 200
    (order,) = served.store.load_book(T0).node_orders
    assert order.over == _drained().given_reason


@pytest.mark.parametrize(
    ("nodes", "incidents", "path", "body", "status", "said"),
    [
        ((_drained(),), (), "drain", {"reason": "x"}, 409, "out of service already by ops: bad fan"),
        ((), (), "release", {"note": "x"}, 409, "in service already"),
        ((), (), "drain", {"reason": ""}, 422, ""),
        ((), (), "drain", {}, 422, ""),
        ((), (), "drain", {"reason": "x", "ticket": "a b"}, 422, ""),
        ((), (), "drain", {"reason": "x", "ticket": 'a"b'}, 422, ""),
        ((), (), "drain", {"reason": "x", "mode": "now"}, 422, ""),
        ((), (), "release", {}, 422, ""),
    ],
)
def test_what_does_not_fit(
    served: Any, nodes: tuple[Node, ...], incidents: Any, path: str, body: Any, status: int, said: str
) -> None:
    served.world = _world(*nodes, incidents=incidents)
    got = served.call("POST", f"/v1/nodes/n1/{path}", json=body)
    assert (got.status_code, said in got.json()["error"]["message"]) == (status, True), got.text
    assert served.store.load_book(T0).node_orders == ()


@pytest.mark.parametrize("state", [IncidentState.REPAIRING, IncidentState.VALIDATING])
def test_a_node_under_repair_is_released_only_if_the_order_says_so(served: Any, state: IncidentState) -> None:
    served.world = _world(
        _drained("root", f"holdfast[{ID}]: gpu.xid"), incidents=(incident(id=ID, node="n1", state=state),)
    )
    got = served.call("POST", "/v1/nodes/n1/release", json={"note": "x"})
    assert (got.status_code, "--despite-repair" in got.json()["error"]["message"]) == (409, True)
    got = served.call("POST", "/v1/nodes/n1/release", json={"note": "x", "despite_repair": True})
    assert got.status_code == 200


@pytest.mark.parametrize("path", ["drain", "release"])
def test_without_slurm_nothing_is_ordered(served: Any, path: str) -> None:
    body = {"reason": "x"} if path == "drain" else {"note": "x"}
    assert served.call("POST", f"/v1/nodes/n1/{path}", json=body).status_code == 503
    served.world = _world()
    served.clock.passed_s = 3600.0
    assert served.call("POST", f"/v1/nodes/n1/{path}", json=body).status_code == 503
    served.clock.passed_s = 0.0
    assert served.call("POST", f"/v1/nodes/n9/{path}", json=body).status_code == 404


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(("who", "status"), [("eve", 200), ("op", 200), (None, 401), ("n1", 403), ("1001", 403)])
def test_who_may_read(served: Any, path: str, who: str | None, status: int) -> None:
    served.world = _world()
    assert served.call("GET", path, who).status_code == status


@pytest.mark.parametrize(("path", "body"), ORDERS)
@pytest.mark.parametrize(("who", "status"), [("eve", 403), (None, 401), ("n1", 403), ("1001", 403)])
def test_only_operators_order(served: Any, path: str, body: Any, who: str | None, status: int) -> None:
    served.world = _world(_drained())
    assert served.call("POST", path, who, json=body).status_code == status
    assert served.store.events() == ()


# Lemons and the sheet


def test_each_fault_of_a_lemon_says_what_it_counts(served: Any) -> None:
    day = timedelta(days=1)
    outages = (
        Outage("n1", "a", "i-1", "gpu.xid 79", T0 - 40 * day, T0 - 39 * day),
        Outage("n1", "b", "i-1", "gpu.xid 48", T0 - 3 * day, T0 - 3 * day + timedelta(hours=1)),
        Outage("n1", "c", "i-1", "gpu.xid 48", T0 - 3 * day + timedelta(hours=1, minutes=5)),
        Outage("n1", "d", "i-0", "gpu.xid 48", T0 - 2 * day),
        Outage("n1", "e", "i-1", "job", T0 - day, excused=True),
    )
    lemons = {"n1": Lemon(3, T0 + 25 * day, ("lemon",)), "n10": Lemon(1), "n2": Lemon(1)}
    served.world = replace(_world(), background=Background(T0, T0, outages, lemons))
    got = served.call("GET", "/v1/lemons").json()
    assert [each["node"] for each in got["lemons"]] == ["n1", "n2", "n10"]
    faults = [(f["outage"]["incident_id"], f["weight"], f["why"]) for f in got["lemons"][0]["faults"]]
    assert faults == [
        ("e", 0, "not the node's doing"),
        ("d", 0, "of machine i-0, which no longer serves the node"),
        ("c", 2, "counts twice: within 30 min after its return"),
        ("b", 1, "counts once"),
        ("a", 0, "older than 28 days"),
    ]
    assert got["lemons"][0]["faults"][3]["until"] == "2026-03-26T12:00:00Z"
    assert got["rules"][0].startswith("2 faults in 7 days")


def test_the_sheet_has_what_was_found_and_tried(served: Any) -> None:
    served.commit(Change(incidents=(incident(id=ID, node="n1"),), events=STORY))
    served.world = _world()
    served.store.operate(Operation("note_node", "op", "n1", "sent", node="n1", ticket="RMA-1"), T0)
    got = served.call("GET", "/v1/nodes/n1/sheet").json()
    (each,) = got["incidents"]
    assert [e["text"] for e in each["tried"]] == ["reboot done: rebooted"]
    assert got["tickets"] == ["RMA-1"]
    assert [e["about"] for e in got["out"]] == ["out", "back"] * 3
    assert served.call("GET", f"/v1/nodes/n1/sheet?incident={ID}").status_code == 200
    assert served.call("GET", f"/v1/nodes/n2/sheet?incident={ID}").status_code == 404
