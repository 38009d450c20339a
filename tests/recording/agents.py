"""An agent of this release: what it keeps on disk, and every message that it sends. Its real parts, without a node around them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from holdfast.agent.agent import STANDING_KEY, Agent
from holdfast.agent.findings import wire
from holdfast.agent.findings.finding_state import OpenFindings
from holdfast.agent.findings.trust import ResultTrust, Weighed
from holdfast.agent.orders.orders import OrderBook, OrderResult
from holdfast.agent.sending.client import ControllerAnswer, ControllerClient
from holdfast.agent.sending.memory import AgentMemory
from holdfast.agent.sending.outbox import Outbox, OutboxItem
from holdfast.agent.sending.pace import HeartbeatPace
from holdfast.agent.sending.sender import Sender, SenderIdentity
from holdfast.agent.sending.statements import parse
from holdfast.agent.sources.fabric import Fabric
from holdfast.agent.sources.gpus import INVENTORY_KEY, KnownGpus
from holdfast.agent.sources.kernel import CURSOR_KEY
from holdfast_checks.acting import Lists
from holdfast_checks.aside import FilesSetAside
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.known import all_checks
from holdfast_checks.result import Remedy, Result, Severity

ME = SenderIdentity("n1", "i-0001", "i-0001-boot-1")
WALL = "2026-03-01T12:00:00.000Z"
STATEMENTS = (
    b'{"v":1,"kind":"checkpoint.register","job_id":7,"restarts":1,"run":"7.1","dir":"/ckpt/7","layout":"dirs","fenced":true,'
    b'"save_signal":"USR1","save_s":40}',
    b'{"v":1,"kind":"checkpoint.saved","job_id":7,"restarts":1,"run":"7.1","step":40,"path":"/ckpt/7/step-40","bytes":1048576}',
    b'{"v":1,"kind":"checkpoint.resumed","job_id":7,"restarts":1,"run":"7.1","step":40,"path":"/ckpt/7/step-40"}',
    b'{"v":1,"kind":"progress","job_id":7,"restarts":1,"run":"7.1","step":41,"phase":"step","step_ms":900,"own_ms":600,"quorum":3}',
)
"""Lines of a job, as ``holdfast_checkpoint`` and ``holdfast_train`` write them."""
DONE: Mapping[str, OrderResult] = {
    "validate": OrderResult(True, "all checks pass", {"gpu_uuids": ["GPU-1", "GPU-2"]}),
    "run_checks": OrderResult(
        False,
        "bad: gpu.active",
        {"outcome": "bad", "bad": ["gpu.active"], "results": [{"check": "gpu.active", "verdict": "failed"}]},
    ),
    "collect_evidence": OrderResult(True, "12 files, 4 KiB", {"bytes": 4096}, bundle=b"\x1f\x8bnot really a tar"),
    "probe_peer": OrderResult(False, "timed out", {"errno": 110}),
    "unknown_verb": OrderResult(False, "refused: unsupported verb 'teleport'; this agent knows validate"),
}


@dataclass
class Wire(ControllerClient):
    """Stub of the connection to the controller: keeps what is sent."""

    answer: ControllerAnswer = field(default_factory=lambda: ControllerAnswer(200, {"accepted": True}))
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def post(self, path: str, body: Mapping[str, Any]) -> ControllerAnswer:
        self.sent.append((path, dict(body)))
        return self.answer

    def close(self) -> None:
        pass


def results() -> Iterator[Result]:
    """One result of each severity and remedy, as checks find them; GPUs and the node; events and states."""
    for severity in Severity:
        for remedy in Remedy:
            yield finding(
                "gpu.xid",
                severity,
                remedy,
                component="GPU-1",
                code="79",
                gpu_uuid="GPU-1",
                gpu_minor=3,
                pci="0000:3b:00.0",
            )
    yield finding("gpu.remap", Severity.DEGRADED, Remedy.RESET_GPU, component="GPU-2", code="pending", sticky=True)
    yield finding("gpu.xid", Severity.FATAL, Remedy.RESTART_JOB, component="GPU-1", code="45", consequence=True)
    numbers = {"ratio": 0.5, "count": 3}
    yield finding("gpu.nvlink", Severity.FATAL, Remedy.REPLACE, component="GPU-1", evidence=numbers)
    goes = {"notice": "interruption", "goes_at": "2026-03-01T12:02:00+00:00"}
    yield finding("cloud.interruption", Severity.FATAL, Remedy.REPLACE, code="terminate", sticky=True, evidence=goes)


def finding(check: str, severity: Severity, remedy: Remedy, component: str = "node", **about: Any) -> Result:
    return Result.finding(check, severity, remedy, component, summary=f"{check} {severity}", **about)


def weighed() -> list[Weighed]:
    """The results as they count on a node where one check only observes."""
    trust = ResultTrust(all_checks(), Lists(("*",), ("gpu.nvlink",)))
    return [trust.weigh(each) for each in results()]


def items() -> list[OutboxItem]:
    """Every kind of item."""
    now_s, found_now = time.monotonic(), weighed()
    found = [wire.finding(each, now_s, WALL) for each in found_now]
    found += [wire.finding(found_now[0], now_s, WALL, history=True), wire.clear("gpu.remap", "GPU-2", now_s)]
    found += [parse(line).item(1000, now_s) for line in STATEMENTS]
    return [*found, OutboxItem(known().wire(), now_s, key="inventory")]


def known() -> KnownGpus:
    refs = tuple(GpuRef(uuid=f"GPU-{n}", pci=f"0000:3{n}:00.0", minor=n, index=n, serial=f"16{n}") for n in (1, 2))
    return KnownGpus(ME.boot_id, GpuInventory(refs), "550.54.15", this_boot=True)


def standing() -> OpenFindings:
    """Two findings that are still there."""
    kept = OpenFindings()
    found = weighed()
    for each in [found[0], *(w for w in found if w.result.sticky)]:
        kept.judge([each], time.monotonic())
    return kept


def heartbeats() -> list[dict[str, Any]]:
    """Bodies of ``POST /v1/heartbeats``: of a sick node, and of one that is well."""
    sent = Wire()
    for kept in (standing(), OpenFindings()):
        sender = cast(
            Any, SimpleNamespace(beat=lambda beat: sent.sent.append(("/v1/heartbeats", {**ME.envelope(), **beat})))
        )
        parts = {
            "pace": HeartbeatPace(None),
            "standing": kept,
            "fabric": Fabric(30.0),
            "sender": sender,
            "memory": SimpleNamespace(set_aside=lambda: FilesSetAside(1, time.time() - 60.0)),
            "gres": SimpleNamespace(told=lambda _known: ({"gpu": tuple(range(8))}, "")),
            "nvml": SimpleNamespace(known=SimpleNamespace(inventory=GpuInventory())),
            "trust": ResultTrust({}, Lists(("gpu.nvlink",), ())),
            "authorities": SimpleNamespace(known=lambda: ["3a3f2a8068448822"]),
            "acting": SimpleNamespace(
                version="5f0c2d9a41be", refused="checks.thresholds: gpu: not as declared", off=frozenset({"gpu.ecc"})
            ),
        }
        Agent._heartbeat(cast(Any, SimpleNamespace(**parts)))
    return [{**body, "failing": list(body["failing"])} for _, body in sent.sent]


def record(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Write an agent's memory into ``folder``, with all items unsent, and send the same from another; the reports that it sent."""
    _remember(folder / "kept")
    memory = _remember(folder / "sent")
    sent = Wire()
    outbox = Outbox(memory, ME.boot_id)
    sender = Sender(sent, outbox, ME, folder)
    while outbox.next_batch() is not None:
        sender._send_reports()
    memory.close()
    return {"reports": [body for _, body in sent.sent], "heartbeats": heartbeats()}


def _remember(folder: Path) -> AgentMemory:
    """A memory as a running agent leaves it when it is killed: items, one report sealed and not answered, orders, facts."""
    memory = AgentMemory(folder)
    memory.set("outbox_id", "0d9c1e52-7f1b-4c53-9e44-5f1d0c2a9b10")
    outbox, orders = Outbox(memory, ME.boot_id), OrderBook(memory)
    outbox.put(
        items(),
        {STANDING_KEY: standing().dump(), CURSOR_KEY: json.dumps([ME.boot_id, 4711]), INVENTORY_KEY: known().dump()},
    )
    for number, (verb, done) in enumerate(DONE.items()):
        name = f"1kjmmb3pg001/SendOrder/{verb}/n1/{number}"
        orders.remember(name)
        outbox.put([orders.settle(name, done)])
    orders.remember("1kjmmb3pg001/SendOrder/reset_gpu/n1/9")
    outbox.next_batch()
    return memory
