"""Map of elastic job → rendezvous: kept in the store, completed by the rendezvous that are open now. I/O."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from holdfast.decisions.common import slurm_view
from holdfast.decisions.common.elastic_jobs import ElasticJob, elastic_jobs
from holdfast.decisions.elastic.naming import Opened, remembered, room_of, unsettled
from holdfast.model.book import World
from holdfast.model.elastic_jobs.room_names import KnownRoom
from holdfast.model.elastic_jobs.rooms import RoomView
from holdfast.model.errors import LeaderFencedOff, OutsideError
from holdfast.ports import QuorumRooms, Store

log = logging.getLogger(__name__)


def remember(world: World, service: QuorumRooms, rooms: Iterable[RoomView], store: Store, fence: int) -> World:
    """Add what is known now to the world, and write it to the store (if the store does not answer: in the next cycle). Blocks.

    While another controller leads nothing is changed. ``rooms``: the open ones. Raises Unavailable where the service is away."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return world
    known = world.book.rooms
    now = remembered(view, known, opened(service, rooms, unsettled(elastic_jobs(view), known)))
    if now != known:
        try:
            store.remember_rooms(now.values(), fence)
        except LeaderFencedOff:
            return world
        except OutsideError as error:  # an eviction does not wait for the store
            log.debug("event=rooms_not_kept error=%r", str(error))
        for each in now.values():
            if known.get(each.base_array_id) != each:
                log.info("event=room_named room=%s uid=%d exact=%s", each.room, each.uid, each.exact)
    return replace(world, book=replace(world.book, rooms=now))


def ask_room(world: World, service: QuorumRooms, job: ElasticJob) -> KnownRoom:
    """The rendezvous of this job, which may not be open yet. Blocks. Raises Unavailable."""
    known = world.book.rooms
    asked = unsettled((job,), known)
    there = opened(service, service.rooms(), asked) if asked else {}
    return room_of(job, known.get(job.base_array_id), there)


def opened(service: QuorumRooms, rooms: Iterable[RoomView], asked: frozenset[int]) -> Opened:
    """The rendezvous of elastic jobs among these. ``asked``: base arrays for which the record of a rendezvous named only by its id is
    read."""
    names = [name for room in rooms if (name := room.name_of_job) is not None]
    old = {n for n in names if n.submitted_s is None and n.base_array_id in asked}
    return {name: service.began(name.text) if name in old else None for name in names}
