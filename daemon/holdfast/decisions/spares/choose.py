"""Choice of a spare for a bad node, and return of repaired nodes to the pool. Pure."""

from __future__ import annotations

import re
from collections import Counter

from holdfast.decisions.common import node_agents, node_incidents
from holdfast.decisions.common.node_policy import policy_for
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.spares import spare_checks
from holdfast.decisions.spares.pool import kept, spare_pool, wanted
from holdfast.model.actions.action import IntentState, PromoteSpare
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView, Job, Node

_GPU_TYPE = re.compile(r"(?:^|,)(?:gres[:/])?gpu:([A-Za-z][^:,()]*)")


def choose_spare(
    world: World,
    view: ClusterView,
    job: Job,
    *,
    taken: frozenset[str],
    replaced: str = "",
    near: tuple[str, ...] = (),
    serves_again: frozenset[str] = frozenset(),
) -> str | None:
    """A ready spare of the job's partition with no fewer GPUs than its nodes had, and of the same type; None: there is none.

    Of several: one that is not under test, then one whose last check found nothing wrong, with the features of ``replaced``, that is no
    lemon, with the fewest switches between it and the nodes ``near``, and the first by name.

    Ready: idle and in service, no open incident, its agent reports. A spare whose agent is silent is unknown, not ready; one whose agent
    has not had the time to report since this controller started keeps its previous status. ``serves_again``: nodes that are on the job's
    list because Holdfast put them there for an earlier run."""
    promised = taken | {r.spare for r in world.book.recoveries.values() if r.spare is not None and not r.final}
    wanted_gpus = max((len(m) for m in job.gpu_indices.values()), default=0)
    excluded = set(job.excluded_nodes) - serves_again
    bad, busy = view.nodes.get(replaced), busy_nodes(view)
    fit = [
        node
        for name in spare_pool(world, view)
        if (node := view.nodes.get(name)) is not None
        and name not in promised
        and name not in excluded
        and job.partition in node.partitions
        and node.gpu_count >= wanted_gpus
        and _same_gpus(node, bad)
        and why_not_ready(world, view, node, busy) is None
    ]
    if len(fit) < 2:
        return fit[0].name if fit else None
    tested = spare_checks.under_test(world)
    leaves = _leaves(world, near)
    return min(fit, key=lambda node: _rank(world, node, bad, node.name in tested, leaves)).name


def _rank(
    world: World, node: Node, bad: Node | None, tested: bool, leaves: Counter[str]
) -> tuple[bool, bool, int, bool, int, str]:
    record = world.book.nodes.get(node.name)
    topology = world.background.topology
    return (
        tested,
        record is not None and bool(record.check_note),
        len(bad.features - node.features) if bad is not None else 0,
        world.background.lemon(node.name, world.now),
        sum(topology.distance(node.name, other) * times for other, times in leaves.items()),
        node.name,
    )


def _leaves(world: World, near: tuple[str, ...]) -> Counter[str]:
    """One node of each leaf switch, and how many there are of it: a large job's nodes share few."""
    first: dict[tuple[str, ...], str] = {}
    counted: Counter[str] = Counter()
    for name in near:
        above = world.background.topology.switches.get(name)
        if above is not None:
            counted[first.setdefault(above, name)] += 1
    return counted


def _same_gpus(node: Node, bad: Node | None) -> bool:
    """Whether Slurm shows the same types of GPUs for both; true if it shows none for one of them."""
    if bad is None:
        return True
    here, there = set(_GPU_TYPE.findall(node.gres)), set(_GPU_TYPE.findall(bad.gres))
    return not here or not there or there <= here


def busy_nodes(view: ClusterView) -> frozenset[str]:
    """Nodes that some job holds; to be read once if many nodes are checked."""
    return frozenset(name for job in view.jobs.values() if job.state in HOLDING_STATES for name in job.nodes)


def why_not_ready(world: World, view: ClusterView, node: Node, busy: frozenset[str]) -> str | None:
    """Reason why a spare cannot take a bad node's place now; None: it can. ``busy``: of :func:`busy_nodes`."""
    if node.out_of_service:
        return f"out of service: {node.reason or node.base_state}"
    policy = policy_for(node.name, node, world.policy)
    if policy.mode is Mode.OBSERVE and world.policy.mode is not Mode.OBSERVE:
        return f"{policy.why}: nothing is done to it"
    if node.asleep:
        return "Slurm's power saving has it off"
    hands = hands_off.on(world, node.name)
    if hands is not None:
        return hands.text
    if not node.responding:
        return "Slurm gets no answer from it"
    if node.name in busy:
        return f"held by job {','.join(str(j.key.job_id) for j in view.jobs_on(node.name))}"
    if node.base_state != "IDLE":
        return f"Slurm shows it {node.base_state}"
    open_here = [i for i in world.book.open_on(node.name) if node_incidents.acting(i)]
    if open_here:
        return f"incident {open_here[0].id}: {open_here[0].headline}"
    if node_agents.agent_of(world, node.name) is None and not _heard_before(world, node.name):
        return "its agent does not report"
    return None


def _heard_before(world: World, name: str) -> bool:
    """Whether, just after a start of the controller, the node is known to the store, has no open incident (not even a suspicion) and has
    not reported yet.

    Waiting for its first heartbeat would hold the job back by up to an interval, for a spare that responds to Slurm."""
    if world.frozen is None or world.agents.get(name) or world.book.open_on(name):
        return False
    record = world.book.nodes.get(name)
    return record is not None and bool(record.boot_id)


def returns_as_spare(world: World, view: ClusterView, incident: Incident) -> bool:
    """A node that was a spare stays one. Where a number is wanted, the pool gets what it lacks; else what this incident took from it."""
    if not world.policy.repair.return_as_spare:
        return False
    if incident.node in spare_pool(world, view):
        return True
    number = wanted(world).number
    if number is not None:
        return len(kept(world, view)) < number
    done = (i for i in world.book.intents_of(incident.id) if i.state is IntentState.DONE)
    return any(isinstance(i.action, PromoteSpare) for i in done)
