"""Elastic jobs as Slurm reports them, rendezvous in memory behind the controller's port, and clients of a real quorum service."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from holdfast.model.elastic_jobs.rooms import OpenRoom, RoomRecord, RoomRules, RoomView
from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey
from holdfast.quorum import messages
from holdfast.quorum.identity import GroupIdentity, replica_name, room_token
from holdfast.quorum.nouns import QuorumMember, RoomEvent, Rules
from holdfast.quorum.room import Rendezvous

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BASE, FLEX = 71, 81
KEY = b"k" * 32


def group_job(job_id: int, **changed: Any) -> Job:
    """An element of the base array, running on n1 since a minute before T0."""
    plain = Job(
        key=JobKey("practice", job_id, T0 - timedelta(minutes=2)),
        name="train",
        user="ada",
        uid=1001,
        account="",
        partition="gpu",
        qos="",
        state="RUNNING",
        reason="None",
        restarts=0,
        requeue=True,
        batch=True,
        num_nodes=1,
        nodes=("n1",),
        required_nodes=(),
        excluded_nodes=(),
        comment="holdfast elastic=2:4",
        start_time=T0 - timedelta(minutes=1),
        array_job_id=BASE,
        array_task_id=0,
        exclusive=True,
    )
    return replace(plain, **changed)


def flexible_job(job_id: int, **changed: Any) -> Job:
    flexible = {
        "comment": f"holdfast elastic=2:4 of={BASE}",
        "array_job_id": FLEX,
        "array_task_id": 2,
        "nodes": ("n3",),
    }
    return group_job(job_id, **{**flexible, **changed})


def four_groups() -> tuple[Job, ...]:
    """Groups 0 and 1 of the base array, 2 and 3 of the flexible one, each on the node whose number is its own plus one."""
    base = (group_job(72), group_job(BASE, array_task_id=1, nodes=("n2",)))
    return (*base, flexible_job(82), flexible_job(FLEX, array_task_id=3, nodes=("n4",)))


def view_of(*jobs: Job, at: datetime = T0) -> ClusterView:
    return ClusterView("practice", at, {}, {job.key.job_id: job for job in jobs}, {})


@dataclass
class MemoryRooms:
    """Implements :class:`holdfast.ports.QuorumRooms` with the service's own rules, in this process; every moment is ``now_s``."""

    now_s: float = 0.0
    at: datetime = T0
    away: bool = False
    calls: list[tuple[str, ...]] = field(default_factory=list)
    _rooms: dict[str, Rendezvous] = field(default_factory=dict)
    _records: list[RoomRecord] = field(default_factory=list)

    def open(self, room: str, rules: RoomRules) -> OpenRoom:
        self._answer("open", room)
        if not 1 <= rules.min_groups <= rules.max_groups:
            raise Rejected("1 <= min_groups <= max_groups")
        times_s = rules.heartbeat_timeout_s, rules.join_timeout_s
        how = Rules(rules.min_groups, rules.max_groups, *times_s, groups=rules.groups)
        self._rooms.setdefault(room, Rendezvous(how)).rules = how
        return OpenRoom(f"http://head:4{len(room):04}", room_token(KEY, room))

    def evict(self, room: str, member: str, reason: str) -> tuple[str, ...]:
        self._answer("evict", room, member, reason)
        gone = tuple(map(str, self._room(room).evict(member, reason)))
        self.take(room)
        return gone

    def close(self, room: str) -> None:
        self._answer("close", room)
        self._room(room)
        del self._rooms[room]
        self._record(room, RoomEvent("closed"))

    def rooms(self) -> tuple[RoomView, ...]:
        self._answer("rooms")
        return tuple(
            RoomView(
                name,
                tuple(sorted(map(str, room.known()))),
                tuple(str(m.identity) for m in room.last.members) if room.last else (),
                frozenset(room.gone),
            )
            for name, room in sorted(self._rooms.items())
        )

    def records(self, after_id: int, limit: int) -> tuple[RoomRecord, ...]:
        self._answer("records")
        return tuple(r for r in self._records if r.id > after_id)[:limit]

    def began(self, room: str) -> datetime | None:
        self._answer("began", room)
        first = None
        for record in (r for r in self._records if r.room == room):
            first = None if record.kind == "closed" else first or record.at
        return first

    def meet(self, room: str, *members: str, step: int = 0) -> None:
        """These (``GROUP~START:uuid``) request their next step; then the clock is read."""
        for name in members:
            who = _identity(name)
            self._room(room).ask(QuorumMember(who, name, "", "", step, 1), self.now_s)
        self.tick(room)

    def tick(self, room: str) -> None:
        self._room(room).tick(self.now_s)
        self.take(room)

    def take(self, room: str) -> None:
        """Record what happened."""
        events, self._room(room).events = self._room(room).events, []
        for event in events:
            self._record(room, event)

    def _record(self, room: str, event: RoomEvent) -> None:
        number = len(self._records) + 1
        told = (event.kind, event.who, event.reason, event.quorum_id, event.step, event.members)
        self._records.append(RoomRecord(number, room, self.at, *told))

    def _room(self, name: str) -> Rendezvous:
        if name not in self._rooms:
            raise NotFound(f"there is no room {name}")
        return self._rooms[name]

    def _answer(self, *call: str) -> None:
        if self.away:
            raise Unavailable("the quorum service does not answer")
        self.calls.append(call)


def _identity(name: str) -> GroupIdentity:
    told, _, uuid = name.rpartition(":")
    group, _, start = told.partition("~")
    return GroupIdentity(group, start, uuid)


class Caller:
    """One group of a real rendezvous, as its Manager's calls appear from outside. A context manager."""

    def __init__(self, opened: OpenRoom, group: int, start: str) -> None:
        self.name = replica_name(opened.token, str(group), start) + ":u"
        self._channel = grpc.insecure_channel(opened.url.removeprefix("http://"))

    def __enter__(self) -> Caller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def beat(self) -> None:
        self._call("Heartbeat", messages.HeartbeatRequest(replica_id=self.name), 20.0)

    def asking(self, step: int = 0, within_s: float = 60.0) -> Any:
        """A call for the next quorum, under way: ``result()`` has its raw answer."""
        request = messages.QuorumRequest()
        request.requester.replica_id, request.requester.step = self.name, step
        method: Any = self._channel.unary_unary(f"/{messages.SERVICE}/Quorum")
        return method.future(request.SerializeToString(), timeout=within_s, wait_for_ready=True)

    def _call(self, method: str, request: Any, within_s: float) -> bytes:
        call: Any = self._channel.unary_unary(f"/{messages.SERVICE}/{method}")
        answer: bytes = call(request.SerializeToString(), timeout=within_s, wait_for_ready=True)
        return answer


def socket_of(folder: Path) -> Path:
    """Where ``bench.kit.rooms.Rooms`` has its service listen."""
    return folder / "quorum.sock"
