"""Job arrays with a throttle, and a partition whose jobs are preempted, added to the simulated Slurm; as measured on 22.05.

Elements that have not started are one record under the array's id; a requeued one has its own record. Within a partition no job
overtakes a job that waits for nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from holdfast.model.elastic_jobs.elastic import ElasticSpec
from holdfast.model.elastic_jobs.sizes import parse_sizes
from holdfast.model.errors import NotFound
from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView, Job, JobKey, Node
from support.simulated.agents import SimAgents
from support.simulated.clock import SimClock
from support.simulated.machines import Machine
from support.simulated.site import Site
from support.simulated.slurm import CLUSTER, SimJob, SimNode, SimSlurm

FLEX = "flex"
_FIRST_ARRAY = 10_000
LEAVES_WITHIN_S = 1.0
"""A group that was ordered to leave finishes its step and ends (exit status 85: Slurm requeues it)."""


class ArraySlurm(SimSlurm):
    """Partition ``gpu`` has precedence over ``flex``, over the same nodes."""

    def __init__(self, clock: SimClock, names: tuple[str, ...], gpus: int = 8) -> None:
        super().__init__(clock, names, gpus)
        self.preempts = True
        self.throttles: dict[int, int | None] = {}
        self.deaf: set[int] = set()
        """Jobs whose groups do not leave when ordered to."""
        self.told: list[tuple[int, int]] = []
        """Runs (job id, Restarts) that were ordered to leave."""
        self._busy: dict[str, datetime] = {name: clock.now() for name in names}
        self._started: set[int] = set()
        self._goes_at_s: dict[int, float] = {}

    # What users and the environment do

    def submit_array(self, indices: range, num_nodes: int = 1, **changed: object) -> int:
        array = _FIRST_ARRAY + len(self.jobs)
        for index in indices:
            element = self.submit(num_nodes, held=True, array_job_id=array, array_task_id=index)
            for name, value in {"exclusive": True, **changed}.items():
                setattr(element, name, value)
        for element in self.elements(array):
            element.held = False
        self.schedule()
        return array

    def submit_elastic(
        self, sizes: str, *, spares: int = 0, num_nodes: int = 1, base: str = "gpu", **changed: object
    ) -> tuple[int, int]:
        """The base and the flexible array's ids. ``changed``: of all elements, but for the base array's partition."""
        spec = ElasticSpec(parse_sizes(sizes), spares)
        first = self.submit_array(
            spec.base_indices, num_nodes, **{"partition": base, "comment": spec.comment, **changed}
        )
        flexible = {"partition": FLEX, "comment": replace(spec, of=first).comment, **changed}
        return first, self.submit_array(spec.flexible_indices, num_nodes, **flexible)

    def elements(self, array: int) -> list[SimJob]:
        return [j for j in self.jobs.values() if j.array_job_id == array]

    def leave(self, _machine: Machine, job_id: int, restarts: int) -> str:
        job = self.jobs.get(job_id)
        if job is None or job.state != "RUNNING" or job.restarts != restarts:
            return "no launcher of this run listens"
        self.told.append((job_id, restarts))
        if job_id not in self.deaf:
            self._goes_at_s.setdefault(job_id, self._clock.elapsed_s + LEAVES_WITHIN_S)
        return ""

    # Time

    def step(self, hears: Callable[[str], bool]) -> None:
        for job_id, at_s in list(self._goes_at_s.items()):
            if self._clock.elapsed_s >= at_s:
                del self._goes_at_s[job_id]
                if self.jobs[job_id].state == "RUNNING":
                    self._complete(self.jobs[job_id], "PENDING")
        super().step(hears)

    def _over(self, job: SimJob) -> None:
        self._busy.update({name: self._clock.now() for name in job.nodes})
        super()._over(job)

    def schedule(self) -> None:
        waits_for_nodes: set[str] = set()
        for job in sorted(self.jobs.values(), key=lambda j: (j.partition == FLEX, -j.priority, j.job_id)):
            if job.state != "PENDING":
                continue
            if (
                job.partition in waits_for_nodes
                and not job.held
                and (job.begin or self._clock.now()) <= self._clock.now()
            ):
                job.reason = "Priority"
                continue
            self._try_start(job)
            if job.state == "RUNNING":
                self._started.add(job.job_id)
            elif job.reason == "Resources":
                waits_for_nodes.add(job.partition)
                if self.preempts and job.partition != FLEX:
                    self._preempt(job)

    def _try_start(self, job: SimJob) -> None:
        most = self.throttles.get(job.array_job_id or 0)
        running = sum(1 for j in self.elements(job.array_job_id or 0) if j.state == "RUNNING")
        if most is not None and running >= most:
            job.reason = "JobArrayTaskLimit"
            return
        super()._try_start(job)

    def _preempt(self, job: SimJob) -> None:
        """The youngest first, no more than are needed, none if they are not enough."""
        coming = {n for j in self.jobs.values() if j.state == "COMPLETING" and j.then == "PENDING" for n in j.nodes}
        short = job.num_nodes - sum(1 for n in self.nodes if self._usable(job, n)) - len(coming - set(job.excluded))
        victims: list[SimJob] = []
        for other in sorted(self.jobs.values(), key=lambda j: (j.start or j.submit_time, j.job_id), reverse=True):
            if (
                short > 0
                and other.state == "RUNNING"
                and other.partition == FLEX
                and not set(other.nodes) & set(job.excluded)
            ):
                victims.append(other)
                short -= len(other.nodes)
        for victim in victims if short <= 0 else []:
            self._complete(victim, "PENDING")

    # The port

    def view(self) -> ClusterView:
        seen = super().view()
        hidden = {j.job_id for j in self.jobs.values() if self._waits_in_the_array(j)}
        arrays = {j.array_job_id for j in self.jobs.values() if j.job_id in hidden}
        jobs = {number: job for number, job in seen.jobs.items() if number not in hidden}
        return replace(seen, jobs=jobs | {array: self._record(array) for array in arrays if array is not None})

    def job(self, job_id: int) -> Job:
        if job_id < _FIRST_ARRAY:
            return super().job(job_id)
        self._answer()
        if not self._not_started(job_id):
            raise NotFound(f"no job {job_id}")
        return self._record(job_id)

    def release(self, job_id: int, *, reservation: str | None = None) -> None:
        for element in self._meant(job_id):
            super().release(element, reservation=reservation)

    def delay_start(self, job_id: int, delay_s: int) -> None:
        for element in self._meant(job_id):
            super().delay_start(element, delay_s)

    def set_array_throttle(self, array_job_id: int, most: int | None) -> None:
        self._change("set_array_throttle", f"{array_job_id}={most}")
        self.throttles[array_job_id] = most
        self.schedule()

    def _waits_in_the_array(self, job: SimJob) -> bool:
        return job.array_job_id is not None and job.state == "PENDING" and job.job_id not in self._started

    def _not_started(self, array: int) -> list[SimJob]:
        return [j for j in self.elements(array) if self._waits_in_the_array(j)]

    def _meant(self, job_id: int) -> list[int]:
        return [j.job_id for j in self._not_started(job_id)] or [job_id]

    def _record(self, array: int) -> Job:
        waiting = self._not_started(array)
        shown = self._job(waiting[0])
        tasks = tuple(j.array_task_id for j in waiting if j.array_task_id is not None)
        key = JobKey(CLUSTER, array, shown.key.submit_time)
        return replace(shown, key=key, array_task_id=None, array_tasks_waiting=tasks)

    def _job(self, job: SimJob) -> Job:
        return replace(super()._job(job), array_throttle=self.throttles.get(job.array_job_id or 0))

    def _as_before(self, node: SimNode, here: list[SimJob], reserved: bool, address: str) -> Node:
        last = self._clock.now() if here else self._busy[node.name]
        return replace(super()._as_before(node, here, reserved, address), last_busy_time=last)

    def _shown(self, node: SimNode) -> Node:
        busy = any(node.name in j.nodes and j.state in HOLDING_STATES for j in self.jobs.values())
        last = self._clock.now() if busy else self._busy[node.name]
        return replace(super()._shown(node), partitions=("gpu", FLEX), last_busy_time=last)


class ElasticSite(Site):
    """A site whose Slurm has arrays, and whose agents know the groups' launchers."""

    slurm: ArraySlurm
    agents: SimAgents

    def __init__(self, nodes: int = 4, **options: object) -> None:
        super().__init__(nodes, slurm=ArraySlurm, **options)  # type: ignore[arg-type]
        self.agents.leave = self.slurm.leave

    def running(self, *arrays: int) -> list[int]:
        """Indices of the groups that run."""
        found = [e for array in arrays for e in self.slurm.elements(array) if e.state == "RUNNING"]
        return sorted(e.array_task_id for e in found if e.array_task_id is not None)
