"""Order to end the remaining processes of a stuck job on its faulty node, so that Slurm releases the job.

Setting the node DOWN would release it too, but on Slurm 22.05 this breaks the job's next run (docs/slurm-notes.md)."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil

from holdfast.agent.node.processes import (
    RUN_OVER,
    EpilogProcess,
    JobInSlurm,
    SlurmNode,
    Stepd,
    age_s,
    job_seen,
    send_signal,
    start_ticks,
    task_pids,
)
from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.verbs import job_id_of, number
from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.ids import held_reason, hold_of_name, incident_of_reason

_GRACE_MAX_S = 30.0
LETS_GO_WITHIN_S = 12.0
"""slurmd checks for the end of the steps after 1, 2, 4, 8 and then every 10 s (22.05, tried), and runs its epilog only then."""
_LOOK_EVERY_S = 0.3
_MARKS = "*~#!%$@^-"
"""Suffixes that scontrol appends to a node's state."""
_RESERVATION = re.compile(r"^ReservationName=(\S+) .*? Nodes=(\S+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """This node as slurmctld shows it; a node that Holdfast holds by a reservation counts as drained by Holdfast."""

    flags: frozenset[str]
    reason: str


def end_stuck_job(slurm: SlurmNode) -> OrderHandler:
    """Send SIGKILL to the job's tasks here, then to its slurmstepd processes, then to an epilog older than ``grace_s``.

    Only on a node that Holdfast drained, and only when the run is over according to slurmctld. ok: slurmctld no longer waits for this
    node."""

    def verb(order: ReceivedOrder) -> OrderResult:
        job_id = job_id_of(order.args)
        restarts = order.args.get("restarts")
        if isinstance(restarts, bool) or not isinstance(restarts, int) or restarts < 0:
            raise Rejected(f"argument restarts must be a number of restarts, not {restarts!r}")
        grace_s = number(order.args, "grace_s", 5.0, _GRACE_MAX_S)
        why_not = _why_not(job_seen(slurm, job_id), node_seen(slurm), restarts)
        if why_not is not None:
            raise Rejected(f"job {job_id}: {why_not}")
        return _end(slurm, job_id, grace_s)

    return verb


def _why_not(job: JobInSlurm, node: NodeSeen, restarts: int) -> str | None:
    """Reason why the job's processes here must not be ended; None: they may be."""
    if not drained_by_us(node):
        return f"the node is not drained by Holdfast ({'+'.join(sorted(node.flags))}: {node.reason[:80]!r})"
    if job.state not in RUN_OVER:
        return f"it is {job.state}, its run is not over"
    if not restarts <= job.restarts <= restarts + 1:  # Restarts grows with the requeue, before the old run is gone
        return f"its run is another one ({job.restarts} restarts, meant was {restarts})"
    return None


def drained_by_us(node: NodeSeen) -> bool:
    """Whether a drain by Holdfast keeps jobs from starting on the node."""
    return "DRAIN" in node.flags and incident_of_reason(node.reason) is not None


def node_seen(slurm: SlurmNode) -> NodeSeen:
    """Read the node. Raises Unavailable when slurmctld does not answer."""
    head, _, tail = slurm.show("node", slurm.node).partition(" Reason=")
    state = re.search(r" State=(\S+)", head)
    if state is None or not head.startswith(f"NodeName={slurm.node} "):
        raise Unavailable(f"scontrol does not say how node {slurm.node} is")
    flags = frozenset(word.rstrip(_MARKS) for word in state.group(1).split("+"))
    incident = _held_for(slurm) if "RESERVED" in flags and "DRAIN" not in flags else None
    if incident is not None:
        return NodeSeen(flags | {"DRAIN"}, held_reason(incident))
    return NodeSeen(flags, tail.strip())


def _held_for(slurm: SlurmNode) -> str | None:
    """The incident for which Holdfast holds this node by a reservation, where it does so in place of a drain."""
    for name, nodes in _RESERVATION.findall(slurm.show("reservation")):
        kept = hold_of_name(name)
        if kept is not None and kept[1] == nodes == slurm.node:
            return kept[0]
    return None


@dataclass(slots=True)
class _Ended:
    """Processes that were sent SIGKILL, with start times."""

    tasks: set[tuple[int, int]] = field(default_factory=set)
    steps: dict[tuple[int, int], str] = field(default_factory=dict)
    epilogs: set[tuple[int, int]] = field(default_factory=set)

    def step(self, step: Stepd) -> None:
        """End a step, its tasks first: once slurmstepd is gone, the tasks can no longer be attributed."""
        self.tasks |= _kill(_members(step, lambda: task_pids(step)))
        if send_signal(step.pid, signal.SIGKILL, step.started_ticks):
            self.steps[step.pid, step.started_ticks] = step.step

    def epilog(self, epilog: EpilogProcess) -> None:
        """End an epilog, the script first, so that it starts nothing more; slurmd reports to slurmctld when it is gone."""
        below = _members(epilog, lambda: _below(epilog))
        if send_signal(epilog.pid, signal.SIGKILL, epilog.started_ticks):
            self.epilogs.add((epilog.pid, epilog.started_ticks))
            _kill(below)

    def detail(self, job_id: int) -> Mapping[str, Any]:
        everything = {*self.tasks, *self.steps, *self.epilogs}
        return {
            "ended": [f"{job_id}.{name}" for name in sorted(self.steps.values())],
            "tasks": sorted(pid for pid, _ in self.tasks),
            "epilogs": sorted(pid for pid, _ in self.epilogs),
            "survive": sorted(pid for pid, ticks in everything if _lives(pid, ticks)),
        }


def _end(slurm: SlurmNode, job_id: int, grace_s: float) -> OrderResult:
    ended = _Ended()
    deadline_s = time.monotonic() + grace_s + LETS_GO_WITHIN_S
    while (waits := _round(slurm, job_id, grace_s, ended)) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)
    detail = ended.detail(job_id)
    text = f"ended {len(ended.steps)} steps, {len(ended.tasks)} tasks and {len(ended.epilogs)} epilogs of job {job_id}"
    if waits:
        return OrderResult(False, f"{text}; slurmctld still waits for the node", detail)
    return OrderResult(True, text, detail)


def _round(slurm: SlurmNode, job_id: int, grace_s: float, ended: _Ended) -> bool:
    """End what is there now; whether slurmctld still waits for this node's report."""
    steps, epilogs = slurm.stepds(job_id), slurm.epilogs(job_id)
    for step in steps:
        ended.step(step)
    for epilog in epilogs:
        if age_s(epilog) >= grace_s:
            ended.epilog(epilog)
    if steps or epilogs:
        return True
    try:
        return "COMPLETING" in node_seen(slurm).flags and job_seen(slurm, job_id).state == "COMPLETING"
    except Unavailable:
        return True


def _below(epilog: EpilogProcess) -> set[int]:
    """The script's children, and all of its process group where it leads one (slurmd makes it do so)."""
    try:
        below = {child.pid for child in psutil.Process(epilog.pid).children(recursive=True)}
        if os.getpgid(epilog.pid) == epilog.pid:
            below |= {pid for pid in psutil.pids() if pid != epilog.pid and _group_of(pid) == epilog.pid}
    except (psutil.Error, ProcessLookupError):
        return set()
    return below


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _members(head: Stepd | EpilogProcess, listed: Callable[[], Collection[int]]) -> set[tuple[int, int]]:
    """Processes listed below the head, with start times. They are listed again, and the head is checked, after the times were read, so
    that no pid can belong to another process by then."""
    named = {(pid, ticks) for pid in listed() if (ticks := start_ticks(pid)) is not None}
    still = listed()
    return {one for one in named if one[0] in still} if start_ticks(head.pid) == head.started_ticks else set()


def _kill(named: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(pid, ticks) for pid, ticks in named if send_signal(pid, signal.SIGKILL, ticks)}


def _lives(pid: int, ticks: int) -> bool:
    """Whether it still exists although it was killed: it is in a driver call that does not return."""
    try:
        return start_ticks(pid) == ticks and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
