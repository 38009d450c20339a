"""The control loop: observe, decide, commit, wake the actor. A report wakes it at once; otherwise a tick does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from holdfast import unexpected
from holdfast.controller.condition_keeper import ConditionKeeper
from holdfast.controller.keeping.expiring import expired
from holdfast.controller.keeping.first_drains import drains, faulty_nodes, only_drains, with_nodes, worth_reading
from holdfast.controller.keeping.steps_untaken import UntakenWatch
from holdfast.controller.lease_holder import ObservedLease
from holdfast.controller.observing.background import READ_EVERY_S
from holdfast.controller.observing.head_reach import EVERY_S
from holdfast.controller.observing.observe import Observer
from holdfast.controller.observing.slurm_reader import SlurmReader, begins_something, wait_for
from holdfast.controller.orders import OrderHub
from holdfast.controller.quorum.quorum_watch import QuorumWatch
from holdfast.controller.timing.cycles import MOST_FAILED_TURNS, Cycles
from holdfast.controller.timing.stage_times import StageTimes
from holdfast.decisions.careful import InputSetAside, Turned, careful_turn, turn_without
from holdfast.decisions.inputs import Input
from holdfast.decisions.nodes.adopt_drains import lost_memory
from holdfast.decisions.turn import apply, turn
from holdfast.model.actions.action import IntentState, SendOrder
from holdfast.model.book import Change, NodeRecord, World
from holdfast.model.errors import LeaderFencedOff, OutsideError
from holdfast.model.event import Event, EventKind
from holdfast.ports import Lease, Operation, Store

log = logging.getLogger(__name__)

TICK_S = 1.0
LEASE_TTL_S = 15.0
BACKGROUND, PRUNE = "background", "prune"
"""Background parts of the loop: reading histories and topology, removing old records."""
LONGEST_PAUSE_S = 10.0
"""Longest pause between two failing turns; shorter than the lease, which is still renewed."""
AGAIN_S = 1.0
"""Pause before a part of the loop is restarted that ended for lack of a resource, such as descriptors."""
CALM_S = 30.0
"""A restarted part counts as working after it has run for this long."""
PRUNE_EVERY_S = 6 * 3600.0
PRUNE_AFTER_S = 600.0
"""Time until the first pruning, short so that a controller that is restarted every few hours prunes, too."""


@dataclass
class ControlLoop:
    """The controller's main loop. One asyncio task; everything that may block runs in a thread."""

    observer: Observer
    store: Store
    hub: OrderHub
    holder: str
    """Id of this process in the lease."""
    ring: Callable[[], None]
    """Wakes the actor."""
    new_id: Callable[[datetime], str]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    world: World | None = None
    turned_at_s: float | None = None
    lease: Lease | None = None
    ended: frozenset[str] = frozenset()
    """Ids of earlier processes on this machine that have ended: their lease is taken over at once."""
    standing: ObservedLease = field(default_factory=lambda: ObservedLease(LEASE_TTL_S))
    """Another controller's lease, while it is not renewed."""
    led_by: str | None = None
    """Lease holder as of the last turn; None: not known."""
    stopping: bool = False
    keep: timedelta = timedelta(days=400)
    """Events and closed incidents older than this are removed."""
    beat: Callable[[], None] = lambda: None
    """Called after each cycle, except after many consecutive failures; notifies systemd that this process is alive."""
    prune: Callable[[datetime], object] | None = None
    """Removes what is older than the given time; None: nothing is removed."""
    untaken: UntakenWatch = field(default_factory=UntakenWatch)
    """Steps that no actor takes."""
    rooms: QuorumWatch | None = None
    """Client of the quorum service; None: this site has none."""
    aside: tuple[InputSetAside, ...] = ()
    """Inputs that no decision can be made about; kept unchanged in the store."""
    cycles: Cycles = field(default_factory=Cycles)
    """Outcome of the last cycles."""
    committed_s: float | None = None
    """Monotonic time of this process's last successful write as the leader; None: none yet."""
    _held_until_s: float = 0.0
    reader: SlurmReader = field(init=False)
    """Reads Slurm."""
    conditions: ConditionKeeper = field(init=False)
    """Record of what lasts and belongs to no incident."""
    stages: StageTimes = field(init=False)
    """Durations of the stages of turns."""
    _told: set[Input] = field(default_factory=set)
    """Inputs already logged as set aside."""

    def __post_init__(self) -> None:
        self.conditions = ConditionKeeper(self.store)
        self.stages = StageTimes(self.observer.clock.monotonic_s)
        self.reader = SlurmReader(
            self.observer.slurm,
            lambda: self.observer.policy.view_max_age_s,
            self._woken,
            lambda: self.world,
        )

    def _woken(self) -> None:
        self.wake.set()

    async def run(self) -> None:
        """Main loop of Holdfast: wait for a reason, then run one turn, until stopped."""
        # Without new readings of Slurm it would decide on old data, and groups would wait for members that never come: exit, be restarted.
        parts = (
            ("slurm_reader", self.reader.run),
            ("head_reach", self._reach_silent_nodes),
            ("rooms", self._keep_rooms),
        )
        needed = [asyncio.create_task(_kept_up(part, run)) for part, run in parts]
        useful = [asyncio.create_task(each()) for each in (self._prune, self._read_background)]
        try:
            while not self.stopping:
                self.wake.clear()
                try:
                    if await asyncio.to_thread(self._lead):
                        await self._cycle()
                except Exception as error:  # a process that exits would meet it again after its restart
                    self.cycles.ended(error)
                    if isinstance(error, LeaderFencedOff):
                        self._lost()
                    if self.cycles.failed_turns >= MOST_FAILED_TURNS:
                        raise
                else:
                    self.cycles.passed()
                self.turned_at_s = self.observer.clock.monotonic_s()
                for ended in filter(asyncio.Task.done, needed):
                    ended.result()
                if self.cycles.may_live:
                    self.beat()
                await self._pause()
        finally:
            for each in (*needed, *useful):
                each.cancel()

    async def _pause(self) -> None:
        """Wait until there is a reason for a turn; after failed turns, wait longer each time, whatever happens."""
        if not self.cycles.failed_turns:
            await wait_for(self.wake, TICK_S)
            return
        clock_s = asyncio.get_running_loop().time
        until_s = clock_s() + min(TICK_S * 2.0 ** (self.cycles.failed_turns - 1), LONGEST_PAUSE_S)
        while not self.stopping and (left_s := until_s - clock_s()) > 0:
            self.wake.clear()
            await wait_for(self.wake, left_s)

    async def _cycle(self) -> None:
        lease = self.lease
        assert lease is not None  # noqa: S101 - _lead() said so
        world, change = await self._decide_on_new(lease.fence)
        self.world = world
        self.reader.turned(world, change)
        self.untaken.look(world, self.observer.clock.monotonic_s())
        if not change.empty:
            await self._commit(change, lease.fence)
        if self.rooms is not None:
            self.rooms.look(replace(world, book=apply(world.book, change)), lease.fence)
        await asyncio.to_thread(self._expire_orders, world, lease.fence)
        if change.incidents or change.recoveries:
            self.wake.set()  # the change may allow the next step at once

    async def _decide_on_new(self, fence: int) -> tuple[World, Change]:
        """The world and the decision about it. Slurm is read seldom while nothing happens, so a decision that starts something is made
        again on a newer view. No step is then based on an older view than if Slurm were read all the time."""
        world = await self._drain_first(fence)
        if faulty_nodes(world):
            world = await self._on_newer(world, fence)
        change = (await self._decide(world, fence)).change
        if begins_something(change) and (newer := await self._on_newer(world, fence)) is not world:
            world, change = newer, (await self._decide(newer, fence)).change
        return world, change

    async def _on_newer(self, world: World, fence: int) -> World:
        """The world with a newer view, where its own is too old to start something on. If Slurm does not answer, this takes seconds; faults
        reported meanwhile are not delayed."""
        if not self.reader.too_old(world):
            return world
        woken, reading = False, asyncio.create_task(self.reader.newer())
        try:
            while not reading.done():
                waking = asyncio.create_task(self.wake.wait())
                await asyncio.wait((reading, waking), return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if not reading.done():
                    self.wake.clear()  # right before the read below: a later report wakes the loop again
                    woken = True
                    await self._drain_first(fence)
        finally:
            reading.cancel()
        if woken:
            self.wake.set()
        return await asyncio.to_thread(self._look)

    async def _drain_first(self, fence: int) -> World:
        """Drain faulty nodes that need no full reading of Slurm (:mod:`.first_drains`), and return the world after that."""
        world = await asyncio.to_thread(self._look)
        names = worth_reading(world, blind=self.reader.blind) if self.reader.outdated(world) else ()
        nodes = await self.reader.nodes_now(names) if names else {}
        if not nodes:
            return world

        def decide(world: World) -> Change:
            return turn(world, self.new_id, fence, drains(nodes), self.stages.around)

        try:
            change = turn_without(with_nodes(world, nodes), decide, self.aside).change
        except Exception:  # noqa: BLE001 - the whole turn meets it again, and looks into it
            return world
        if not only_drains(change, nodes):
            return world
        await self._commit(change, fence)
        return await asyncio.to_thread(self._look)

    async def _commit(self, change: Change, fence: int) -> None:
        self.reader.planned(change.intents)
        await asyncio.to_thread(self.store.commit, self.observer.as_recorded(change), fence)
        self._announce(change)

    async def _decide(self, world: World, fence: int) -> Turned:
        def decide(world: World) -> Change:
            return turn(world, self.new_id, fence, around=self.stages.around)

        try:
            turned = turn_without(world, decide, self.aside)
        except Exception:  # noqa: BLE001 - looked into in a thread: that takes many turns
            turned = await asyncio.to_thread(careful_turn, world, decide, self.new_id, self.aside)
        self.set_aside(turned)
        return turned

    def set_aside(self, turned: Turned) -> None:
        """Remember the inputs that this turn has set aside, and log each once."""
        self.aside = turned.aside
        for each in turned.new:
            if each.what not in self._told:
                self._told.add(each.what)
                log.error(
                    "event=input_set_aside part=%s key=%s node=%s what=%r error=%r",
                    each.what.part.value,
                    each.what.key,
                    each.what.node or "-",
                    each.what.what,
                    each.error,
                )

    def _look(self) -> World:
        """Read the world. Pause first if the store has lost the steps under way: no step is taken on incomplete records."""
        world = self.observer.world()
        self._record_step(world)
        why = lost_memory(world)
        if why is None:
            return self.conditions.follow(world, self.lease, self.observer.clock.monotonic_s())
        log.error("event=store_lost reason=%r", why)
        self.store.operate(Operation("pause", "holdfast", reason=why), world.now)
        return self.observer.world()

    def _record_step(self, world: World) -> None:
        """Record a step of the clock, once."""
        step_s, lease = self.observer.new_step_s, self.lease
        if step_s is None or lease is None:
            return
        way = "ahead" if step_s > 0 else "back"
        text = f"the clock of the controller's machine was set {way} by {abs(step_s):.0f} s: patiences and pauses continue as they were"
        event = Event(world.now, EventKind.CLOCK_STEP, text=text, detail={"seconds": round(step_s, 1)})
        self.store.commit(Change(events=(event,)), lease.fence)
        self.observer.new_step_s = None

    def _announce(self, change: Change) -> None:
        for event in change.events:
            log_event(event)
        for record in change.nodes:
            self._forget_other_machines(record)
        for intent in change.intents:
            if isinstance(intent.action, SendOrder) and intent.state is IntentState.PLANNED:
                self.hub.notify(intent.action.node)
        if any(not isinstance(i.action, SendOrder) for i in change.intents):
            self.ring()

    def _forget_other_machines(self, record: NodeRecord) -> None:
        """Drop the state of a node's former machine after the node's name was handed over."""
        for agent in self.observer.agents.views().get(record.name, ()):
            if agent.instance_id != record.instance_id:
                self.observer.agents.forget(record.name, agent.instance_id)

    def _lead(self) -> bool:
        """Take or renew the lease; False: another controller leads."""
        clock = self.observer.clock
        asked_s = clock.monotonic_s()
        before = self.store.lease()
        ended = self.ended | self.standing.ended(before, asked_s)
        lease = self.store.take_lease(self.holder, clock.now(), LEASE_TTL_S, ended)
        shown = lease or self.store.lease()
        self.led_by = shown.holder if shown is not None else None
        if lease is not None and (self.lease is None or lease.fence != self.lease.fence):
            log.info("event=leader holder=%s fence=%d", lease.holder, lease.fence)
        if lease is not None and self.lease is None and before is not None:
            self.observer.led_at = before.expires_at - timedelta(seconds=LEASE_TTL_S)
        if lease is None and self.lease is not None:
            log.warning("event=leader_lost holder=%s leader=%s", self.holder, self.led_by)
        if lease is None:
            self.untaken.forget()
        self.lease = lease
        if lease is not None:
            self._held_until_s = asked_s + LEASE_TTL_S
            self.committed_s = clock.monotonic_s()
        return lease is not None

    def _lost(self) -> None:
        self.lease = None
        self.untaken.forget()

    @property
    def trouble(self) -> str | None:
        """Why nothing is decided at present; None: turns pass."""
        return self.cycles.trouble

    @property
    def leads(self) -> bool:
        """Whether this process holds the lease now. A lease that was not renewed in time may be taken by another controller."""
        return self.lease is not None and self.observer.clock.monotonic_s() < self._held_until_s

    @property
    def shown_leader(self) -> str | None:
        """The leader as far as known; not this process once its own lease has expired."""
        return None if self.led_by == self.holder and not self.leads else self.led_by

    def _expire_orders(self, world: World, fence: int) -> None:
        for intent in world.book.intents.values():
            ended = expired(world, intent)
            if ended is not None:
                self.store.finish_intent(intent.key, fence, ended, world.now)
                self.wake.set()

    async def _read_background(self) -> None:
        """Read histories and topology; outside the cycle, since a query over weeks takes time."""
        while True:
            world = self.world
            if world is not None and self.leads:
                await self._in_background(BACKGROUND, partial(self.observer.background.refresh, world))
            await asyncio.sleep(READ_EVERY_S if world is not None and self.leads else TICK_S)

    async def _reach_silent_nodes(self) -> None:
        """Connect to the silent nodes from this host; outside the cycle, since each takes up to its timeout."""
        while True:
            if (
                self.world is not None
                and self.leads
                and await asyncio.to_thread(self.observer.head.refresh, self.world)
            ):
                self.wake.set()
            await asyncio.sleep(EVERY_S)

    async def _keep_rooms(self) -> None:
        if self.rooms is not None:
            await self.rooms.run()

    async def _prune(self) -> None:
        """Remove old records so that the store does not grow forever; outside the cycle, in small steps."""
        pause_s = PRUNE_AFTER_S
        while self.prune is not None:
            await asyncio.sleep(pause_s)
            pause_s = PRUNE_EVERY_S
            if self.leads:
                before = self.observer.clock.now() - self.keep
                await self._in_background(PRUNE, partial(self.prune, before))

    async def _in_background(self, part: str, work: Callable[[], object]) -> None:
        """Run the work in a thread. An error ends nothing and leaves the previous state."""
        try:
            await asyncio.to_thread(work)
        except OutsideError as error:
            log.warning("event=%s_failed error=%r", part, str(error))
        except Exception as error:  # noqa: BLE001 - decisions do without it
            unexpected.failed(part, error)
        else:
            unexpected.passed(part)


async def _kept_up(part: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run it, and restart it where the machine lacked a resource (OSError), since a later try may succeed. Raises anything else."""
    while True:
        calm = asyncio.get_running_loop().call_later(CALM_S, unexpected.passed, part)
        try:
            return await run()
        except OSError as error:
            unexpected.failed(part, error)
        finally:
            calm.cancel()
        await asyncio.sleep(AGAIN_S)


def log_event(event: Event) -> None:
    """Log one key=value line per state change; node, incident and job are always present."""
    level = logging.WARNING if event.kind in (EventKind.BRAKE_TRIPPED, EventKind.ACTION_WITHHELD) else logging.INFO
    log.log(
        level,
        "event=%s incident=%s node=%s job=%s text=%r",
        event.kind.value,
        event.incident_id or "-",
        event.node or "-",
        event.job or "-",
        event.text,
    )
