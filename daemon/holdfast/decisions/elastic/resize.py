"""Size of elastic jobs: orders to grow and shrink. Pure.

Slurm starts waiting groups and preempts running ones automatically. This ends the wait of requeued groups when nodes are idle, keeps the
job to legal sizes (the flexible array's throttle; a delayed start where none of it may run), and asks groups to leave (:mod:`.shrink`). One
change of a job at a time; what a restart of the controller must not forget is read from Slurm and from the intents of the last hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from holdfast.decisions.common import attempted_steps, node_agents, slurm_view
from holdfast.decisions.common.elastic_jobs import ElasticJob, ReplicaGroup, elastic_jobs
from holdfast.decisions.common.may_stop_run import (
    GroupAsked,
    GroupToShrink,
    MayStop,
    ask_to_leave,
    may_stop_run,
    requeue,
)
from holdfast.decisions.common.part import Part
from holdfast.decisions.elastic import shrink
from holdfast.decisions.elastic.grow import Capacity
from holdfast.decisions.elastic.naming import known_room
from holdfast.model.actions import steps
from holdfast.model.actions.action import Action, Intent, IntentState, Proposal, Release, SendOrder, Verb
from holdfast.model.actions.steps import Step
from holdfast.model.book import World
from holdfast.model.elastic_jobs.elastic import GroupRole
from holdfast.model.ids import UPKEEP
from holdfast.model.incidents.incident import RecoveryPhase
from holdfast.model.policies.lookback import DELAY_START_S
from holdfast.model.policies.resizing import DelayStart, SetThrottle
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey

RENEW_S = 600.0
_RECOVERING = frozenset({RecoveryPhase.STOPPING, RecoveryPhase.RESTARTING, RecoveryPhase.SAVING})
"""A fault's recovery has the run in its hands: it sets the exclusions and releases it."""
Run = tuple[int, int]
"""Job id and restarts."""


def resize(world: World) -> Part:
    """Steps towards the right size of every elastic job. None while paused; in observe mode they are recorded, not done."""
    view = slurm_view.fresh_view(world)
    if view is None or world.frozen is not None or world.book.paused is not None:
        return Part()
    jobs = sorted(elastic_jobs(view), key=lambda j: (-_priority(j), j.base_array_id))
    if not jobs:
        return Part()
    asked = asked_to_leave(world)
    capacity = Capacity(world, view)
    coming = {n for j in jobs for g in leaving_groups(j, asked) for n in g.nodes if n in view.nodes}
    proposals: list[Proposal] = []
    for job in jobs:
        plan = _Plan(world, view, job, asked, capacity, frozenset(coming))
        coming |= {n for g in plan.decide() for n in g.nodes}
        proposals += plan.proposals
    return Part(tuple(proposals))


def asked_to_leave(world: World) -> Mapping[Run, tuple[Intent, ...]]:
    """Runs that were asked, with the orders, oldest first."""
    found: dict[Run, tuple[Intent, ...]] = {}
    for intent in sorted(_ours(world), key=lambda i: (i.planned_at, i.key)):
        if isinstance(intent.action, SendOrder) and intent.action.verb is Verb.LEAVE:
            run = int(intent.action.args["job_id"]), int(intent.action.args["restarts"])
            found[run] = (*found.get(run, ()), intent)
    return found


def leaving_groups(job: ElasticJob, asked: Mapping[Run, tuple[Intent, ...]]) -> tuple[ReplicaGroup, ...]:
    """Groups that were asked to leave and still run."""
    return tuple(g for g in job.running if any(i.planned_at >= g.job.key.submit_time for i in asked.get(_run(g), ())))


def last_decision(world: World, job: ElasticJob) -> Intent | None:
    """The newest step of the last hour that was for this job's size, also one that was withheld."""
    mine = (i for i in world.book.intents.values() if i.incident_id == UPKEEP and _is_for(world, i, job))
    return max(mine, key=lambda i: (i.planned_at, i.key), default=None)


def _ours(world: World) -> Iterable[Intent]:
    return (i for i in world.book.intents.values() if i.incident_id == UPKEEP and i.is_attempt)


def _is_for(world: World, intent: Intent, job: ElasticJob) -> bool:
    """Steps planned before the job was submitted were for an earlier one with its id. If that time is not known, all of them count."""
    if not steps.resizes(intent.step, job.label):
        return False
    known = known_room(world, job)
    return not known.exact or intent.planned_at.timestamp() >= known.submitted_s


def _run(group: ReplicaGroup) -> Run:
    return group.job.key.job_id, group.job.restarts


def _priority(job: ElasticJob) -> int:
    return max((g.job.priority for g in job.groups), default=0)


class _Plan:
    """The steps for one job in one cycle."""

    def __init__(
        self,
        world: World,
        view: ClusterView,
        job: ElasticJob,
        asked: Mapping[Run, tuple[Intent, ...]],
        capacity: Capacity,
        coming: frozenset[str],
    ) -> None:
        self._world = world
        self._policy = world.policy.elastic
        self._view = view
        self._job = job
        self._asked = asked
        self._capacity = capacity
        self._coming = coming
        self._hour = attempted_steps.hour(world)
        self._mine = [i for i in _ours(world) if _is_for(world, i, job)]
        self._recovering = {r.job.job_id for r in world.book.recoveries.values() if r.phase in _RECOVERING}
        self.proposals: list[Proposal] = []

    def decide(self) -> tuple[ReplicaGroup, ...]:
        """Fills ``proposals``; returns the groups that it would have leave."""
        leaving = leaving_groups(self._job, self._asked)
        for group in leaving:
            self._insist(group)
        if leaving or self._on_its_way():
            return ()
        hurt = any(g.job.key.job_id in self._recovering for g in self._job.groups)
        may = may_stop_run(GroupToShrink(settled=self._settled(), recovering=hurt))
        if isinstance(may, MayStop) and (found := self._shrink()) is not None:
            for group in found.groups:
                self._ask(group, found, may)
            return found.groups
        self._grow()
        return ()

    def _on_its_way(self) -> bool:
        """A change that Slurm may not show yet."""
        read_at = self._view.read_at
        return any(not i.settled or (i.finished_at is not None and i.finished_at >= read_at) for i in self._mine)

    def _settled(self) -> bool:
        changed = self._job.changed_at
        return changed is None or self._world.now - changed >= timedelta(seconds=self._policy.settle_s)

    # Shrinking

    def _shrink(self) -> shrink.Leaving | None:
        found = shrink.off_drained(self._world, self._view, self._job) or shrink.for_priority(
            self._world, self._view, self._job, self._coming
        )
        if found is not None:
            return found
        return None if self._room() else shrink.useless(self._world, self._job)

    def _ask(self, group: ReplicaGroup, found: shrink.Leaving, may: MayStop) -> None:
        """One order to each node of the group: its launcher may be on any of them. Without an agent there the job is requeued."""
        job_id, restarts = _run(group)
        args = {
            "job_id": job_id,
            "restarts": restarts,
            "reason": found.reason.value,
            "deadline_s": self._policy.leave_deadline_s,
            "target": found.target,
        }
        agents = [a for name in group.nodes if (a := node_agents.agent_of(self._world, name)) is not None]
        for agent in agents:
            order = ask_to_leave(may, agent, float(self._policy.leave_deadline_s), args)
            step = steps.leave_room(
                self._job.label, agent.node, group.job.key, restarts, self._hour, serving=found.serving
            )
            self._once(step, order, found.text, order=80)
        if not agents:
            self._requeue(group, may, f"{found.text}; no agent on its nodes reports", found.serving)

    def _insist(self, group: ReplicaGroup) -> None:
        """Requeue a group that could not be asked, or that is still there after the deadline."""
        orders = [i for i in self._asked[_run(group)] if i.planned_at >= group.job.key.submit_time]
        patience = timedelta(seconds=self._policy.leave_deadline_s)
        not_reached = all(i.settled and i.state is not IntentState.DONE for i in orders)
        may = may_stop_run(
            GroupAsked(not_reached=not_reached, overdue=self._world.now - orders[0].planned_at >= patience)
        )
        if isinstance(may, MayStop):
            failed = f"could not be asked to leave: {orders[-1].outcome}"
            late = f"was asked to leave {patience.total_seconds():.0f} s ago"
            self._requeue(group, may, f"group {group.index} {failed if not_reached else late}")

    def _requeue(self, group: ReplicaGroup, may: MayStop, reason: str, serving: JobKey | None = None) -> None:
        key, restarts = group.job.key, group.job.restarts
        step = steps.requeue_group(self._job.label, key, restarts, self._hour, serving=serving)
        self._once(step, requeue(may, key, restarts), reason, order=85)

    # Growing

    def _waiting(self, *, base: bool = False) -> list[ReplicaGroup]:
        """Flexible groups (or base ones) that could start if Slurm let them, those of the smallest index first."""
        return [
            g
            for g in self._job.waiting
            if (g.role is GroupRole.BASE) is base
            and not (g.job.held or g.job.depends)
            and g.job.key.job_id not in self._recovering
        ]

    def _room(self) -> int:
        """Number of groups that can start now, up to a legal size."""
        waiting = self._waiting()
        room = min(len(waiting), self._capacity.room(self._job, waiting[0].job)) if waiting else 0
        return max(0, self._reach(room) - self._count)

    @property
    def _count(self) -> int:
        """Groups that there are once the base array runs, which Slurm sees to."""
        return self._job.sizes.least + sum(1 for g in self._job.running if g.role is not GroupRole.BASE)

    def _reach(self, room: int) -> int:
        """The number of groups to aim at: spares beyond the largest size, and no smaller legal size than there is now."""
        there = min(self._count + room, self._job.sizes.most + self._job.spec.spares)
        if not self._job.gapped or there >= self._job.sizes.most:
            return there
        return self._job.sizes.usable(there)

    def _bring_back(self) -> None:
        """Base groups that were requeued: the job cannot do without them."""
        for group in self._waiting(base=True):
            if self._is_delayed(group.job) and self._capacity.room(self._job, group.job):
                nodes = self._capacity.take(self._job, group.job, 1)
                self._release(
                    [group], 1, f"base group {group.index} of {self._job.label} may start: {','.join(nodes)} idle"
                )

    def _grow(self) -> None:
        self._bring_back()
        waiting = self._waiting()
        if not waiting:
            return
        room = min(len(waiting), self._capacity.room(self._job, waiting[0].job))
        aim = self._reach(room)
        if self._job.gapped:
            self._keep_to(aim, waiting)
        more = aim - self._count
        if more > 0:
            nodes = self._capacity.take(self._job, waiting[0].job, more)
            self._release(waiting, more, f"{self._job.label} may grow to {aim} groups: {','.join(nodes)} idle")

    def _keep_to(self, aim: int, waiting: list[ReplicaGroup]) -> None:
        allowed = aim - self._job.sizes.least
        if allowed <= 0:
            for job in self._records(g for g in waiting if self._starts_soon(g.job)):
                reason = f"{self._job.label} stays at {aim} groups: too few nodes are idle for the next legal size"
                action = DelayStart(job.key, job.restarts, DELAY_START_S)
                step = steps.delay_start(self._job.label, job.key, job.restarts, self._hour)
                self._again(step, action, reason, order=91)
            return
        arrays = self._job.flexible_array_ids
        most = None if allowed >= len(self._job.spec.flexible_indices) else allowed
        record = next(g.job for g in self._job.groups if g.role is not GroupRole.BASE)
        if len(arrays) == 1 and record.array_throttle != most:
            reason = f"{self._job.label} is kept to {aim} groups, a legal size"
            step = steps.set_throttle(self._job.label, arrays[0], most, self._hour)
            self._again(step, SetThrottle(record.key, arrays[0], most), reason, order=90)

    def _starts_soon(self, job: Job) -> bool:
        return job.eligible_time is None or job.eligible_time - self._world.now < timedelta(seconds=RENEW_S)

    def _release(self, waiting: list[ReplicaGroup], more: int, reason: str) -> None:
        """End the wait after a requeue, or one of ours; never a start time (``--begin``) that the owner chose."""
        delayed = [g for g in waiting if self._is_delayed(g.job)]
        ready = len(waiting) - len(delayed)
        for job in self._records(delayed[: max(0, more - ready)]):
            if (job.restarts or self._delayed_by_us(job)) and job.exclusions_known:
                action = Release(job.key, job.restarts, None, job.excluded_nodes)
                step = steps.release_group(self._job.label, job.key, job.restarts, self._hour)
                self._again(step, action, reason, order=92)

    def _is_delayed(self, job: Job) -> bool:
        return job.eligible_time is not None and job.eligible_time > self._world.now

    def _delayed_by_us(self, job: Job) -> bool:
        return any(isinstance(i.action, DelayStart) and i.action.job.job_id == job.key.job_id for i in self._mine)

    @staticmethod
    def _records(groups: Iterable[ReplicaGroup]) -> list[Job]:
        """Groups that have not started share a record."""
        return list({g.job.key.job_id: g.job for g in groups}.values())

    # Steps

    def _once(self, step: Step, action: Action, reason: str, order: int) -> None:
        """A step about one run: not again while it is known, but for a failure that may pass."""
        if self._world.may_follow(self._attempts(step)):
            self.proposals.append(Proposal(UPKEEP, step, action, reason, order=order))

    def _again(self, step: Step, action: Action, reason: str, order: int) -> None:
        """A setting that may be needed again: what Slurm shows differs from it although it was set some time ago."""
        latest = attempted_steps.last(self._attempts(step))
        pause = timedelta(seconds=max(self._policy.settle_s, self._world.policy.action_backoff_s))
        if latest is None or (latest.finished_at is not None and self._world.now - latest.finished_at >= pause):
            self.proposals.append(Proposal(UPKEEP, step, action, reason, order=order))

    def _attempts(self, step: Step) -> tuple[Intent, ...]:
        """Intents of the last hour, oldest first."""
        mine = [i for i in self._mine if steps.same_but_hour(i.step, step)]
        return tuple(sorted(mine, key=lambda i: (i.planned_at, i.key)))
