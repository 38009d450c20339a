"""Facts about a silent node for an operator, and a text of them. Pure; no decision reads it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.decisions.common import slurm_view
from holdfast.decisions.death import evidence
from holdfast.decisions.death.evidence import ProviderAnswer
from holdfast.decisions.death.verdict import DeathVerdict, LivingPeer, StepsAdvance, TcpAnswered, judge
from holdfast.model.agents.reach import HeadProbe
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast.model.slurm.cluster import ClusterView, Node


@dataclass(frozen=True, slots=True)
class JobOnNode:
    """A job that holds the node, and what its other nodes report."""

    job_id: int
    newest_step_at: datetime | None
    """When they reported the newest step, however long ago; None: they never did, or there are none."""
    advances: bool
    """It made steps after the node had fallen silent, and still does: a sign of life of the node."""

    @property
    def text(self) -> str:
        if self.advances:
            return f"job {self.job_id} advances on its other nodes (newest step {_at(self.newest_step_at)})"
        if self.newest_step_at is not None:
            return f"job {self.job_id} is on it, newest step of its other nodes {_at(self.newest_step_at)}"
        return f"job {self.job_id} is on it and reports no steps"


@dataclass(frozen=True, slots=True)
class Known:
    """Evidence for and against the death of a node, and from when it is."""

    verdict: DeathVerdict
    """Verdict on the current evidence."""
    alive: bool
    """There is a sign of life among it."""
    silent_since: datetime
    head: HeadProbe | None
    """None: the head node has not tried to reach it since it fell silent."""
    peers: Mapping[str, TcpAnswered | LivingPeer | None]
    """Answers by peer name; None: inconclusive."""
    slurm: Node
    provider: ProviderAnswer | None
    """Since it fell silent; None: it did not answer."""
    provider_tells: bool
    """There is a provider that can be asked."""
    jobs: tuple[JobOnNode, ...]

    @property
    def text(self) -> str:
        """``its kernel answers the head node on port 6818 (12:04:11); not reached from its peers n4, n5 (12:04:09); Slurm shows it
        responding (MIXED)``. Times are UTC."""
        return "; ".join((*self._head(), *self._peers(), *self._others()))

    def _head(self) -> Iterator[str]:
        if self.head is not None and self.head.answered:
            yield f"its kernel answers the head node on port {self.slurm.port} ({_at(self.head.at)})"
        elif self.head is not None:
            yield f"the head node does not reach its port {self.slurm.port} ({_at(self.head.at)})"

    def _peers(self) -> Iterator[str]:
        for kind, words in ((TcpAnswered, "reached from"), (LivingPeer, "not reached from")):
            told = {peer: said for peer, said in self.peers.items() if isinstance(said, kind)}
            if told:
                newest = max(said.at for said in told.values())
                yield f"{words} its peers {', '.join(sorted(told))} ({_at(newest)})"
        names = sorted(peer for peer, said in self.peers.items() if said is None)
        if names:
            yield f"its peers {', '.join(names)} have no verdict (an agent of an older release, or never reached it before)"

    def _others(self) -> Iterator[str]:
        yield f"Slurm shows it {'responding' if self.slurm.responding else 'not responding'} ({self.slurm.base_state})"
        if self.provider is not None:
            yield self.provider.text
        elif self.provider_tells:
            yield "its provider has not answered about it since"
        else:
            yield "no provider can be asked whether its power is off"
        yield from (job.text for job in self.jobs)


def known(world: World, view: ClusterView, incident: Incident) -> Known:
    """Everything that is known of the incident's node, which Slurm shows."""
    node, probe = view.nodes[incident.node], world.head.get(incident.node)
    since, found = evidence.last_heard(world, incident), evidence.gather(world, view, incident)
    return Known(
        verdict=judge(found),
        alive=evidence.alive(found),
        silent_since=since,
        head=probe if probe is not None and probe.at > since else None,
        peers=evidence.peers_said(world, view, incident),
        slurm=node,
        provider=evidence.provider_answer(world, incident),
        provider_tells=world.can.status,
        jobs=tuple(_seen(world, view, incident, frozenset(e.job_id for e in found if isinstance(e, StepsAdvance)))),
    )


def _seen(world: World, view: ClusterView, incident: Incident, advance: Collection[int]) -> Iterator[JobOnNode]:
    away = frozenset({incident.node})
    for job in view.jobs_on(incident.node):
        if slurm_view.holds(job):
            yield JobOnNode(job.key.job_id, evidence.newest_step_at(world, job, away), job.key.job_id in advance)


def _at(at: datetime | None) -> str:
    return f"{at:%H:%M:%S}" if at is not None else "?"
