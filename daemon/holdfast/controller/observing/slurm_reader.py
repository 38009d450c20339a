"""Reads Slurm alongside the control loop: often while something happens, seldom otherwise, and never faster than slurmctld can bear.

All of Slurm is read :data:`BUSY_S` after an event (a decision about a node or a job, the outcome of a step that changes Slurm, a job that
stops, starts or changes nodes), then at growing intervals, up to :data:`IDLE_S`. No events are: waiting for a consent or for the end of a
job, a message, a query to the provider, an order that leaves nodes and jobs unchanged, and the end of an incident that was only watched.
While groups of elastic jobs come and go, Slurm is read often for a while (``elastic_pace.py``). Otherwise only jobs between their stop and
their restart are read, each at its own pace (``job_pace.py``): often right after a change, then as seldom as all of Slurm.
A decision that starts something is made on a view that is younger than :meth:`SlurmReader.too_old` allows (``loop.py``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.controller.observing.observe import SlurmWatch
from holdfast.controller.timing.elastic_pace import ElasticPace
from holdfast.controller.timing.job_pace import JobPace
from holdfast.controller.timing.job_reads import Looks
from holdfast.decisions.common.elastic_jobs import elastic_jobs
from holdfast.model.actions.action import (
    Action,
    CheckInstance,
    Intent,
    Notify,
    ReportFault,
    SendOrder,
    SetDown,
    TellOwner,
    UnknownAction,
    Verb,
)
from holdfast.model.book import Change, World
from holdfast.model.incidents.incident import Incident, IncidentState, Recovery, RecoveryPhase
from holdfast.model.slurm.cluster import ClusterView, Job, Node

BUSY_S = 0.25
"""Pause between two readings right after an event."""
IDLE_S = 10.0
"""Longest pause between two readings."""
SLOWING = 0.1
"""The pause as a share of the time since the last event."""
GENTLE = 10.0
"""The pause is at least this many times the duration of the last reading, its requests to slurmctld included."""
OLDEST = 2 / 3
"""The pause, and the reading before it, take at most this share of the age at which decisions freeze (``view_max_age_s``)."""
SPACING_S = 0.05
"""Minimum pause between two readings, however many changes of Slurm are reported; at least as long as a reading takes."""
NEW_S = 2.0
"""A view up to this age, or up to the duration of two readings where that is longer, counts as current."""
NODES_PATIENCE_S = 2.0
"""How long a decision waits for a reading of only the faulty nodes; then it waits for all of Slurm."""
PATIENCE_S = 5.0
"""How long a decision waits for a newer view. Then it uses the present view, unless that is so old that decisions freeze."""


def pause_s(since_event_s: float, took_s: float, max_age_s: float, slowest_s: float = IDLE_S) -> float:
    """Seconds between two readings of all of Slurm. ``took_s``: duration of the last one. ``max_age_s``: ``view_max_age_s``."""
    wanted_s = min(max(BUSY_S, SLOWING * since_event_s), slowest_s)
    return max(min(max(wanted_s, GENTLE * took_s), OLDEST * max_age_s - took_s), BUSY_S)


def moving_jobs(world: World) -> dict[int, tuple[int, ...]]:
    """Jobs between their stop and their restart, with the records of each: for a heterogeneous job those of all components."""
    phases = (RecoveryPhase.STOPPING, RecoveryPhase.RESTARTING)
    moving = sorted(r.job.job_id for r in world.book.recoveries.values() if r.phase in phases)
    jobs = world.view.jobs if world.view is not None else {}
    return {n: tuple(p.key.job_id for p in jobs[n].components) if n in jobs else (n,) for n in moving}


def begins_something(change: Change) -> bool:
    """Whether the change plans a step that does more than read or notify, or changes or opens anything except an incident that is only
    watched."""
    moved = any(i.state is not IncidentState.WATCHING for i in change.incidents)
    return moved or bool(change.recoveries) or any(not _only_looks(i.action) for i in change.intents)


_MOVES_NOTHING = (Notify, TellOwner, CheckInstance, ReportFault, UnknownAction)
"""Steps after which Slurm shows every node and job as before."""
_MOVING_ORDERS = frozenset({Verb.END_STEP, Verb.END_JOB, Verb.SAVE, Verb.LEAVE})
"""Orders to agents that make a job end or move."""
_LOOKING_ORDERS = frozenset({Verb.EVIDENCE, Verb.OUTPUT, Verb.STACKS, Verb.SURVEY, Verb.JOB_NOTE})
"""Orders to agents that only read or notify a job's owner, and use no node or job for it."""


def moves_slurm(action: Action) -> bool:
    """Whether the step changes nodes or jobs in Slurm."""
    if isinstance(action, SendOrder):
        return action.verb in _MOVING_ORDERS
    return not isinstance(action, _MOVES_NOTHING)


def _only_looks(action: Action) -> bool:
    """Whether the step is just as valid on an older view: it only reads something on a node, or notifies."""
    if isinstance(action, SendOrder):
        return action.verb in _LOOKING_ORDERS
    return isinstance(action, (Notify, TellOwner))


def is_event(world: World, change: Change) -> bool:
    """Whether the change affects nodes or jobs: a step, a recovery, an incident that enters another state. An incident that was only
    watched changed nothing in Slurm, and its end changes nothing."""
    moved = any(_moves(world.book.incidents.get(i.id), i) for i in change.incidents)
    return moved or bool(_moved_recoveries(world, change) or _steps(change.intents))


def _moves(before: Incident | None, after: Incident) -> bool:
    if after.state is IncidentState.WATCHING or (before is not None and before.state is after.state):
        return False
    return after.open or (before is not None and before.state is not IncidentState.WATCHING)


def _moved_recoveries(world: World, change: Change) -> list[Recovery]:
    """Recoveries that are new or in another phase. A new reason in Slurm why a job waits is only a note, not a change."""
    before = world.book.recoveries
    return [r for r in change.recoveries if r.id not in before or before[r.id].phase is not r.phase]


def _steps(intents: Iterable[Intent]) -> frozenset[str]:
    """Keys of the steps under way that change something in Slurm."""
    return frozenset(i.key for i in intents if not i.settled and moves_slurm(i.action))


@dataclass
class SlurmReader:
    """Reader of Slurm. One asyncio task; readings run in threads. Written and read only in the loop's event loop."""

    slurm: SlurmWatch
    max_age_s: Callable[[], float]
    """``view_max_age_s`` of the policy."""
    wake: Callable[[], None]
    """Called when Slurm shows something new."""
    world: Callable[[], World | None]
    """The world as of the last turn."""
    look: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to read soon."""
    took_s: float = 0.0
    """Duration of the last reading."""
    _event_s: float | None = None
    _begun: int = 0
    _done: int = 0
    _began_s: float = 0.0
    _read: asyncio.Event = field(default_factory=asyncio.Event)
    _open_steps: frozenset[str] = frozenset()
    _pace: JobPace = field(default_factory=JobPace)
    _looks: Looks = field(default_factory=Looks)
    _elastic: ElasticPace = field(default_factory=ElasticPace)
    _nodes: asyncio.Task[dict[str, Node]] | None = None
    """The last reading of single nodes; it may still be under way."""

    def event(self) -> None:
        """Record an event: Slurm is read often from now on."""
        self._event_s = _now_s()

    def slurm_changed(self) -> None:
        """Record that Slurm was changed: it is read soon."""
        self.event()
        self.look.set()

    def asked_for(self, job_id: int) -> None:
        """Handle an agent's request about a run that the newest view does not show yet. Slurm is read once more for it if ``job_reads.py``
        allows, since users determine how often agents ask."""
        if self._looks.allow(job_id, _now_s()):
            self.look.set()

    def turned(self, world: World, change: Change) -> None:
        """Take over what a turn saw and changed. A finished step has changed Slurm."""
        steps = _steps(world.book.intents.values())
        over, new, self._open_steps = self._open_steps - steps, steps - self._open_steps, steps
        self._jobs_moved(world, change, over)
        if over:
            self.slurm_changed()
        elif new or is_event(world, change):
            self.event()

    def _jobs_moved(self, world: World, change: Change, over: Collection[str]) -> None:
        """Read jobs often from now on whose recovery progressed or had a step done for it."""
        done = [i for key in over if (i := world.book.intents.get(key)) is not None]
        stepped = [r for r in world.book.recoveries.values() if any(_is_for(i, r) for i in done)]
        for recovery in (*_moved_recoveries(world, change), *stepped):
            self._pace.moved(recovery.job.job_id, _now_s())

    def planned(self, intents: Iterable[Intent]) -> None:
        """Record new steps in the store: one may be finished before the next turn."""
        self._open_steps |= _steps(intents)

    def too_old(self, world: World) -> bool:
        """Whether a reading now would be newer than the world's view, and that view may be too old to start something on."""
        return not self.blind and self.outdated(world)  # else there is none to be had

    def outdated(self, world: World) -> bool:
        """Whether the world's view may be too old to start something on, whether or not a newer one is to be had."""
        return world.view is not None and (world.now - world.view.read_at).total_seconds() > self._new_s

    @property
    def blind(self) -> bool:
        """Whether the last reading of all of Slurm failed. Single nodes may be readable all the same: any user can make the listing of all
        jobs as long as slurmctld bears."""
        return self.slurm.error is not None

    @property
    def _new_s(self) -> float:
        return max(NEW_S, 2 * self.took_s)

    async def newer(self) -> None:
        """Wait until a new enough reading has ended, successfully or not, at most :data:`PATIENCE_S`: the one under way, or the next."""
        under_way = self._begun > self._done and _now_s() - self._began_s <= self._new_s
        wanted = self._begun if under_way else self._begun + 1
        if not under_way:
            self.look.set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while self._done < wanted:
                    self._read.clear()
                    await self._read.wait()
        except TimeoutError:
            return

    async def nodes_now(self, names: Collection[str]) -> Mapping[str, Node]:
        """Read these nodes now, also while all of Slurm is being read; empty: Slurm does not show them in time, or has not answered the
        question before yet: no more than one thread waits for it."""
        if self._nodes is not None and not self._nodes.done():
            return {}
        self._nodes = asyncio.create_task(asyncio.to_thread(self.slurm.nodes_now, names))
        try:
            async with asyncio.timeout(NODES_PATIENCE_S):
                return await asyncio.shield(self._nodes)
        except TimeoutError:
            return {}

    async def run(self) -> None:
        """Read until cancelled."""
        self.look, self._read = asyncio.Event(), asyncio.Event()
        self.event()
        while True:
            self.look.clear()
            await self._read_all()
            await asyncio.sleep(max(SPACING_S, min(self.took_s, PATIENCE_S)))
            await self._rest()

    async def _read_all(self) -> None:
        before = self.slurm.view
        self._begun += 1
        number, self._began_s = self._begun, _now_s()
        await asyncio.to_thread(self.slurm.refresh)
        self.took_s = _now_s() - self._began_s
        after = self.slurm.view
        self._pace.all_read(_now_s())
        if before is None or (after is not None and _differs(before, after)):
            self.wake()
        if self.slurm.lacks_something:
            self.slurm_changed()  # read once more: only then is it gone
        self._done = number
        self._read.set()

    async def _rest(self) -> None:
        """Wait until the next full reading is due or requested. Jobs between their stop and their restart are read meanwhile."""
        began_s = _now_s()
        while not self.look.is_set():
            left_s = began_s + self._pause_s() - SPACING_S - _now_s()
            if left_s <= 0:
                return
            due = self._jobs_due()
            if due:
                await self._read_jobs(due)
            await wait_for(self.look, min(left_s, self._pace.next_s(_now_s())))

    def _jobs_due(self) -> list[int]:
        world = self.world()
        self._pace.follow(moving_jobs(world) if world is not None else {}, _now_s())
        return self._pace.due(_now_s())

    async def _read_jobs(self, due: Collection[int]) -> None:
        before, began_s = self.slurm.view, _now_s()
        await asyncio.to_thread(self.slurm.refresh_jobs, self._pace.records(due))
        self._pace.read(due, _now_s(), _now_s() - began_s)
        after = self.slurm.view
        if before is None or after is None:
            return
        changed = [j for j in self._pace.records(due) if before.jobs.get(j) != after.jobs.get(j)]
        if any(_moved(before.jobs.get(j), after.jobs.get(j)) for j in changed):
            self.event()
            for job_id in due:
                self._pace.moved(job_id, _now_s())
        if changed:
            self.wake()

    def _since_event_s(self) -> float:
        return _now_s() - self._event_s if self._event_s is not None else 0.0

    def _pause_s(self) -> float:
        world = self.world()
        jobs = elastic_jobs(world.view) if world is not None and world.view is not None else ()
        slowest_s = min(self._elastic.longest_s(jobs, _now_s()), IDLE_S)
        return pause_s(self._since_event_s(), self.took_s, self.max_age_s(), slowest_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def wait_for(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the event, at most this long."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return


def _differs(before: ClusterView, after: ClusterView) -> bool:
    """Whether Slurm shows something new, apart from the time of the reading."""
    return (before.nodes, before.jobs, before.reservations) != (after.nodes, after.jobs, after.reservations)


def _is_for(intent: Intent, recovery: Recovery) -> bool:
    """Whether the step makes the recovery's job stop or start; setting a dead node DOWN requeues it."""
    if isinstance(intent.action, SetDown):
        return intent.incident_id == recovery.incident_id
    return intent.action.target.job == recovery.job


def _moved(before: Job | None, after: Job | None) -> bool:
    """Whether the job stopped, started or changed nodes. A new estimate of its start or another reason to wait does not count."""
    if before is None or after is None:
        return before is not after
    return (before.state, before.restarts, before.nodes) != (after.state, after.restarts, after.nodes)
