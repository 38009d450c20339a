"""The cluster of a replay as the decisions see it: nodes, one large job, the pool of spares, incidents, brakes.

It holds what changes, and makes the world that a decision is asked about; it decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.decisions.incidents import node_history
from holdfast.model.actions import steps
from holdfast.model.actions.action import Drain, Intent, IntentState, Proposal
from holdfast.model.actions.steps import StepKey
from holdfast.model.agents.report import AgentView
from holdfast.model.background import Background, Outage
from holdfast.model.book import Book, Brake, World
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import NewIncident, open_incident
from holdfast.model.policies.lookback import BRAKE_LONG_S
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey, Node, Reservation
from holdfast_checks.result import Remedy, Severity

_ALWAYS_S = 1e9
"""Interval of heartbeats: each agent reports for the whole replay. A trace does not say which node was silent."""
_PARTITION = "replay"


@dataclass(frozen=True, slots=True)
class Fleet:
    """What stays the same."""

    names: tuple[str, ...]
    policy: Policy
    begins: datetime
    gpus: int


class ReplaySite:
    """State between two turns."""

    def __init__(self, fleet: Fleet, job_nodes: int) -> None:
        self.fleet, self.wanted = fleet, job_nodes
        self._policy = replace(fleet.policy, mode=Mode.ACT)
        self.job_nodes = set(fleet.names[:job_nodes])
        self.out: set[str] = set()
        self.brakes: dict[str, Brake] = {}
        self.incidents: dict[str, Incident] = {}
        """Those whose drain is not done yet, and those of the last hour: what the brakes count."""
        self.drained: dict[str, Intent] = {}
        self.outages: dict[str, Outage] = {}
        """By incident, in the order of time."""
        self._agents = {n: (AgentView(n, "", "boot", fleet.begins, fleet.begins, _ALWAYS_S),) for n in fleet.names}
        self._idle = {
            n: Node(n, "IDLE", frozenset(), partitions=(_PARTITION,), gpu_count=fleet.gpus) for n in fleet.names
        }
        self._busy = {n: replace(node, base_state="ALLOCATED") for n, node in self._idle.items()}

    @property
    def pool(self) -> tuple[str, ...]:
        return tuple(n for n in self.fleet.names if n not in self.job_nodes and n not in self.out)

    @property
    def missing(self) -> int:
        """Nodes that the job still waits for."""
        return self.wanted - len(self.job_nodes)

    def open(self, number: int, node: str, cause: str, at: datetime) -> None:
        """A fault was found: its incident, and the outage that counts for the node's history."""
        new = NewIncident(
            id=f"r{number}", kind=IncidentKind.FAULT, node=node, severity=Severity.FATAL, remedy=Remedy.REPLACE,
            check="trace", headline=cause or "fault", fault_at=at,
        )  # fmt: skip
        self.incidents[new.id], _ = open_incident(new, IncidentState.OPEN, at)
        self.outages[new.id] = Outage(node, new.id, "", new.headline, at)
        self.out.add(node)
        self.job_nodes.discard(node)

    def back(self, node: str, at: datetime) -> None:
        self.out.discard(node)
        for key, outage in reversed(self.outages.items()):
            if outage.node == node:
                self.outages[key] = replace(outage, back_at=at, over=True)
                return

    def undrained(self) -> tuple[Proposal, ...]:
        """Drains that are proposed now: of each incident that has none yet."""
        return tuple(
            Proposal(i.id, steps.drain(i.node), Drain(i.node, i.headline), i.headline)
            for i in self.incidents.values()
            if i.id not in self.drained
        )

    def drain(self, proposals: Iterable[Proposal], at: datetime) -> None:
        """These drains are done."""
        for p in proposals:
            key = StepKey(p.incident_id, p.step, 1).text
            self.drained[p.incident_id] = Intent(key, p.incident_id, p.action, p.reason, 0, IntentState.DONE, at)

    def forget(self, at: datetime) -> None:
        """What no brake counts any more. The histories stay for as long as a verdict on a node looks back."""
        since = at - timedelta(seconds=BRAKE_LONG_S)
        old = [i for i in self.incidents if i in self.drained and self.drained[i].planned_at <= since]
        for incident_id in old:
            del self.incidents[incident_id], self.drained[incident_id]

    def world(self, at: datetime, judged: Collection[str] = ()) -> World:
        """``judged``: nodes whose history is to be judged (lemons); of the others no verdict is there, nor asked for."""
        intents = {i.key: i for i in self.drained.values()}
        book = Book(incidents=dict(self.incidents), intents=intents, brakes=dict(self.brakes))
        view, policy, history = self.view(at), self._policy, self._policy.history
        since = at - timedelta(seconds=max(history.window_s + history.lemon_s, policy.spares.rate_window_s))
        known = tuple(o for o in self.outages.values() if o.out_at >= since)
        theirs = [o for o in known if o.node in judged]
        lemons = node_history.lemons(theirs, {}, {}, history, policy.repair.fresh_s, at)
        background = Background(read_at=at, since=self.fleet.begins, outages=known, lemons=lemons)
        return World(at, policy, book, view, agents=self._agents, background=background)

    def view(self, at: datetime) -> ClusterView:
        job = self.job(at)
        nodes = {
            n: self._idle[n] if n not in self.job_nodes and n not in self.out else self._busy[n]
            for n in self.fleet.names
        }
        name = self.fleet.policy.spare_reservation
        return ClusterView("replay", at, nodes, {job.key.job_id: job}, {name: Reservation(name, self.pool)})

    def job(self, at: datetime) -> Job:
        held = tuple(n for n in self.fleet.names if n in self.job_nodes)
        return Job(
            JobKey("replay", 1, self.fleet.begins), "train", "user", 1000, "", _PARTITION, "", "RUNNING", "", restarts=0, requeue=True,
            batch=True, num_nodes=len(held), nodes=held, required_nodes=(), excluded_nodes=(), start_time=at,
        )  # fmt: skip
