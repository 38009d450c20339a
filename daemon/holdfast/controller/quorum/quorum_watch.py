"""Exchange between the controller and the quorum service: evictions, closed rendezvous, the service's record.

Two tasks run alongside the control loop, so that neither the store nor the record delays an eviction. Each runs once per cycle of the loop
and does nothing while another controller leads. While the service is away nothing fails: requests are sent once it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from holdfast import unexpected
from holdfast.controller.quorum.quorum_names import remember
from holdfast.controller.quorum.quorum_note import NOTE, read_note, restored, write_note
from holdfast.decisions.elastic.evictions import Eviction, Fading, Met, due, forsaken, met_in
from holdfast.decisions.elastic.ledger import fold
from holdfast.model.book import World
from holdfast.model.elastic_jobs.rooms import RoomView
from holdfast.model.errors import LeaderFencedOff, NotFound, OutsideError, Stale
from holdfast.ports import Clock, QuorumRooms, Store

log = logging.getLogger(__name__)

PAGE = 500


@dataclass
class QuorumWatch:
    """Tasks for the quorum service. They run in the control loop's event loop; external calls run in threads."""

    rooms: QuorumRooms
    store: Store
    clock: Clock
    _world: World | None = None
    _fence: int = 0
    _evict: asyncio.Event = field(default_factory=asyncio.Event)
    _read: asyncio.Event = field(default_factory=asyncio.Event)
    _fading: Fading = field(default_factory=dict)
    _met: Met = field(default_factory=dict)
    _forsaken: Mapping[str, datetime] = field(default_factory=dict)
    _away: str = ""

    def look(self, world: World, fence: int) -> None:
        """Take over the world, with its decisions, after the leader's cycle was committed."""
        self._world, self._fence = world, fence
        self._evict.set()
        self._read.set()

    async def run(self) -> None:
        """Run both tasks until cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._keep_evicting())
            both.create_task(self._keep_reading())

    async def _keep_evicting(self) -> None:
        while True:
            await self._evict.wait()
            self._evict.clear()
            world = self._world
            if world is not None and await _survived("quorum_evictions", partial(self.tend, world)):
                self._read.set()

    async def _keep_reading(self) -> None:
        while True:
            await self._read.wait()
            self._read.clear()
            world, fence = self._world, self._fence
            if world is not None:
                await _survived("quorum_record", partial(self.read_on, world, fence))

    def tend(self, world: World) -> bool:
        """Evict the groups that are due and close rendezvous that are no longer needed. True: something was done. Raises no error of the
        service."""
        read_at = self.clock.now()
        try:
            rooms = self.rooms.rooms()
            world = remember(world, self.rooms, rooms, self.store, self._fence)
            self._met = met_in(rooms, read_at, self._met)
            found, self._fading = due(world, rooms, self._met, self._fading)
            closing, self._forsaken = forsaken(world, rooms, self._forsaken)
            for eviction in found:
                self._send(eviction)
            for name in closing:
                self.rooms.close(name)
                log.info("event=room_closed room=%s", name)
        except NotFound:
            return True  # closed a moment ago
        except OutsideError as error:
            self._note_away(str(error))
            return False
        self._note_back(rooms)
        return bool(found or closing)

    def _send(self, eviction: Eviction) -> None:
        gone = self.rooms.evict(eviction.room, eviction.run.selector, eviction.reason)
        log.info(
            "event=evicted room=%s run=%s incident=%s there=%d reason=%r",
            eviction.room,
            eviction.run.selector,
            eviction.incident_id or "-",
            len(gone),
            eviction.reason,
        )

    def _note_away(self, error: str) -> None:
        if not self._away:
            log.warning("event=quorum_service_away error=%r", error)
        self._away = error

    def _note_back(self, rooms: tuple[RoomView, ...]) -> None:
        if self._away:
            log.info("event=quorum_service_back rooms=%d", len(rooms))
        self._away = ""

    def read_on(self, world: World, fence: int) -> None:
        """Copy new entries of the service's record into the store, once. Raises no error of an external system."""
        jobs = world.view.jobs if world.view is not None else {}
        try:
            while True:
                before = self.store.note(NOTE)
                read = read_note(before)
                if read is None:
                    restored(self.store, before or "", self.clock.now(), fence)
                    return  # the next cycle reads on
                records = self.rooms.records(read.after_id, PAGE)
                if not records:
                    return
                read, events = fold(read, records, jobs)
                self.store.record_once(NOTE, before, write_note(read), events, fence)
        except (Stale, LeaderFencedOff):
            return  # another controller reads it now
        except OutsideError as error:
            log.debug("event=quorum_record_unread error=%r", str(error))


async def _survived(part: str, work: Callable[[], object]) -> bool:
    """Result of the work, run in a thread. False where it raises; the next cycle tries again."""
    try:
        found = await asyncio.to_thread(work)
    except Exception as error:  # noqa: BLE001 - evictions and the record do not hold each other up, nor end the controller
        unexpected.failed(part, error)
        return False
    unexpected.passed(part)
    return bool(found)
