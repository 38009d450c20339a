"""``POST /v1/nodes/{name}/replace``: what is ordered, what is refused in one line, who may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.book import Book, Brake, BrakeKind, NodeRecord, World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.machine import CAN_NOTHING, ProviderCan, ProviderView
from holdfast.model.operators.node_orders import OrderVerb
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import ClusterView, Node, Reservation
from support.store_nouns import incident

from .conftest import T0

ID = "0h3k5d2m8x1q"
PATH = "/v1/nodes/n1/replace"
CAN = ProviderCan(reboot=True, replace=True, launch_first=True, status=True, power_off_confirmed=True)
ACT = Policy(mode=Mode.ACT)
ACT = replace(ACT, repair=replace(ACT.repair, budget_cluster_share=1.0))


def _world(
    node: Node | None = None,
    *incidents: Incident,
    policy: Policy = ACT,
    can: ProviderCan = CAN,
    reservations: dict[str, Reservation] | None = None,
    **book: Any,
) -> World:
    shown = node or Node("n1", "IDLE", frozenset())
    nodes = {shown.name: shown} | {f"n{n}": Node(f"n{n}", "IDLE", frozenset()) for n in range(2, 9)}
    view = ClusterView("c", T0, nodes, {}, reservations or {})
    known = {name: NodeRecord(name, f"i-{name[1:]}", "b-1") for name in nodes}
    provider = ProviderView("sim", can, T0)
    full = Book(incidents={i.id: i for i in incidents}, nodes=known, nodes_since=T0, provider=provider, **book)
    return World(T0, policy, full, view)


def _drained(reason: str = "bad fan") -> Node:
    return Node("n1", "IDLE", frozenset({"DRAIN"}), reason=reason, reason_user="eve", reason_time=T0)


def _order(served: Any, **body: Any) -> Any:
    return served.call("POST", PATH, json=body)


def test_an_order_names_the_machine_that_was_seen(served: Any) -> None:
    served.world = _world()
    got = _order(served, reason="board swap", ticket="OPS-12", machine="i-1")
    (order,) = served.store.load_book(T0).node_orders
    assert (got.status_code, order.verb, order.by, order.instance_id) == (200, OrderVerb.REPLACE, "op", "i-1")
    assert (order.id, order.who_and_why) == (got.json()["order_id"], "op: board swap (ticket OPS-12)")
    assert got.json()["text"] == "machine i-1 of n1 is replaced once no job holds the node"
    assert served.woken == 1
    (event,) = served.store.events()
    assert (event.detail["verb"], event.detail["who"], event.detail["ticket"]) == ("replace_node", "op", "OPS-12")
    (entry,) = served.call("GET", "/v1/nodes/n1/history").json()["entries"]
    assert (entry["who"], entry["ticket"], entry["text"]) == (
        "op",
        "OPS-12",
        "ordered to replace its machine: board swap",
    )


def test_without_a_machine_it_is_the_one_that_serves(served: Any) -> None:
    served.world = _world()
    assert _order(served).status_code == 200
    assert served.store.load_book(T0).node_orders[0].instance_id == "i-1"


def test_a_drain_is_taken_over_by_its_very_reason(served: Any) -> None:
    served.world = _world(_drained())
    assert _order(served, over="bad fan").status_code == 200
    assert served.store.load_book(T0).node_orders[0].over == _drained().given_reason


@pytest.mark.parametrize(
    ("world", "body", "status", "said"),
    [
        (_world(), {"machine": "i-9"}, 409, "machine i-1 serves n1 now, not i-9"),
        (_world(_drained()), {}, 409, 'drained by eve: theirs; to take this very drain over: --over "bad fan"'),
        (_world(_drained()), {"over": "bad"}, 409, "n1 is not drained as 'bad': Slurm shows 'bad fan'"),
        (_world(), {"over": "bad fan"}, 409, "it is in service"),
        (_world(can=CAN_NOTHING), {}, 409, "cannot replace a machine"),
        (
            _world(policy=replace(ACT, nodes=(NodeSet("login", nodes="n1", never_touch=True),))),
            {},
            409,
            "nothing is ever done",
        ),
        (
            _world(None, incident(id=ID, node="n1", state=IncidentState.REPAIRING)),
            {},
            409,
            f"incident {ID} of n1: repairing",
        ),
        (_world(None, incident(id=ID, node="n1", acknowledged=True)), {}, 409, f"holdfast incident close {ID}"),
        (_world(), {"mode": "now"}, 422, ""),
        (_world(), {"ticket": 'a"b'}, 422, ""),
    ],
)
def test_what_is_refused(served: Any, world: World, body: Any, status: int, said: str) -> None:
    served.world = world
    got = _order(served, **body)
    message = got.json()["error"]["message"]
    assert (got.status_code, said in message, "\n" in message) == (status, True, False), got.text
    assert served.store.load_book(T0).node_orders == ()


def test_a_second_order_is_refused_until_the_first_was_begun(served: Any) -> None:
    served.world = _world()
    assert _order(served).status_code == 200
    got = _order(served)
    assert (got.status_code, "waits to be begun" in got.json()["error"]["message"]) == (409, True)


def test_the_same_order_with_its_key_is_carried_out_once(served: Any) -> None:
    served.world = _world()
    keyed = {"Idempotency-Key": "k-1"}
    first, again = (served.call("POST", PATH, json={"reason": "x"}, headers=keyed) for _ in range(2))
    assert (first.json(), again.status_code) == (again.json(), 200)
    assert len(served.store.load_book(T0).node_orders) == 1


def test_what_it_waits_for_is_said(served: Any) -> None:
    brake = Brake(BrakeKind.DRAINS, T0, "many")
    served.world = _world(
        policy=replace(ACT, repair=replace(ACT.repair, launches_per_hour=1)), brakes={"drains": brake}, paused="ops"
    )
    said = _order(served).json()["text"]
    for word in ("paused by ops", "brake 'drains' holds", "kept for faults"):
        assert word in said


def test_in_observe_mode_it_is_put_on_record(served: Any) -> None:
    served.world = _world(policy=replace(ACT, mode=Mode.OBSERVE))
    got = _order(served)
    assert (got.status_code, "recorded, not done; would drain n1" in got.json()["text"]) == (200, True)


def test_without_slurm_or_provider_nothing_is_ordered(served: Any) -> None:
    world = _world()
    served.world = replace(world, book=replace(world.book, provider=None))
    assert _order(served).status_code == 503
    served.world = replace(world, view=None)
    assert _order(served).status_code == 503
    served.world = world
    assert served.call("POST", "/v1/nodes/n99/replace", json={}).status_code == 404


@pytest.mark.parametrize(("who", "status"), [("eve", 403), (None, 401), ("n1", 403), ("1001", 403)])
def test_only_an_operator_orders(served: Any, who: str | None, status: int) -> None:
    served.world = _world()
    assert served.call("POST", PATH, who, json={}).status_code == status
    assert served.store.load_book(T0).node_orders == ()
