"""Reads Slurm beside the control loop: often while something happens, seldom otherwise, and never faster than slurmctld bears.

All of Slurm is read :data:`BUSY_S` after an event (a finding, a decision, a step's outcome, a job that moves), then ever more seldom,
down to :data:`IDLE_S`. What waits, for a consent or for the end of a job, is no event. In between only the jobs on their way are read.
A decision that begins something is made on a view that is younger than :meth:`SlurmReader.too_old` allows (``loop.py``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from holdfast.controller.groups import elastic_jobs
from holdfast.controller.observe import SlurmWatch
from holdfast.model.book import Change, World
from holdfast.model.cluster import ClusterView, Node
from holdfast.model.incident import IncidentState, RecoveryPhase

BUSY_S = 0.25
"""Pause between two readings right after an event."""
IDLE_S = 10.0
"""The longest pause."""
ELASTIC_S = 1.0
"""The longest pause while an elastic job is there: it grows and shrinks by what Slurm shows."""
SLOWING = 0.1
"""The pause as a share of the time since the last event."""
GENTLE = 10.0
"""The pause is at least this many times what the last reading took, its questions to slurmctld included."""
OLDEST = 2 / 3
"""The pause, and the reading before it, take at most this share of the age at which decisions freeze (``view_max_age_s``)."""
SPACING_S = 0.05
"""Least pause between two readings, however often something says that Slurm has changed; at least as long as a reading takes."""
NEW_S = 2.0
"""A view of this age, or of two readings' time where that is longer, is as good as new."""
JOB_S, JOB_SLOWING, JOB_SLOWEST_S = 0.03, 0.01, 1.0
"""Pause between two readings of a job on its way: shortest, as a share of the time since the last event, longest."""
MOST_MOVING_JOBS = 4
NODES_PATIENCE_S = 2.0
"""A decision waits this long for the faulty nodes alone; then for all of Slurm."""
PATIENCE_S = 5.0
"""A decision waits this long for a newer view. Then it is made on the one there is, unless that one is so old that decisions freeze."""


def pause_s(since_event_s: float, took_s: float, max_age_s: float, slowest_s: float = IDLE_S) -> float:
    """Seconds between two readings of all of Slurm. ``took_s``: the last one. ``max_age_s``: ``view_max_age_s``."""
    wanted_s = min(max(BUSY_S, SLOWING * since_event_s), slowest_s)
    return max(min(max(wanted_s, GENTLE * took_s), OLDEST * max_age_s - took_s), BUSY_S)


def job_pause_s(since_event_s: float) -> float:
    """Seconds between two readings of the jobs on their way."""
    return min(max(JOB_S, JOB_SLOWING * since_event_s), JOB_SLOWEST_S)


def moving_jobs(world: World) -> list[int]:
    """Records of jobs between their stop and their restart; of a heterogeneous job all components."""
    phases = (RecoveryPhase.STOPPING, RecoveryPhase.RESTARTING)
    moving = sorted(r.job.job_id for r in world.book.recoveries.values() if r.phase in phases)
    jobs = world.view.jobs if world.view is not None else {}
    parts = {n: [p.key.job_id for p in jobs[n].components] if n in jobs else [n] for n in moving}
    return [number for n in moving[:MOST_MOVING_JOBS] for number in parts[n]]


def begins_something(change: Change) -> bool:
    """Whether the change plans a step, or moves or opens anything but an incident that is only watched."""
    moved = any(i.state is not IncidentState.WATCHING for i in change.incidents)
    return moved or bool(change.recoveries or change.intents)


@dataclass
class SlurmReader:
    """One asyncio task; readings happen in threads. Written and read in the loop's event loop only."""

    slurm: SlurmWatch
    max_age_s: Callable[[], float]
    """``view_max_age_s`` of the policy."""
    wake: Callable[[], None]
    """Called when Slurm shows something new."""
    world: Callable[[], World | None]
    """As of the last turn."""
    look: asyncio.Event = field(default_factory=asyncio.Event)
    """Read soon."""
    took_s: float = 0.0
    """How long the last reading took."""
    _event_s: float | None = None
    _begun: int = 0
    _done: int = 0
    _began_s: float = 0.0
    _read: asyncio.Event = field(default_factory=asyncio.Event)
    _open_steps: frozenset[str] = frozenset()

    def event(self) -> None:
        """Something happens: Slurm is read often from now on."""
        self._event_s = _now_s()

    def slurm_changed(self) -> None:
        """Something was done to Slurm: it is read soon."""
        self.event()
        self.look.set()

    def turned(self, world: World, change: Change) -> None:
        """What a turn saw and changed."""
        steps = frozenset(i.key for i in world.book.intents.values() if not i.settled)
        if begins_something(change) or steps != self._open_steps:
            self.event()
        self._open_steps = steps

    def too_old(self, world: World) -> bool:
        """Whether the world's view is older than what is read now would be, and may be too old to begin something on."""
        if world.view is None or self.slurm.error is not None:
            return False  # there is none to be had
        return (world.now - world.view.read_at).total_seconds() > self._new_s

    @property
    def _new_s(self) -> float:
        return max(NEW_S, 2 * self.took_s)

    async def newer(self) -> None:
        """Until a reading that is new enough has ended, well or badly, at most :data:`PATIENCE_S`: the one under way, or the next."""
        under_way = self._begun > self._done and _now_s() - self._began_s <= self._new_s
        wanted = self._begun if under_way else self._begun + 1
        self.event()
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
        """These nodes as Slurm shows them now, also while all of Slurm is being read; empty: it does not show them in time."""
        try:
            async with asyncio.timeout(NODES_PATIENCE_S):
                return await asyncio.to_thread(self.slurm.nodes_now, names)
        except TimeoutError:
            return {}

    async def run(self) -> None:
        """Until cancelled."""
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
        if before is None or (after is not None and _differs(before, after)):
            self.wake()
        if self.slurm.lacks_something:
            self.slurm_changed()  # read once more: only then is it gone
        self._done = number
        self._read.set()

    async def _rest(self) -> None:
        """Until it is time for all of Slurm again, or something asks for it. Jobs on their way are read meanwhile."""
        began_s = _now_s()
        while not self.look.is_set():
            left_s = began_s + self._pause_s() - SPACING_S - _now_s()
            if left_s <= 0:
                return
            world = self.world()
            moving = moving_jobs(world) if world is not None else []
            if moving:
                await self._read_jobs(moving)
                left_s = min(left_s, job_pause_s(self._since_event_s()))
            await wait_for(self.look, left_s)

    async def _read_jobs(self, moving: Collection[int]) -> None:
        before = self.slurm.view
        await asyncio.to_thread(self.slurm.refresh_jobs, moving)
        after = self.slurm.view
        if before is not None and after is not None and any(before.jobs.get(j) != after.jobs.get(j) for j in moving):
            self.event()
            self.wake()

    def _since_event_s(self) -> float:
        return _now_s() - self._event_s if self._event_s is not None else 0.0

    def _pause_s(self) -> float:
        world = self.world()
        elastic = world is not None and world.view is not None and elastic_jobs(world.view)
        slowest_s = ELASTIC_S if elastic else IDLE_S
        return pause_s(self._since_event_s(), self.took_s, self.max_age_s(), slowest_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def wait_for(event: asyncio.Event, timeout_s: float) -> None:
    """Until the event, at most so long."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return


def _differs(before: ClusterView, after: ClusterView) -> bool:
    """Whether Slurm shows something new; the time of reading is not news."""
    return (before.nodes, before.jobs, before.reservations) != (after.nodes, after.jobs, after.reservations)
