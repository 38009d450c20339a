"""Input from users, nodes and disks, mutated: a result or the one error that the reader promises, never another exception.

Some thousand inputs of each kind in the usual run, a million of each in ``./dev soak``."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from holdfast.agent.jobs.questions import parse_question
from holdfast.agent.jobs.rendezvous import read_answer
from holdfast.agent.node.job_gate import JobGate
from holdfast.agent.orders.orders import ReceivedOrder, refusal
from holdfast.agent.orders.output import parse as parse_output
from holdfast.agent.orders.probing import side_of
from holdfast.agent.orders.survey_plan import SurveyPlan, target_of
from holdfast.agent.orders.verbs import job_id_of
from holdfast.agent.orders.verbs import number as number_of
from holdfast.agent.sending.client import ControllerAnswer, parsed
from holdfast.agent.sending.pace import INTERVAL, HeartbeatPace
from holdfast.agent.sending.sender import SenderIdentity, refused_items
from holdfast.agent.sending.statements import Malformed, parse
from holdfast.agent.sources.neighbours import NeighbourProbes
from holdfast.api.errors import ApiError
from holdfast.api.requests.body import parse_object
from holdfast.api.requests.convert import to_report
from holdfast.api.requests.wire import HeartbeatBody, ReportBody, check_version, parse_items
from holdfast.api.requests.wire import parse as parse_body
from holdfast.model.elastic_jobs.elastic import parse_comment
from holdfast.model.elastic_jobs.noderange import node_sizes
from holdfast.model.elastic_jobs.sizes import BadSizes
from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.jobs.opt_in import OptInMeaning, read_comment, wants_notes, why_not
from holdfast.model.jobs.output_signs import signs_of
from holdfast_checkpoint.base.confined import Bad
from holdfast_checkpoint.base.manifest import (
    CheckpointManifest,
    FileEntry,
    dump_manifest,
    dump_receipt,
    folder_name,
    parse_folder_name,
    parse_manifest,
    parse_receipt,
    safe_path,
)
from holdfast_checkpoint.base.runs import parse_run
from holdfast_checkpoint.layouts.archives import load_json
from holdfast_checkpoint.wire import parse_survey
from holdfast_checks import acting
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.kernel.devices import Devices
from holdfast_checks.kernel.replay import replay
from holdfast_checks.kernel.table import judge_record
from holdfast_checks.kernel.xid import parse_live
from holdfast_checks.probes.kmsg_record import KernelRecord, render
from holdfast_checks.probes.kmsg_record import parse as parse_record
from holdfast_checks.text import MAX_EVIDENCE_CHARS
from model.test_output_signs import LINES as OUTPUT_LINES
from recording.releases import document, releases
from support.kernel_lines import LINES, ORDINARY
from support.mutations import Mutator

SEED = int(os.environ.get("HOLDFAST_SOAK_SEED", "20261126"))
USUAL, SOAK = 4_000, 1_000_000
SLOW_S = 2.0
"""CPU time that no input of 16 KiB may cost: it takes some 20 µs, and a pattern that goes back and forth takes minutes."""

KNOWN = {"0000:3b:00.0": GpuRef(uuid="GPU-a", minor=0, pci="0000:3b:00.0")}
DEVICES = Devices(KNOWN)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = parse_run("j4711-r2.0.0")
FILES = {"rank-00000/model.pt": FileEntry(10, "a" * 64), "meta.json": FileEntry(0, "0" * 64)}


def refused(error: Exception, *, clear: bool = True) -> bool:
    """Checks that the reader refused with a printable message, and never accepted the input."""
    assert clear, repr(error)
    assert str(error).isprintable(), repr(error)
    return False


def kernel(data: bytes) -> bool:
    """One record of /dev/kmsg, and the same bytes as a line of ``dmesg``."""
    text = data.decode("utf-8", "replace")
    record = parse_record(text)
    message = record.message if record is not None else text
    results = [parse_live(message, KNOWN), judge_record(message, DEVICES, 1.0), *replay([text])]
    for result in filter(None, results):
        assert result.summary.isprintable(), result
        assert all(len(str(v)) <= MAX_EVIDENCE_CHARS and str(v).isprintable() for v in result.evidence.values()), result
    if results[0] is not None:
        assert message.startswith("NVRM:")
    return any(results)


def wire(data: bytes) -> bool:
    """A report or heartbeat, to the nouns of the core."""
    try:
        message = parse_object(data)
        check_version(message)
        if "items" not in message:
            return parse_body(HeartbeatBody, message).node != ""
        body = parse_body(ReportBody, message)
        items = parse_items(body.items)
    except ApiError as error:
        return refused(error, clear=400 <= error.status < 500)
    report, _ = to_report(body, items.taken, NOW)
    assert all(each.received_at.tzinfo is not None for each in report.findings)
    json.dumps([each.shown for each in items.refused], ensure_ascii=False).encode()
    return True


def socket(data: bytes) -> bool:
    """One line of the job socket."""
    try:
        question = parse_question(data)
        if question is not None:
            return True
        said = parse(data)
    except Malformed as error:
        return refused(error, clear=len(str(error)) < 200)
    body = json.dumps(said.item(1000, 1.0).body, ensure_ascii=False).encode()
    assert b"\n" not in body
    assert said.job_id >= 1
    assert said.path is None or (said.path.startswith("/") and len(said.path) <= 4096)
    return True


def manifest(data: bytes) -> bool:
    """A manifest, a receipt, the name of a folder, and the output of a child that checked as the user."""
    name = data[:200].decode("utf-8", "replace")
    known = parse_folder_name(name)
    assert known is None or parse_folder_name(folder_name(*known)) == known
    taken = False
    reads: tuple[Callable[[dict[str, object]], bool], ...] = (
        lambda value: all(map(safe_path, parse_manifest(value).files)),
        lambda value: all(map(safe_path, parse_receipt(value, 120, RUN, 0, 8))),
        lambda value: parse_survey(value).directory != "",
    )
    for read in reads:
        try:
            taken |= read(load_json(data, "it"))
        except Bad as bad:
            refused(bad)
        except ValueError as error:
            refused(error, clear=not isinstance(error, UnicodeError))
    return taken


def orders(data: bytes) -> bool:
    """An answer to an agent that asks for orders, from a controller that was taken over."""
    found = parsed(data).get("orders")
    taken = False
    for raw in found if isinstance(found, list) else ():
        if not isinstance(raw, dict):
            continue
        try:
            order = ReceivedOrder.from_wire(raw, 5.0)
        except (KeyError, ValueError):
            continue
        taken = True
        words = (order.id, order.verb, order.boot_id, order.instance_id, order.incident)
        assert all(word.isprintable() and len(word) <= 256 for word in words), order
        assert abs(order.expires_at_s) < 1e9
        refused = refusal(order, SenderIdentity("n1", "i-1", "b-1"), {}, 5.0)
        assert refused is not None
        for read in (side_of, job_id_of, target_of, lambda args: number_of(args, "deadline_s", 5.0, 60.0)):
            with suppress(Rejected, Malformed):
                read(dict(order.args))
    return taken


def heartbeat_answers(data: bytes) -> bool:
    """An answer to a heartbeat, or to a report: everything in the agent that reads one."""
    body = parsed(data)
    answer = ControllerAnswer(200, body)
    assert len(answer.error) <= 300
    assert answer.failure is None or body.get("leader") is False
    changed: list[bool] = []
    gate, pace = JobGate(lambda: 1.0), HeartbeatPace(None, lambda: changed.append(True))
    gate.answered(body, 1.0)
    assert gate.closed_by is None or len(gate.closed_by) <= 200
    pace.answered({INTERVAL: 10.0}, body)
    assert 1.0 <= pace.every_s <= 60.0
    named: list[str] = []
    neighbours = NeighbourProbes(lambda name: named.append(name) or ("127.0.0.1", 1), connects=lambda *_: None)  # type: ignore[func-returns-value]
    neighbours.told(body.get("neighbour_nodes"))
    neighbours.probe()
    assert len(named) <= 16
    plan = SurveyPlan(lambda low, _high: low)
    plan.told(body.get("surveys", []), 0.0)
    due = plan.due(100.0)
    given = acting.parsed(body.get("checks"))
    read_answer(answer)
    refused = refused_items(answer)
    assert all(number >= 0 and len(why) <= 300 for number, why in refused)
    return body.get("leader") is True and bool(due or named or given or gate.closed_by or changed)


def outputs(data: bytes) -> bool:
    """The end of a job's output, as text and as the answer of the child that reads it."""
    with suppress(Unavailable):
        data = parse_output(data).text.encode(errors="replace")
    found = signs_of(data.decode("utf-8", "replace"))
    assert all(clue.line.isprintable() and len(clue.line) <= 240 and len(clue.node) <= 252 for clue in found), found
    return bool(found)


def comments(data: bytes) -> bool:
    """A job's comment: consent, a refusal, an elastic declaration, and the note for its owner."""
    comment = data.decode("utf-8", "replace")
    said = read_comment(comment)
    note = why_not(comment)
    assert note.isprintable(), note
    assert len(note) < 200, note
    assert wants_notes(comment) or "holdfast-no-notes" in comment
    taken = said.said is not OptInMeaning.NOTHING
    for read in (parse_comment, node_sizes):
        try:
            taken |= read(comment) is not None
        except BadSizes as error:
            refused(error)
    return taken


@dataclass(frozen=True)
class Kind:
    """A reader of outside input. ``read``: whether the input was accepted."""

    read: Callable[[bytes], bool]
    corpus: tuple[bytes, ...]


def _json(*values: object) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


JOB = {"v": 1, "job_id": 77, "restarts": 0, "step": 5}
LEADS = {"version": 1, "leader": True}
KINDS = {
    "kernel lines": Kind(
        kernel,
        tuple(line.text.encode() for line in LINES)
        + tuple(text.encode() for text in ORDINARY if text)
        + tuple(render(KernelRecord(n, n * 1000, 0, 3, line.text)).encode() for n, line in enumerate(LINES)),
    ),
    "wire": Kind(wire, _json(*(body for release in releases() for body in document(release, "reports")))),
    "job socket": Kind(
        socket,
        _json(
            {**JOB, "kind": "checkpoint.register", "dir": "/scratch/me/run", "layout": "dcp", "save_signal": 10, "fenced": True},
            {**JOB, "kind": "checkpoint.saved", "path": "/scratch/me/run/step-5", "bytes": 4096, "save_s": 2},
            {**JOB, "kind": "checkpoint.resumed", "path": "/scratch/me/run/step-5"},
            {**JOB, "kind": "progress", "step_ms": 120, "own_ms": 80, "phase": "train", "components": [77, 78]},
            {"kind": "ask.standing"},
            {"kind": "ask.latest", "dir": "/scratch/me/run", "within_ms": 1000},
            {"kind": "ask.room", "job_id": 77, "restarts": 1},
        ),
    ),
    "orders": Kind(
        orders,
        _json(*({"orders": [order]} for release in releases() for order in document(release, "orders"))),
    ),
    "heartbeat answers": Kind(
        heartbeat_answers,
        _json(
            {**LEADS, "keep_off": "1kjmmcy9g001"},
            {**LEADS, "interval_s": 5.0, "neighbour_nodes": ["n7", "n8"]},
            {**LEADS, "surveys": [{"job_id": 71, "uid": 1000, "restarts": 0, "dir": "/scratch/me/run7", "every_s": 600.0}]},
            {**LEADS, "checks": {"act_on": ["gpu.xid"], "observe_only": ["host.disk"]}},
            {**LEADS, "refused": [{"item": 0, "message": "no job of this node"}]},
            {"error": {"code": "invalid", "message": "node is missing"}, "leader": False},
        ),
    ),
    "outputs": Kind(
        outputs,
        tuple(line.encode() for line, _sign, _node in OUTPUT_LINES)
        + _json({"text": "\n".join(line for line, _sign, _node in OUTPUT_LINES), "size_bytes": 9000, "quiet_s": 1.5}),
    ),
    "comments": Kind(
        comments,
        (b"holdfast", b"please do not use holdfast here", b"holdfast=no", b"Hold-Fast: off, sizes=2+4", b"holdfast sizes=2+4+8",
         b"holdfast elastic=2:8:2+4+8 spares=1 of=71", b"team=vision holdfast,holdfast-no-notes", b"run 7 of the sweep, owner ada"),
    ),
    "manifests": Kind(
        manifest,
        (
            dump_manifest(CheckpointManifest(120, RUN, 8, FILES)),
            dump_receipt(120, RUN, 0, 8, FILES),
            folder_name(120, RUN, 2).encode(),
            *_json({"directory": "/d", "latest": None, "candidates": [], "warnings": [], "strays": [], "others": []}),
        ),
    ),
}  # fmt: skip


def run(name: str, count: int) -> None:
    kind, taken = KINDS[name], 0
    seed = random.Random(f"{SEED}/{name}").getrandbits(32)
    for number, data in enumerate(Mutator(seed, kind.corpus).inputs(count)):
        began_s = time.thread_time()
        try:
            taken += kind.read(data)
        except Exception as error:
            raise AssertionError(f"{name}, seed {SEED}, input {number}: {data!r}") from error
        spent_s = time.thread_time() - began_s
        assert spent_s < SLOW_S, f"{name}, seed {SEED}, input {number} took {spent_s:.1f} s: {data!r}"
    assert 0.01 < taken / count < 0.9, f"{taken} of {count} inputs were taken: the mutations test nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_reader_takes_it_or_says_no(name: str) -> None:
    run(name, USUAL)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", KINDS)
def test_a_million_inputs(name: str) -> None:
    run(name, SOAK)
