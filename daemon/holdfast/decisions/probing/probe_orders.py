"""Orders of pair probes, two each, and the nodes that could take part in the next one. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable

from holdfast.decisions.common import node_agents, node_incidents, slurm_view
from holdfast.decisions.probing.pairs import Probe, ProbeOutcome
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, Proposal, SendOrder, Verb
from holdfast.model.agents.answers import PairWord, pair_gigabytes_s, pair_word
from holdfast.model.book import World
from holdfast.model.slurm.cluster import ClusterView

PAIR_CHECK = "probe.pair"
_MOST_TRUSTED = 64
_START_S = {"tcp": 30.0}
"""From the order to the first byte, with the time that an agent may be late; PyTorch needs longer."""
_START_TORCH_S = 180.0


def all_orders(world: World) -> list[Intent]:
    """Every side of every probe in the state that was not withheld."""
    return [
        intent
        for intent in world.book.intents.values()
        if isinstance(intent.action, SendOrder) and intent.action.verb is Verb.PROBE_PAIR and intent.is_attempt
    ]


def name_of(order: Intent) -> str:
    """Name of the probe that the order is a side of, as its incident counts them."""
    return str(order.action.args["probe"]) if isinstance(order.action, SendOrder) else ""


def probes_of(world: World, orders: Iterable[Intent]) -> list[Probe]:
    """The probes that these orders are sides of."""
    sides: dict[tuple[str, str], dict[str, Intent]] = {}
    for order in orders:
        assert isinstance(order.action, SendOrder)  # noqa: S101 - see all_orders
        sides.setdefault((order.incident_id, name_of(order)), {})[str(order.action.args["role"])] = order
    found = [_probe(world, both) for _, both in sorted(sides.items())]
    return [probe for probe in found if probe is not None]


def _probe(world: World, both: dict[str, Intent]) -> Probe | None:
    listen, connect = both.get("listen"), both.get("connect")
    if listen is None or connect is None:
        return None
    assert isinstance(listen.action, SendOrder)  # noqa: S101
    assert isinstance(connect.action, SendOrder)  # noqa: S101
    return Probe(listen.action.node, connect.action.node, _outcome(world, listen, connect))


def _outcome(world: World, *sides: Intent) -> ProbeOutcome:
    if not all(side.settled for side in sides):
        return ProbeOutcome.RUNNING
    words = {pair_word(side.result) for side in sides}
    if not words <= {PairWord.DONE, PairWord.FAILED}:
        return ProbeOutcome.UNKNOWN  # not carried out, no answer, or none that makes sense
    if PairWord.FAILED in words:
        return ProbeOutcome.BAD
    return ProbeOutcome.BAD if any(_slow(world, side) for side in sides) else ProbeOutcome.GOOD


def _slow(world: World, side: Intent) -> bool:
    speed = pair_gigabytes_s(side.result)
    return speed is not None and speed < world.policy.suspects.min_gigabytes_s


def busy(orders: Iterable[Intent]) -> frozenset[str]:
    """Nodes that are in a probe now."""
    return frozenset(i.action.node for i in orders if not i.settled and isinstance(i.action, SendOrder))


def room(world: World, orders: Collection[Intent]) -> int:
    """Number of pairs that may be started now in the cluster."""
    most = max(1, int(len(slurm_view.fleet(world)) * world.policy.suspects.cluster_share) // 2)
    return most - (len(busy(orders)) + 1) // 2


def idle(world: World, view: ClusterView, name: str, *, serving: bool = True) -> bool:
    """Whether a node can be probed now; ``serving``: one that is out of service cannot."""
    node = view.nodes.get(name)
    if node is None or node.base_state != "IDLE" or node.completing or not node.responding:
        return False
    if (serving and node.out_of_service) or "MAINTENANCE" in node.flags:
        return False
    return node_agents.agent_of(world, name) is not None


def trusted(world: World, view: ClusterView, suspects: Collection[str]) -> list[str]:
    """Idle nodes in service with nothing against them, in the suspects' partitions; spares first, no job waits for them."""
    partitions = {p for name in suspects if name in view.nodes for p in view.nodes[name].partitions}
    pool = view.reservations.get(world.policy.spare_reservation)
    spares = frozenset(pool.nodes) if pool is not None else frozenset[str]()
    accused = {i.node for i in world.book.open_incidents()}
    found: list[str] = []
    held = {node for job in view.jobs.values() if slurm_view.holds(job) for node in job.nodes}
    for name in sorted(view.nodes, key=lambda n: (n not in spares, n)):
        if len(found) >= _MOST_TRUSTED:
            break
        if name in suspects or name in accused or name in held or not partitions & set(view.nodes[name].partitions):
            continue
        if idle(world, view, name):
            found.append(name)
    return found


def possible(view: ClusterView, suspects: Collection[str]) -> list[str]:
    """Nodes that could serve as partners some time, idle or not."""
    partitions = {p for n in suspects if n in view.nodes for p in view.nodes[n].partitions}
    found = (
        name
        for name, node in sorted(view.nodes.items())
        if name not in suspects and not node.out_of_service and partitions & set(node.partitions)
    )
    return [name for name, _ in zip(found, range(_MOST_TRUSTED), strict=False)]


def partners(world: World, probes: Iterable[Probe], suspects: Collection[str]) -> list[str]:
    """Nodes from outside that took part, with nothing against them since."""
    outside = {node for probe in probes for node in probe.nodes if node not in suspects}
    return sorted(n for n in outside if not any(node_incidents.acting(i) for i in world.book.open_on(n)))


def secret_of(world: World, incident_id: str, tag: str) -> str:
    """Secret that only the two agents of this probe receive; both prove it to each other. Derived from this turn's random value, which is
    not stored."""
    return hmac.new(world.chance.encode(), f"probe_pair/{incident_id}/{tag}".encode(), hashlib.sha256).hexdigest()


def orders_for(
    world: World,
    view: ClusterView,
    incident_id: str,
    pair: tuple[str, str],
    *,
    tag: str,
    reason: str,
    instances: dict[str, str] | None = None,
) -> list[Proposal]:
    """The two orders of one probe. ``tag`` names it within the incident; ``instances``: machines that do not serve their node yet."""
    if not world.chance:
        return []
    secret = secret_of(world, incident_id, tag)
    policy = world.policy.suspects
    listener, connector = pair
    beside = instances or {}
    start_s = _START_S.get(policy.transport, _START_TORCH_S)
    proposals = []
    for role, node in (("listen", listener), ("connect", connector)):
        agent = node_agents.agent_of(world, node, beside.get(node))
        if agent is None:
            return []
        args = {
            "probe": tag,
            "role": role,
            "listener": listener,
            "address": view.nodes[listener].address,
            "port": policy.port,
            "secret": secret,
            "transport": policy.transport,
            "size_bytes": policy.size_mib * 1024 * 1024,
            "rounds": policy.rounds,
            "deadline_s": policy.deadline_s,
            "serves": node not in beside,
        }
        action = node_agents.order_to(agent, Verb.PROBE_PAIR, policy.deadline_s + start_s, args)
        step = steps.probe_pair(node, tag)
        proposals.append(Proposal(incident_id, step, action, reason, group=f"pair/{incident_id}/{tag}", order=70))
    return proposals
