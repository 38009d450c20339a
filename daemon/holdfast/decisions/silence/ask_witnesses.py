"""Orders to witnesses about a silent node, and the cleanup of leftovers on the survivors of its job. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.common import attempted_steps, node_agents, slurm_view
from holdfast.decisions.common.part import Part
from holdfast.decisions.death import domains, evidence
from holdfast.decisions.death.verdict import LivingPeer, TcpAnswered
from holdfast.decisions.silence import common_cause, silent_nodes
from holdfast.model.actions import steps
from holdfast.model.actions.action import CheckInstance, Intent, Proposal, Verb
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, Recovery, RecoveryPhase
from holdfast.model.slurm.cluster import ClusterView, Node

_ORDER_LIFE_S = 10.0
_DEAD_PAUSE_S = 60.0
"""Between two questions to the provider about a node that was found dead."""
_TASKS_END_S = 5.0
"""Time that an agent waits for a survivor's tasks to be gone; Slurm kills them with the DOWN."""
_DOUBTED = 2
"""Number of further peers asked in turn if the peers contradict each other."""
_UNASKED = object()
"""A peer that has not answered yet."""
_MANY = 64
"""Nodes of a job above which only those are asked that are COMPLETING still after the grace."""


def ask_witnesses(world: World) -> Part:
    """Probe orders and provider questions for silent nodes, and the end of leftover steps after a DOWN."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    proposals: list[Proposal] = []
    silent = silent_nodes.silent_nodes(world) if world.book.open_incidents() else ()
    questions = silent_nodes.to_ask_about(world, view, silent)
    if questions and silent_nodes.freeze_reason(world, silent) is None:
        held = common_cause.braked(common_cause.groups(world, silent))
        peers = _Peers(world, view)
        for incident in questions:
            if not incident.dead and incident.node not in held:
                proposals += peers.probes(incident)
            proposals += _ask_provider(world, incident)
    if world.policy.death.end_leftover_steps:
        for recovery in world.book.recoveries.values():
            proposals += _leftovers(world, view, recovery)
    return Part(tuple(proposals))


def _ask_provider(world: World, incident: Incident) -> list[Proposal]:
    if not world.can.status or not incident.serving_id:
        return []
    step = steps.check_instance(incident.serving_id)
    off = evidence.power_off(world, incident) is not None
    settled = incident.dead and not (off and not evidence.off_lasts(world, incident))
    pause_s = _DEAD_PAUSE_S if settled else world.policy.death.reprobe_s
    if not _may_ask(world, world.book.attempts(incident.id, step), pause_s):
        return []
    question = CheckInstance(incident.serving_id, incident.node)
    return [Proposal(incident.id, step, question, f"{incident.node} is silent: how does the provider see it?")]


def _may_ask(world: World, attempts: tuple[Intent, ...], pause_s: float) -> bool:
    """A witness is asked again only after a pause; a question in flight is not repeated."""
    latest = attempted_steps.last(attempts)
    if latest is None:
        return True
    pause = timedelta(seconds=pause_s)
    return latest.settled and (latest.finished_at is None or world.now - latest.finished_at >= pause)


class _Peers:
    """Witnesses to ask whether a silent node can be reached; read from the world once for all nodes."""

    def __init__(self, world: World, view: ClusterView) -> None:
        self._world, self._view = world, view
        self._domains = domains.domains(view, world.policy.death, world.background.addresses)
        self._domain = {name: domain for domain, names in self._domains.items() for name in names}
        self._agents = domains.all_on_duty(world)

    def probes(self, incident: Incident) -> list[Proposal]:
        """Orders to reach the node, each with another node to reach at that moment."""
        world, node, death = self._world, self._view.nodes[incident.node], self._world.policy.death
        proposals = []
        for peer in self._asked(incident):
            step = steps.probe_peer(peer)
            if not _may_ask(world, world.book.attempts(incident.id, step), death.reprobe_s):
                continue
            args: dict[str, object] = {**_named(node), "timeout_s": death.probe_timeout_s}
            control = self._control(incident.node, peer)
            if control is not None:
                args["control"] = _named(control)
            action = node_agents.order_to(self._agents[peer], Verb.PROBE_PEER, _ORDER_LIFE_S, args)
            proposals.append(Proposal(incident.id, step, action, f"{incident.node} is silent: can {peer} reach it?"))
        return proposals

    def _asked(self, incident: Incident) -> list[str]:
        """Those of its failure domain that had reached it before, as far as they report and their answers say something. Where these are
        too few, or contradict each other, others in turn, whose success is a sign of life."""
        node, most = incident.node, self._world.policy.death.peers
        domain = self._domain.get(node)
        watchers = domains.watchers(self._domains[domain], node) if domain is not None else ()
        said = evidence.peers_said(self._world, self._view, incident)
        reached = sum(isinstance(each, TcpAnswered) for each in said.values())
        doubted = reached > 0 and any(isinstance(each, LivingPeer) for each in said.values())
        if doubted:
            most += reached
        chosen = [n for n in watchers if n in self._agents and said.get(n, _UNASKED) is not None][:most]
        return chosen + self._in_turn(incident, watchers, max(most - len(chosen), _DOUBTED if doubted else 0))

    def _in_turn(self, incident: Incident, but: tuple[str, ...], count: int) -> list[str]:
        """Other nodes, at most ``count``, first those that share a job with it; the next ones after each ``reprobe_s``."""
        sharing = {n for job in self._view.jobs_on(incident.node) for n in job.nodes}
        rest = sorted((n for n in self._living(incident.node, *but)), key=lambda n: (n not in sharing, n))
        if count <= 0 or not rest:
            return []
        turn = int(evidence.silent_s(self._world, incident) // self._world.policy.death.reprobe_s)
        start = turn * count % len(rest)
        return (rest[start:] + rest[:start])[:count]

    def _living(self, *but: str) -> list[str]:
        return [n for n in sorted(self._agents) if n not in but and n in self._view.nodes]

    def _control(self, node: str, peer: str) -> Node | None:
        """A node that lives, of the same failure domain where there is one."""
        living = [n for n in self._living(node, peer) if self._view.nodes[n].responding]
        name = min(living, key=lambda n: (self._domain.get(n) != self._domain.get(node), n), default=None)
        return self._view.nodes[name] if name is not None else None


def _named(node: Node) -> dict[str, object]:
    """The node, and where it is in Slurm: an agent that asks Slurm itself goes by the name, an older one by the rest."""
    return {"node": node.name, "address": node.address, "port": node.port}


def _leftovers(world: World, view: ClusterView, recovery: Recovery) -> list[Proposal]:
    """Orders to end leftover steps: after a DOWN a survivor's slurmstepd can wait a minute for the dead node's report, and the whole job
    stays COMPLETING.

    The order is sent at once: the agent itself waits until the step's tasks are gone and the grace is over."""
    # Restarts grows at the DOWN itself: the recovery is RESTARTING while the old run is still COMPLETING.
    if recovery.phase not in (RecoveryPhase.STOPPING, RecoveryPhase.RESTARTING) or not recovery.via_down:
        return []
    job = view.jobs.get(recovery.job.job_id)
    if job is None or job.state != "COMPLETING":
        return []
    grace_s = world.policy.death.leftover_grace_s
    for incident in world.book.open_incidents():
        down = _down_of(world, incident, recovery)
        if down is None or (len(job.nodes) > _MANY and world.now - down < timedelta(seconds=grace_s)):
            continue
        args = {"job_id": job.key.job_id, "grace_s": grace_s, "wait_s": _TASKS_END_S}
        survivors = [n for n in job.nodes if n != incident.node and n in view.nodes and view.nodes[n].completing]
        reason = (
            f"job {job.key.job_id} is COMPLETING after node {incident.node} was set DOWN; a leftover step may hold it"
        )
        proposals = []
        for name in survivors:
            agent = node_agents.agent_of(world, name)
            step = steps.end_step(name, job.key, recovery.restarts_before)
            if agent is not None and not world.book.attempts(incident.id, step):
                action = node_agents.order_to(agent, Verb.END_STEP, _ORDER_LIFE_S, args)
                proposals.append(Proposal(incident.id, step, action, reason))
        return proposals
    return []


def _down_of(world: World, incident: Incident, recovery: Recovery) -> datetime | None:
    """When the dead node of this incident was set DOWN under that run; None: it was not."""
    if not incident.dead or incident.node not in recovery.nodes_before:
        return None
    down = attempted_steps.done(world.book.attempts(incident.id, steps.set_down(incident.node)))
    return down.finished_at if down is not None else None
