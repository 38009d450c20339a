"""Messages and memories of agents and of the quorum service of earlier releases, under this one."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.agent import STANDING_KEY
from holdfast.agent.findings.finding_state import OpenFindings
from holdfast.agent.orders.orders import OrderResult, Orders, ReceivedOrder, refusal
from holdfast.agent.sending.memory import AgentMemory
from holdfast.agent.sending.outbox import Outbox, OutboxItem
from holdfast.agent.sending.sender import Sender, SenderIdentity
from holdfast.agent.sending.statements import KINDS, parse
from holdfast.agent.sources.gpus import INVENTORY_KEY, KnownGpus
from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.model.actions.action import Verb
from holdfast.model.elastic_jobs.rooms import RoomRules
from holdfast.model.errors import NotFound
from holdfast.quorum.state import QuorumStore
from holdfast.store import SqlStore, open_store
from recording.releases import document, folder, releases, script
from recording.stores import restore
from support.quorum_site import Site as QuorumSite
from support.quorum_site import with_site
from support.served_site import AgentsClient, ServedSite
from support.simulated.site import Site

ME = SenderIdentity("n1", "i-0001", "i-0001-boot-1")


@pytest.fixture(params=releases())
def release(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'holdfast.db'}")) as opened:
        yield opened


@pytest.fixture
def served(store: SqlStore) -> ServedSite:
    """A controller of this release, with a node whose machine is the recorded agent's."""
    return ServedSite(Site(3, store=store), store)


def items_of(bodies: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for body in bodies for item in body["items"] if item["kind"] == kind]


def test_reports_and_heartbeats_are_accepted(release: str, served: ServedSite) -> None:
    reports = document(release, "reports")
    for body in reports:
        got = served.call("POST", "/v1/reports", "agent", "n1", json=body)
        assert (got.status_code, got.json().get("duplicate")) == (200, False), got.text
    for body in document(release, "heartbeats"):
        assert served.call("POST", "/v1/heartbeats", "agent", "n1", json=body).status_code == 200
    assert_taken(served, reports)


def assert_taken(served: ServedSite, reports: list[dict[str, Any]]) -> None:
    """Check that every item of the reports had its effect."""
    sent = items_of(reports, "finding")
    kept = served.store.findings(node="n1")
    told = {(f["check"], f["severity"], f["remedy"], f["code"]) for f in sent if not f.get("history")}
    assert {(k.finding.check, k.finding.severity, k.finding.remedy, k.finding.code) for k in kept} == told
    assert {s["statement"] for s in items_of(reports, "statement")} == KINDS
    claims = served.site.book.checkpoints[7]["n1"]
    assert (claims.directory, claims.saved_step, claims.resumed_step, claims.progress_step) == ("/ckpt/7", 40, 40, 41)
    (inventory,) = items_of(reports, "inventory")
    assert set(served.store.inventories("n1")["i-0001"].gpus) == set(inventory["gpus"])


def restored(release: str, target: Path) -> AgentMemory:
    """The agent's memory of that release, opened by this one."""
    target.mkdir()
    restore(target / "agent.db", script(release, "agent"))
    return AgentMemory(target)


def test_the_outbox_is_sent_whole(release: str, served: ServedSite, tmp_path: Path) -> None:
    with closing(restored(release, tmp_path / "agent")) as memory:
        outbox, client = Outbox(memory, ME.boot_id), AgentsClient(served, "n1")
        waiting = len(outbox)
        assert waiting == sum(len(body["items"]) for body in document(release, "reports"))
        sender = Sender(client, outbox, ME, tmp_path)
        sender._send_heartbeat()
        sender._send_reports()
        assert (len(outbox), {a.status for a in client.answers}) == (0, {200})
        assert not (tmp_path / "dead-letters.jsonl").exists()
        assert outbox.id == document(release, "reports")[0]["outbox_id"]
    assert_taken(served, document(release, "reports"))


def test_the_agent_goes_on_from_its_memory(release: str, tmp_path: Path) -> None:
    with closing(restored(release, tmp_path / "agent")) as memory:
        standing = OpenFindings()
        standing.load(memory.get(STANDING_KEY))
        sick, _well = document(release, "heartbeats")
        assert standing.failing == tuple(sick["failing"])
        assert standing.fatal
        known = KnownGpus.remembered(memory.get(INVENTORY_KEY), ME.boot_id)
        (inventory,) = items_of(document(release, "reports"), "inventory")
        assert known.wire() == {k: v for k, v in inventory.items() if k != "age_s"}
        told: list[OutboxItem] = []
        orders = Orders(AgentsClient.__new__(AgentsClient), memory, ME, {}, told.append)
        told += [
            orders._book.settle(order_id, OrderResult(False, "interrupted")) for order_id in orders._book.interrupted()
        ]
        assert [item.body["order_id"].split("/")[2] for item in told] == ["reset_gpu"]
        for name in [row[0] for row in memory.read("SELECT id FROM orders")]:
            assert not orders.take({"id": name, "verb": "validate", "expires_s": 60}), "carried out twice"


def test_orders_are_understood(release: str) -> None:
    recorded = document(release, "orders")
    verbs = {verb.value: lambda _order: OrderResult(True, "") for verb in Verb}
    for raw in recorded:
        order = ReceivedOrder.from_wire(raw, time.monotonic())
        me = SenderIdentity("n", order.instance_id, order.boot_id)
        assert refusal(order, me, verbs, time.monotonic()) is None, raw
    assert {raw["verb"] for raw in recorded} <= {verb.value for verb in Verb}


def test_a_jobs_lines_are_understood(release: str) -> None:
    lines = (folder(release) / "statements.jsonl").read_bytes().splitlines()
    assert {parse(line).kind for line in lines} == KINDS


def test_the_quorum_service_goes_on_in_its_rooms(release: str, tmp_path: Path) -> None:
    restore(tmp_path / "holdfast.db", script(release, "quorum"))
    with closing(QuorumStore(f"sqlite:///{tmp_path}/holdfast.db")) as state:
        (kept,) = state.load(datetime.now(UTC))
        before = state.happened()
    recorded = document(release, "quorum")
    assert [r.event.kind for r in before] == [e["kind"] for e in recorded["events"]["events"]]
    (room,) = recorded["status"]["rooms"]
    assert {who: str(gone) for who, gone in kept.snapshot.gone.items()} == room["gone"]

    async def scene(site: QuorumSite) -> None:
        status = await site.do(do="status")
        assert status["rooms"][0]["gone"] == room["gone"]
        assert status["rooms"][0]["quorum_id"] == room["quorum_id"]

    with_site(tmp_path, scene)


def test_the_quorum_services_answers_are_understood(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = document(release, "quorum")

    def exchange(_link: QuorumLink, line: bytes) -> bytes:
        asked = json.loads(line)
        name = "refused" if asked.get("room") == "job-404" else asked["do"]
        return json.dumps(recorded[name]).encode() + b"\n"

    monkeypatch.setattr(QuorumLink, "_exchange", exchange)
    link = QuorumLink(tmp_path / "q.sock")
    (name,) = [room["room"] for room in recorded["status"]["rooms"]]
    assert link.open(name, RoomRules(1, 2)).url == ""
    assert [room.name for room in link.rooms()] == [name]
    assert len(link.records(0, 100)) == len(recorded["events"]["events"])
    assert link.evict(name, "2", "x") == tuple(recorded["evict"]["gone"])
    with pytest.raises(NotFound):
        link.evict("job-404", "2", "x")


def test_the_agents_database_is_of_the_recorded_version(release: str, tmp_path: Path) -> None:
    restore(tmp_path / "agent.db", script(release, "agent"))
    with closing(sqlite3.connect(tmp_path / "agent.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
