"""Orders that test the node or its network: on a node that no job holds, in children with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.agent.findings.trust import Weighed
from holdfast.agent.node.node_idle import disturbed_by
from holdfast.agent.node.processes import SlurmNode
from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.verbs import CheckRun, number, plain, problem
from holdfast.model.agents.answers import OUTCOME, SAID, CheckWord, PairWord
from holdfast.model.errors import Rejected, Unavailable
from holdfast_checks.active.pair import PairAnswer, PairSide
from holdfast_checks.registry import Check
from holdfast_checks.result import Verdict

ROLES = ("listen", "connect")
TRANSPORTS = ("tcp", "gloo", "nccl")
_MOST_CHECKS_S = 3600.0
_MOST_PROBE_S = 120.0
_MOST_BYTES = 1 << 30
_MOST_ROUNDS = 1000

RunSide = Callable[[PairSide], PairAnswer]


def probe_pair(run: RunSide, slurm: SlurmNode) -> OrderHandler:
    """Run one side of a test between two nodes. ok: it was completed and every round was correct.

    ``result.said`` is the verdict: ``done``, ``failed``, or ``unknown`` where the test proves nothing about the path. A job that holds the
    node, also one that started meanwhile, makes it unknown. ``serves`` = false: the order claims that the machine has no slurmd yet and
    no job can be there, which is trusted only after a check."""

    def verb(order: ReceivedOrder) -> OrderResult:
        side = side_of(order.args)
        serves = _serves(order, slurm)
        _must_be_a_nodes(side.address, order.args.get("listener"), slurm, serves=serves)
        holder = disturbed_by(slurm, serves=serves)
        if holder is not None:
            return OrderResult(
                False, f"not probed: {holder} holds the node", {SAID: PairWord.UNKNOWN.value, "held": holder}
            )
        answer = run(side)
        known = PairWord(answer.said) is not PairWord.UNKNOWN
        if known and (holder := disturbed_by(slurm, serves=serves)) is not None:
            text = f"{holder} took the node while it was probed"
            return OrderResult(False, text, {SAID: PairWord.UNKNOWN.value, "held": holder})
        return _told(side, answer)

    return verb


def _serves(order: ReceivedOrder, slurm: SlurmNode) -> bool:
    """Whether Slurm can be asked about this node; the order's claim does not count on a machine that runs slurmd. Raises OSError without
    procfs."""
    return order.args.get("serves", True) is not False or slurm.has_slurmd()


def _must_be_a_nodes(address: str, listener: object, slurm: SlurmNode, *, serves: bool) -> None:
    """Check that the listener's address is, according to Slurm, that of the node in the order. Raises Rejected, Unavailable.

    On a machine that does not serve yet Slurm may not answer: only there is the order trusted."""
    if not isinstance(listener, str) or not listener:
        raise Rejected(f"the order names no node of this cluster as listener, only the address {address[:80]}")
    try:
        known, _port = slurm.address_of(listener)
    except Unavailable:
        if serves:
            raise
        return
    if known != address:
        raise Rejected(f"node {listener} is at {known} in Slurm, not at {address[:80]}")


def side_of(args: Mapping[str, Any]) -> PairSide:
    """Parse the order's arguments. Raises Rejected."""
    role, transport = args.get("role"), args.get("transport", "tcp")
    if role not in ROLES or transport not in TRANSPORTS:
        raise Rejected(f"role is one of {ROLES} and transport one of {TRANSPORTS}, not {role!r} and {transport!r}")
    address, secret = args.get("address"), args.get("secret")
    if not isinstance(address, str) or not address or not isinstance(secret, str) or not 8 <= len(secret) <= 256:
        raise Rejected("arguments address and secret (8 to 256 characters) are needed")
    port = int(number(args, "port", 0, 65535))
    if port < 1024:
        raise Rejected(f"argument port must be 1024 or more, not {port}")
    size_bytes = int(number(args, "size_bytes", 16 * 1024 * 1024, _MOST_BYTES))
    rounds = int(number(args, "rounds", 8, _MOST_ROUNDS))
    deadline_s = number(args, "deadline_s", 10.0, _MOST_PROBE_S)
    if size_bytes < 2 or rounds < 1 or deadline_s <= 0:
        raise Rejected("a probe has a round of two bytes, and some time, at least")
    return PairSide(str(role), address, port, secret, str(transport), size_bytes, rounds, deadline_s)


def _told(side: PairSide, answer: PairAnswer) -> OrderResult:
    detail: dict[str, Any] = {SAID: answer.said, "transport": side.transport}
    if PairWord(answer.said) is not PairWord.DONE:
        return OrderResult(False, f"{answer.said}: {answer.text}", {**detail, "text": answer.text})
    detail |= {"wrong": answer.wrong, "rounds": answer.rounds, "gigabytes_s": answer.gigabytes_s}
    if answer.wrong:
        text = f"{answer.wrong} of {answer.rounds} sums were wrong"
        return OrderResult(False, text, {**detail, SAID: PairWord.FAILED.value, "text": text})
    return OrderResult(True, f"{answer.rounds} sums right, {answer.gigabytes_s:.3g} GB/s over {side.transport}", detail)


def run_checks(checks: CheckRun, known: Mapping[str, Check], slurm: SlurmNode) -> OrderHandler:
    """Run named checks now, including active ones, on a node that no job holds; ok if nothing is bad and nothing is unknown.

    The node is checked again before each check, whatever the order says (:func:`disturbed_by`).

    ``result.outcome``: ``ok``, ``bad`` (listed in ``bad``), ``unknown`` (``unknown`` lists what had no result within ``deadline_s``) or
    ``held`` (a job has the node). Checks that do not apply to this node, or that this agent does not know, are in ``skipped``."""

    def verb(order: ReceivedOrder) -> OrderResult:
        wanted = [str(name) for name in order.args.get("checks") or ()]
        if not wanted:
            raise Rejected("argument checks must name some")
        until_s = time.monotonic() + number(order.args, "deadline_s", 600.0, _MOST_CHECKS_S)
        serves = _serves(order, slurm)
        if (holder := disturbed_by(slurm, serves=serves)) is not None:
            return _held(holder)
        report = _Report()
        for name in dict.fromkeys(wanted):
            if name not in known:
                report.skipped.append(name)
            elif time.monotonic() >= until_s:
                report.unknown.append(f"{name}: no time was left for it")
            elif (holder := disturbed_by(slurm, serves=serves)) is not None:
                return _held(holder)
            else:
                report.add(name, checks([name]).get(name, ()))
        return report.done()

    return verb


def _held(holder: str) -> OrderResult:
    return OrderResult(False, f"not checked: {holder} holds the node", {OUTCOME: CheckWord.HELD.value, "held": holder})


class _Report:
    """Results of several checks."""

    def __init__(self) -> None:
        self.bad: list[str] = []
        self.unknown: list[str] = []
        self.skipped: list[str] = []
        self.passed: list[str] = []
        self.results: list[dict[str, Any]] = []

    def add(self, name: str, found: tuple[Weighed, ...]) -> None:
        self.results += [plain(each) for each in found]
        problems = [(each.result.verdict, text) for each in found if (text := problem(each))]
        self.bad += [text for verdict, text in problems if verdict is not Verdict.UNKNOWN]
        self.unknown += [text for verdict, text in problems if verdict is Verdict.UNKNOWN]
        if not found:
            self.unknown.append(f"{name} did not answer")
        elif all(each.result.verdict is Verdict.SKIPPED for each in found):
            self.skipped.append(name)
        elif not problems:
            self.passed.append(name)

    def done(self) -> OrderResult:
        outcome = CheckWord.BAD if self.bad else CheckWord.UNKNOWN if self.unknown else CheckWord.OK
        said = "; ".join([*self.bad, *self.unknown]) or f"{len(self.passed)} checks OK"
        if self.skipped and not (self.bad or self.unknown):
            said += f", not for this node: {', '.join(self.skipped)}"
        detail = {
            OUTCOME: outcome.value,
            "bad": self.bad,
            "unknown": self.unknown,
            "skipped": self.skipped,
            "passed": self.passed,
            "results": self.results,
        }
        return OrderResult(outcome is CheckWord.OK, said[:500], detail)
