"""Order handlers, with the checks made on the node itself before an order is carried out."""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.agent.findings.trust import Weighed
from holdfast.agent.node.node_idle import disturbed_by
from holdfast.agent.node.processes import (
    RUN_OVER,
    SlurmNode,
    Stepd,
    age_s,
    handles,
    job_seen,
    live_tasks,
    send_signal,
    start_ticks,
)
from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.save_signals import (
    SAVE_SIGNAL_ENV,
    SAVE_SIGNALS,
    USERS_OWN,
    SaveSignals,
    signal_in_environment,
    signal_named,
)
from holdfast.agent.sources.neighbours import NeighbourAddress, NeighbourProbes, alive, connect
from holdfast.model.errors import Rejected
from holdfast_checks.probes import process_files
from holdfast_checks.registry import Check, Cost
from holdfast_checks.result import Severity, Verdict

_GRACE_MAX_S = 30.0
_PROBE_TIMEOUT_MAX_S = 10.0
LEAST_GRACE_S = 1.0
"""Minimum grace, whatever the order says."""
_LOOK_S = 0.25
"""Poll interval for the tasks of a step; each poll reads the process table."""
_NEVER_ENDED = frozenset({"extern", "batch", "interactive"})

_SAYS_SOMETHING_OF_THE_PEER = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNREFUSED})
"""Connection errors that are evidence about the other machine. Every other error (no route, no name, no descriptor left) is a problem
of this node: its outcome has no ``errno`` and is no evidence."""

CheckRun = Callable[[list[str]], Mapping[str, tuple[Weighed, ...]]]
"""Ids of checks (empty: all) → fresh results by check, weighed; raises Unavailable when they are not ready in time."""


def number(args: Mapping[str, Any], name: str, default: float, high: float) -> float:
    """A number from an order's arguments, between 0 and ``high``. Raises Rejected."""
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
        raise Rejected(f"argument {name} must be between 0 and {high:g}, not {value!r}")
    return float(value)


def job_id_of(args: Mapping[str, Any]) -> int:
    """The order's job. Raises Rejected."""
    value = args.get("job_id")
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise Rejected(f"argument job_id must be a job's number, not {value!r}")
    return value


def validate(
    checks: CheckRun,
    known: Mapping[str, Check],
    gpus: Callable[[], list[str]],
    on_bus: Callable[[], int],
    slurm: SlurmNode,
    named: Mapping[str, Check] | None = None,
) -> OrderHandler:
    """Run all checks again; ok only if nothing is bad, every check that applies has answered, and no GPU that is on the bus
    (or that the order expects) is missing from NVML's answer: a machine without a driver is not healthy.

    ``named``: checks that an order may name in addition to the periodic ones; an active one runs only on an empty node, which is verified
    before each. The claim that the machine does not serve yet (``expect_no_job`` = false) is trusted only where it has no slurmd to ask."""
    may_be_named = known if named is None else named

    def verb(order: ReceivedOrder) -> OrderResult:
        wanted = [str(name) for name in order.args.get("checks") or ()]
        unknown = [name for name in wanted if name not in may_be_named]
        if unknown:
            raise Rejected(f"unknown checks: {', '.join(unknown)}")
        active = [name for name in dict.fromkeys(wanted) if may_be_named[name].cost is Cost.ACTIVE]
        if order.args.get("expect_no_job", bool(active)):
            jobs = sorted({step.job_id for step in slurm.stepds()})
            if jobs:
                return OrderResult(False, f"jobs are on the node: {', '.join(map(str, jobs))}", {"jobs": jobs})
        serves = order.args.get("expect_no_job", True) is not False
        if active and (holder := disturbed_by(slurm, serves=serves)) is not None:
            return OrderResult(False, f"not checked: {holder} holds the node", {"held": holder})
        others = [name for name in wanted if name not in active]
        results = dict(checks(others)) if others or not wanted else {}
        for name in active:
            if (holder := disturbed_by(slurm, serves=serves)) is not None:
                return OrderResult(False, f"{holder} took the node: {name} was not started", {"held": holder})
            results |= checks([name])
        weighed = [each for found in results.values() for each in found]
        problems = [text for each in weighed if (text := problem(each))]
        silent = sorted(set(wanted or known) - set(results))
        problems += [f"{name} did not answer" for name in silent]
        uuids = gpus()
        expected = max(on_bus(), int(number(order.args, "expect_gpus", 0, 64)))
        if not wanted and len(uuids) < expected:
            problems.append(f"{len(uuids)} GPUs at work, {expected} expected")
        detail = {"results": [plain(each) for each in weighed], "gpu_uuids": uuids}
        summary = "; ".join(problems) if problems else f"{len(results)} checks OK, {len(uuids)} GPUs"
        return OrderResult(not problems, summary[:500], detail)

    return verb


def problem(weighed: Weighed) -> str | None:
    """Reason why a result keeps a node out of service; a warning does not."""
    result = weighed.result
    if result.verdict is Verdict.UNKNOWN:
        return f"{result.check} {result.component} unknown: {result.summary}"
    if result.bad and result.severity is not Severity.WARNING:
        return f"{result.check} {result.component} {result.code}: {result.summary}"
    return None


def plain(weighed: Weighed) -> dict[str, Any]:
    """The result for an order's outcome: the finding and its component, without the evidence."""
    keep = ("check", "verdict", "component", "code", "severity", "remedy", "summary")
    return {key: value for key, value in weighed.result.plain().items() if key in keep and value not in (None, "")}


def probe_peer(neighbours: NeighbourProbes, slurm: SlurmNode) -> OrderHandler:
    """Probe the port of another node's slurmd from here. A refusal is an answer of the machine, but not of the port.

    Only a node at its address in Slurm is connected to. Where it does not answer, ``control`` shows whether another node that the order
    names is reachable at that moment, and ``reached_before_s`` when this one was last reached: without both, the failure may be this
    node's own."""

    def verb(order: ReceivedOrder) -> OrderResult:
        timeout_s = number(order.args, "timeout_s", 2.0, _PROBE_TIMEOUT_MAX_S)
        name, target = _node_in(order.args, neighbours, slurm)
        began_s = time.monotonic()
        failure = connect(target, timeout_s)
        waited = {"waited_s": round(time.monotonic() - began_s, 3)}
        if alive(failure):
            neighbours.note(name, target)
        if failure is None:
            return OrderResult(True, f"{name} ({target[0]}:{target[1]}) answered", waited)
        detail: dict[str, Any] = {"error": str(failure)[:200], **waited}
        code = errno.ETIMEDOUT if isinstance(failure, TimeoutError) else failure.errno
        if code in _SAYS_SOMETHING_OF_THE_PEER:
            detail["errno"] = code
        if (before_s := neighbours.reached_before_s(name, target)) is not None:
            detail["reached_before_s"] = round(before_s, 1)
        control = order.args.get("control")
        if isinstance(control, dict):
            _name, other = _node_in(control, neighbours, slurm)
            detail["control"] = "reached" if alive(connect(other, timeout_s)) else "unreached"
        return OrderResult(False, f"{name} ({target[0]}:{target[1]}) not reached: {failure}", detail)

    return verb


def _node_in(args: Mapping[str, Any], neighbours: NeighbourProbes, slurm: SlurmNode) -> tuple[str, NeighbourAddress]:
    """The node that an order names, and its address in Slurm. The address that Slurm reported earlier for a neighbour is reused: when nodes
    die, slurmctld is busy or away.

    Raises Rejected where there is no node of that name, or the order gives another address; Unavailable."""
    name, said = args.get("node"), _target(args)
    if not isinstance(name, str) or not name:
        raise Rejected(f"the order names no node of this cluster, only the address {said[0][:80]}:{said[1]}")
    if neighbours.known(name) == said:
        return name, said
    target = slurm.address_of(name)
    if target != said:
        raise Rejected(f"node {name} is at {target[0]}:{target[1]} in Slurm, not at {said[0][:80]}:{said[1]}")
    return name, target


def _target(args: Mapping[str, Any]) -> NeighbourAddress:
    address, port = args.get("address"), args.get("port")
    if not isinstance(address, str) or not address or isinstance(port, bool) or not isinstance(port, int):
        raise Rejected("arguments node, address and port are needed")
    return address, port


def end_leftover_step(slurm: SlurmNode, least_grace_s: float = LEAST_GRACE_S) -> OrderHandler:
    """End slurmstepd processes of a job that have nothing left to do, when the job's run is over according to slurmctld.

    Only processes that existed before slurmctld was asked: nothing of a run that starts after its answer is ended. None of ``batch`` or
    ``extern``. Each must have no live task both before and after the grace, which is never shorter than ``least_grace_s``, so that one
    that is just ending is left alone. Tasks that are just being killed get ``wait_s`` to end; the grace starts after that."""

    def verb(order: ReceivedOrder) -> OrderResult:
        job_id = job_id_of(order.args)
        grace_s = max(number(order.args, "grace_s", 1.0, _GRACE_MAX_S), least_grace_s)
        until_s = time.monotonic() + number(order.args, "wait_s", 0.0, _GRACE_MAX_S)
        steps = [step for step in slurm.stepds(job_id) if step.step not in _NEVER_ENDED]
        if steps and (seen := job_seen(slurm, job_id)).state not in RUN_OVER:
            raise Rejected(f"job {job_id} is {seen.state}, its run is not over")
        idle = _without_tasks(steps, grace_s)
        while len(idle) < len(steps) and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
            steps = [step for step in steps if start_ticks(step.pid) == step.started_ticks]
            idle = _without_tasks(steps, grace_s)
        if idle:
            time.sleep(grace_s)
        ended = [
            step for step in idle if live_tasks(step) == 0 and send_signal(step.pid, signal.SIGKILL, step.started_ticks)
        ]
        busy = sorted(step.step for step in steps if step not in idle)
        detail = {
            "ended": [f"{job_id}.{step.step}" for step in ended],
            "pids": [step.pid for step in ended],
            "busy": busy,
        }
        if busy:
            return OrderResult(False, f"steps of job {job_id} still have tasks: {', '.join(busy)}", detail)
        return OrderResult(True, f"ended {len(ended)} leftover steps of job {job_id}", detail)

    return verb


def _without_tasks(steps: list[Stepd], age_at_least_s: float) -> list[Stepd]:
    return [step for step in steps if age_s(step) >= age_at_least_s and live_tasks(step) == 0]


def ask_job_to_save(slurm: SlurmNode, registered: SaveSignals) -> OrderHandler:
    """Send the job's processes on this node the signal that its owner chose: the one that the job registered here; if none, the one in a
    process's own environment; if none, SIGUSR1 or SIGUSR2. Only to processes of that owner that handle the signal, since it would end the
    others (above all a batch script's shell)."""

    def verb(order: ReceivedOrder) -> OrderResult:
        job_id = job_id_of(order.args)
        wanted = order.args.get("signal", "USR1")
        uid = order.args.get("uid")
        chosen = signal_named(wanted)
        if chosen is None:
            raise Rejected(f"signal {str(wanted)[:20]!r} is not one of {', '.join(sorted(SAVE_SIGNALS))}")
        if isinstance(uid, bool) or not isinstance(uid, int) or uid < 0:
            raise Rejected("argument uid (the job's owner) is needed")
        pids = slurm.job_pids(job_id).get(job_id, frozenset())
        owned = [(pid, ticks) for pid in sorted(pids) if (ticks := _owned_by(pid, uid)) is not None]
        if not owned:
            raise Rejected(f"job {job_id} of uid {uid} has no process on this node")
        agreed = _agreed(owned, chosen, registered.of(job_id, uid), job_id)
        told = [pid for pid, ticks in agreed if handles(pid, chosen) and send_signal(pid, chosen, ticks)]
        text = f"sent {chosen.name} to {len(told)} processes of job {job_id} that handle it"
        return OrderResult(bool(told), text, {"pids": told})

    return verb


def _agreed(
    owned: list[tuple[int, int]], chosen: signal.Signals, registered: signal.Signals | None, job_id: int
) -> list[tuple[int, int]]:
    """Processes of a job that may be sent this signal. Raises Rejected where there is none.

    A job of several nodes may register on only one of them, but saves on all or on none. On the others, the order may name a signal
    that only the job gives a meaning (SIGUSR1, SIGUSR2)."""
    if registered is not None:
        if registered is not chosen:
            raise Rejected(f"job {job_id} registered {registered.name} on this node, not {chosen.name}")
        return owned
    named = {pid: signal_in_environment(pid) for pid, _ticks in owned}
    agreed = owned if chosen in USERS_OWN else []
    if any(named.values()):
        agreed = [(pid, ticks) for pid, ticks in owned if named[pid] is chosen]
    if not agreed:
        raise Rejected(
            f"job {job_id} registered no save signal on this node, and none of its processes has "
            f"{SAVE_SIGNAL_ENV}={chosen.name.removeprefix('SIG')} in its environment"
        )
    return agreed


def _owned_by(pid: int, uid: int) -> int | None:
    """Start time of the process if all its ids are the user's and it is no slurmstepd."""
    try:
        mine = process_files.uids(pid) == {uid} and process_files.name(pid) != "slurmstepd"
    except (OSError, ValueError):
        return None
    return start_ticks(pid) if mine else None
