"""Slurm's view of the cluster: whether it is recent enough, which nodes it is about, and what jobs do on them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from holdfast.model.book import World
from holdfast.model.slurm.cluster import FAILED_STATES, HOLDING_STATES, ClusterView, Job, Node

ENDED = frozenset(
    {"COMPLETED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "BOOT_FAIL", "PREEMPTED", "REVOKED"}
)
"""Ends that are the job's or its owner's own; FAILED and NODE_FAIL may be the fault's doing."""
FAILED = FAILED_STATES
CLOCK_STEP_S = 5.0
"""A view that seems to be newer than now by more than this is of unknown age: the clock was set back."""


def fresh_view(world: World) -> ClusterView | None:
    """Slurm's view if it is recent enough to decide on; None freezes what depends on it."""
    view = world.view
    if view is None:
        return None
    age_s = (world.now - view.read_at).total_seconds()
    if not -CLOCK_STEP_S <= age_s <= world.policy.view_max_age_s:
        return None
    return view


def fleet(world: World) -> frozenset[str]:
    """Nodes of Slurm that Holdfast looks after, of which shares are reckoned: each that has or had an agent, and that power saving has not
    off. A cloud cluster defines a hundred times as many, and brakes of a share of those would never hold."""
    if world.view is None:
        return frozenset()
    shown = ((name, world.view.nodes[name]) for name in with_agents(world) & world.view.nodes.keys())
    return frozenset(name for name, node in shown if not node.asleep or world.book.open_on(name))


def with_agents(world: World) -> frozenset[str]:
    """Nodes that have, or had, an agent, whether Slurm shows them or not."""
    return frozenset(world.agents) | {name for name, record in world.book.nodes.items() if record.boot_id}


SLURMD_TIMEOUT_S = 300.0
"""Slurm's default SlurmdTimeout, used if the setting is 0 or not known."""


def slurmd_timeout_s(config: Mapping[str, str]) -> float | None:
    """SlurmdTimeout of ``scontrol show config`` (``300 sec``); None: it does not say."""
    number = config.get("SlurmdTimeout", "").split()
    return float(number[0]) if number and number[0].isdigit() else None


def slurm_settled(world: World) -> bool:
    """Whether slurmctld has had one SlurmdTimeout since it last answered again, or started: until then what it shows of nodes is from
    before."""
    timeout_s = world.background.slurmd_timeout_s or SLURMD_TIMEOUT_S
    return world.slurm_back_at is None or world.now - world.slurm_back_at >= timedelta(seconds=timeout_s)


def jobs_known(world: World, node: Node) -> bool:
    """Whether it means something that Slurm shows no job on the node. A slurmctld that started cold has forgotten the jobs that run, until
    the node's slurmd has registered, or has had one SlurmdTimeout for that."""
    return node.registered or slurm_settled(world)


def free_of_jobs(view: ClusterView, node: str) -> bool:
    """No job holds the node and it is not COMPLETING."""
    return not view.jobs_on(node) and not view.nodes[node].completing


def holds(job: Job) -> bool:
    return job.state in HOLDING_STATES
