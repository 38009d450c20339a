"""What is known of a silent node, in words for an operator. Pure; no decision reads it."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.controller import facts
from holdfast.controller.death import evidence
from holdfast.controller.death.verdict import LivingPeer, PowerOff, SeenRunning, TcpAnswered
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.incident import Incident


def known(world: World, view: ClusterView, incident: Incident) -> str:
    """``its kernel answers the head node on port 6818; peers n4, n5 do not reach it; Slurm shows it responding``."""
    parts = (*_head(world, view, incident), *_peers(world, view, incident), *_others(world, view, incident))
    return "; ".join(parts)


def _head(world: World, view: ClusterView, incident: Incident) -> Iterator[str]:
    probe, port = world.head.get(incident.node), view.nodes[incident.node].port
    if probe is None or probe.at <= evidence.last_heard(world, incident):
        return
    if probe.answered:
        yield f"its kernel answers the head node on port {port}"
    else:
        yield f"the head node does not reach its port {port}"


def _peers(world: World, view: ClusterView, incident: Incident) -> Iterator[str]:
    said = evidence.peers_said(world, view, incident)
    for kind, words in ((TcpAnswered, "reached from"), (LivingPeer, "not reached from"), (type(None), None)):
        names = sorted(peer for peer, told in said.items() if isinstance(told, kind))
        if names and words is not None:
            yield f"{words} its peers {', '.join(names)}"
        elif names:
            yield f"its peers {', '.join(names)} cannot tell (an agent of an older release, or never reached it before)"


def _others(world: World, view: ClusterView, incident: Incident) -> Iterator[str]:
    node = view.nodes[incident.node]
    yield f"Slurm shows it {'responding' if node.responding else 'not responding'} ({node.base_state})"
    found = evidence.gather(world, view, incident)
    off = next((e for e in found if isinstance(e, PowerOff)), None)
    if off is not None:
        yield f"its provider shows it {off.state}"
    elif any(isinstance(e, SeenRunning) for e in found):
        yield "its provider shows it running, its checks passing"
    elif world.can.status:
        yield "its provider says nothing that counts"
    for job in view.jobs_on(incident.node):
        if facts.holds(job):
            advances = evidence.advances(world, job, frozenset({incident.node}))
            yield f"job {job.key.job_id} {'advances on its other nodes' if advances else 'is on it'}"
