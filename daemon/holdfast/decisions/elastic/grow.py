"""Growth of elastic jobs: how many more groups could run now. Pure.

Slurm starts the groups. The count serves two things that Slurm does not do automatically: ending the wait of a requeued group, and skipping
sizes that are not legal."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from holdfast.decisions.common import node_incidents
from holdfast.decisions.common.elastic_jobs import ElasticJob
from holdfast.model.book import World
from holdfast.model.elastic_jobs.elastic import GroupRole
from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView, Job, Node

_SOON = frozenset({"RESERVED", "COMPLETING"})
"""Flags of a node that may still serve; reservations are checked separately."""


class Capacity:
    """Nodes that groups may start on; what is given to one job is gone for the next. For one cycle."""

    def __init__(self, world: World, view: ClusterView) -> None:
        self._world = world
        self._view = view
        self._reserved = {name for r in view.reservations.values() for name in r.nodes}
        self._free = FreeNodes(view)
        self._waiting = [j for _, j in sorted(view.jobs.items()) if wants_nodes(j, world.now)]
        self._open = [
            n for _, n in sorted(view.nodes.items()) if n.base_state in ("IDLE", "MIXED") and self._offered(n)
        ]
        self._gpus_taken: Counter[str] = Counter()
        self._taken: set[str] = set()

    def room(self, job: ElasticJob, element: Job) -> int:
        """Number of groups like this waiting element that fit now, in addition to the job's own waiting base groups."""
        owed = sum(1 for g in job.waiting if g.role is GroupRole.BASE and wants_nodes(g.job, self._world.now))
        return max(0, len(self._places(job, element)) // max(1, element.num_nodes) - owed)

    def take(self, job: ElasticJob, element: Job, groups: int) -> tuple[str, ...]:
        """Give them away, and name the nodes."""
        places = self._places(job, element)[: groups * max(1, element.num_nodes)]
        if self._gpus(job, element):
            self._gpus_taken.update({name: self._gpus(job, element) * places.count(name) for name in places})
        else:
            self._taken.update(places)
        return tuple(dict.fromkeys(places))

    def _places(self, job: ElasticJob, element: Job) -> list[str]:
        """Nodes by name, each as often as one node's share of a group fits on it."""
        gpus = self._gpus(job, element)
        shares = {
            node.name: self._shares(node, gpus) if gpus else self._whole(node)
            for node in self._open
            if fits(element, node)
        }
        if not any(shares.values()):
            return []
        rivals = [j for j in self._waiting if not job.holds(j.key.job_id) and self._goes_first(j, element)]
        nodes = self._view.nodes
        free = [name for name, number in shares.items() if number and not any(fits(r, nodes[name]) for r in rivals)]
        return [name for name in free for _ in range(shares[name])]

    @staticmethod
    def _gpus(job: ElasticJob, element: Job) -> int:
        """GPUs that a group takes of a node that it shares with others; 0: it takes whole nodes, or that is not known."""
        if element.exclusive or element.num_nodes > 1:
            return 0
        return max((len(minors) for g in job.running for minors in g.job.gpu_indices.values()), default=0)

    def _offered(self, node: Node) -> bool:
        if node.name in self._reserved or node.flags:
            return False  # powered down, planned for a job, completing, drained: not to be had now
        return not any(node_incidents.acting(i) for i in self._world.book.open_on(node.name))

    def _whole(self, node: Node) -> int:
        taken = node.name in self._taken or self._gpus_taken[node.name] > 0
        return int(node.base_state == "IDLE" and not taken and self._idle_long_enough(node))

    def _shares(self, node: Node, gpus: int) -> int:
        if node.name in self._taken:
            return 0
        if node.base_state == "IDLE":
            used = 0 if self._idle_long_enough(node) else node.gpu_count
        else:
            used = sum(len(j.gpu_indices.get(node.name, ())) for j in self._view.jobs_on(node.name))
        return max(0, node.gpu_count - used - self._gpus_taken[node.name]) // gpus

    def _idle_long_enough(self, node: Node) -> bool:
        after = timedelta(seconds=self._world.policy.elastic.grow_after_idle_s)
        return node.last_busy_time is None or self._world.now - node.last_busy_time >= after

    def _goes_first(self, rival: Job, element: Job) -> bool:
        """Within a partition by priority. A job of another one goes first if it could start now: if it could not, the groups that Slurm
        starts meanwhile give way to it when it can."""
        if set(rival.partition.split(",")) & set(element.partition.split(",")):
            return rival.priority >= element.priority
        return len(self._free.for_job(rival)) >= rival.num_nodes


class FreeNodes:
    """Nodes that no job holds, or none that is not being cleared away. For one cycle."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        busy = {n for j in view.jobs.values() if j.state in HOLDING_STATES - {"COMPLETING"} for n in j.nodes}
        self._nodes = [n for n in view.nodes.values() if n.name not in busy and not n.down and not n.flags - _SOON]

    def for_job(self, job: Job) -> list[str]:
        """Those that this pending job could perhaps use now or in a moment."""
        reserved = {n for r in self._view.reservations.values() if r.name != job.reservation for n in r.nodes}
        return [n.name for n in self._nodes if n.name not in reserved and fits(job, n)]

    def surely_for(self, job: Job) -> list[str]:
        """Those of them that it can use for certain."""
        return [name for name in self.for_job(job) if can_use(self._view, job, self._view.nodes[name])]


def fits(job: Job, node: Node) -> bool:
    """Whether the node is in one of the job's partitions and not excluded by it, as far as its list can be read."""
    return (
        not job.unreadable
        and job.exclusions_known
        and bool(set(job.partition.split(",")) & set(node.partitions))
        and node.name not in job.excluded_nodes
    )


def can_use(view: ClusterView, job: Job, node: Node) -> bool:
    """Whether this pending job can run there for certain, once the node is empty: all that it asks for is known, and there."""
    if job.asks is None or job.parts or job.unreadable or not fits(job, node) or not node.has.meets(job.asks):
        return False
    reserved = {r.name for r in view.reservations.values() if node.name in r.nodes}
    mine = view.reservations.get(job.reservation)
    if not job.reservation or mine is None:
        return not reserved and not job.reservation
    begun = mine.start_time is not None and mine.start_time <= view.read_at
    return reserved == {job.reservation} and begun and (mine.end_time is None or mine.end_time > view.read_at)


def wants_nodes(job: Job, now: datetime) -> bool:
    """A pending job that waits for nothing but nodes."""
    return job.state == "PENDING" and job.may_start and (job.eligible_time is None or job.eligible_time <= now)
