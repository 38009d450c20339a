"""What the API needs of the rest of the controller, handed in by the wiring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel
from starlette.responses import Response

from holdfast.api.callers.auth import Authenticator, TokenStore
from holdfast.api.callers.quota import AgentQuota
from holdfast.api.callers.readers import ReaderQuotas, metered
from holdfast.api.callers.stranger_turns import Strangers
from holdfast.api.counters import ApiCounters
from holdfast.api.errors import ApiError
from holdfast.api.shared import SharedAnswers
from holdfast.api.stream import StreamFrame, Streams, frame_of
from holdfast.api.transport.connections import Connections
from holdfast.config.sections import EnrolmentSection, QuorumSection
from holdfast.controller.keeping.steps_untaken import UntakenWatch
from holdfast.controller.observing.agents import AgentRegistry
from holdfast.controller.orders import OrderHub
from holdfast.decisions.inputs import Input
from holdfast.decisions.parts import Certificate
from holdfast.decisions.turn import STAGES
from holdfast.metrics.figures import IncidentFigures
from holdfast.metrics.tally import Tally
from holdfast.metrics.timings import IncidentTimings
from holdfast.model.access.enrolment import EnrolmentProof, StsIdentity
from holdfast.model.actions.action import Intent
from holdfast.model.agents.report import NodeMachine, Report, SeenFinding
from holdfast.model.book import World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident
from holdfast.model.operators.idempotency import FirstOrder
from holdfast.model.parts import DiskRoom, NotifierState, ProcessSeen
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import Node
from holdfast.ports import Accepted, Clock, QuorumRooms, Store

P = ParamSpec("P")
T = TypeVar("T")


class EvidenceBundle(Protocol):
    """An evidence bundle that an agent collected before the hardware was released."""

    @property
    def node(self) -> str: ...
    @property
    def bundle(self) -> bytes: ...


class WhoSigned(Protocol):
    """Finds out who signed a proof."""

    def identity(self, proof: EnrolmentProof) -> StsIdentity:
        """Raises Rejected, Unavailable."""
        ...


class ApiStore(Store, TokenStore, Protocol):
    """The store's port, its tokens, and what only the API asks."""

    def accept_soon(self, report: Report, shown: Collection[int] | None = None) -> Future[Accepted]:
        """As ``accept``; the future resolves when it is durable. Writes of many reports share one commit. ``shown``: jobs that Slurm shows
        on the node; None: not known."""
        ...

    def enrolment_open(self, node: str, machines: Collection[str], now: datetime) -> bool:
        """Whether one of these machines has had no token yet, or an operator's leave for the node holds."""
        ...

    def enrol(self, node: str, instance_id: str, token_hash: str, at: datetime, *, needs_allowance: bool) -> None:
        """Keep a token for the node, once for each machine. A second one, or ``needs_allowance``, takes an operator's leave, which is then
        used up. Raises Rejected without."""
        ...

    def evidence(self, incident_id: str) -> EvidenceBundle | None:
        """The incident's newest evidence bundle."""
        ...

    def list_incidents(
        self,
        *,
        only_open: bool = False,
        node: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int = 200,
    ) -> Sequence[Incident]:
        """Newest first, of those opened in [since, until). ``before``: continue after the one that was opened then and has this id."""
        ...

    def list_intents(
        self,
        *,
        incident_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: tuple[datetime, int, str] | None = None,
        limit: int = 200,
    ) -> Sequence[Intent]:
        """Newest first, of those planned in [since, until). ``before``: continue after the one of this time, order and key."""
        ...

    def list_events(
        self,
        *,
        incident_id: str | None = None,
        node: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after_id: int = 0,
        before_id: int | None = None,
        kinds: tuple[EventKind, ...] = (),
        limit: int = 200,
        newest_first: bool = False,
    ) -> Sequence[Event]:
        """Of those of [since, until) whose numbers lie between the two: oldest first, or newest first."""
        ...

    def begin_order(self, token: str, key: str, request: str, at: datetime) -> FirstOrder | None:
        """The order that has this key of this token already; None: this one has it now. Raises Rejected for too many keys."""
        ...

    def finish_order(self, token: str, key: str, status: int, answer: str) -> None:
        """Record the answer of the order with this key."""
        ...

    def forget_order(self, token: str, key: str) -> None:
        """Give the key of an order back that has done nothing."""
        ...

    def closed_within(self, since: datetime, until: datetime, limit: int) -> Sequence[Incident]:
        """Incidents that were opened before the span and closed in it, in the order of their ends."""
        ...

    def figures_since(self, start: datetime) -> Sequence[IncidentFigures]:
        """Of every incident that was open at that time, or later."""
        ...

    def timings_since(self, start: datetime) -> Sequence[IncidentTimings]:
        """As ``figures_since``, with each job, in the order of the incidents' ids."""
        ...

    def figures_of(self, incident_ids: Collection[str], until: datetime) -> Sequence[IncidentFigures]:
        """Of these incidents, by what had happened at that time."""
        ...

    def newest_events(self, kind: EventKind, since: datetime, limit: int) -> Sequence[Event]:
        """The newest ``limit`` of a kind, oldest first."""
        ...

    def newest_event_id(self) -> int:
        """Number of the newest record; 0: there is none."""
        ...

    def findings(
        self,
        *,
        incident_id: str | None = None,
        node: str | None = None,
        since: datetime | None = None,
        limit: int = 1000,
    ) -> Sequence[SeenFinding]:
        """Newest first. ``since``: only those that were seen at or after it."""
        ...

    def machines(self, node: str) -> Sequence[NodeMachine]:
        """Every machine that reported for the node, with its newest inventory; the last one reported last."""
        ...

    def node_events(
        self,
        node: str,
        kinds: Collection[EventKind],
        shared: Collection[EventKind],
        *,
        since: datetime | None = None,
        before_id: int | None = None,
        limit: int = 200,
    ) -> tuple[tuple[Event, ...], int | None]:
        """The newest ``limit`` events of these kinds of a node and of its incidents, and those of many nodes at once that may name it
        (``shared``), oldest first; and the id to read on before, None where nothing older is left."""
        ...


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Bounds of the API."""

    read_threads: int = 4
    """Queries at the same time."""
    write_threads: int = 8
    """Deliveries of orders and operators' verbs at the same time."""
    max_reports: int = 1024
    """Reports that wait for the database; one more is answered 503 at once, since each may hold a megabyte."""
    max_waiting: int = 20_000
    """Other calls that wait: more than one poll and one heartbeat of 8,000 agents."""
    loop_late_s: float = 30.0
    """``/livez`` fails when the control loop has not turned for this long."""
    write_late_s: float = 15.0
    """``/readyz`` fails when the store has taken no write of the leader for this long: it renews its lease every second."""


@dataclass
class ApiDeps:
    """Everything behind the routes."""

    store: ApiStore
    agents: AgentRegistry
    clock: Clock
    wake: Callable[[], None]
    """Wakes the control loop."""
    world: Callable[[], World | None]
    """The loop's latest view of everything; None before its first turn."""
    orders: OrderHub
    loop_turned_at: Callable[[], float | None]
    """Monotonic seconds at the end of the loop's last complete turn; None before the first."""
    mode: Mode = Mode.ACT
    """In observe no order is handed out that does more than ask."""
    policy: Policy = field(default_factory=lambda: Policy(mode=Mode.ACT))
    """As this process's settings say."""
    leader: Callable[[], bool] = lambda: True
    """Whether this controller holds the lease now."""
    committed_at: Callable[[], float | None] = lambda: None
    """Monotonic seconds when the store last took a write of this process as the leader; None: it never has."""
    led_by: Callable[[], str | None] = lambda: None
    """Id of the process that holds it; None: not known."""
    actor: Callable[[], ProcessSeen | None] = lambda: None
    """The actor of this machine; None: it is not looked for."""
    notifier: Callable[[], NotifierState | None] = lambda: None
    """How this process's own messages to people went; None: it sends none."""
    disk: Callable[[], DiskRoom | None] = lambda: None
    """Space where the store lies; None: not on this machine."""
    totals: Callable[[], Tally | None] = lambda: None
    """Totals of the record of events; None: not read (yet)."""
    cluster_name: Callable[[], str] = lambda: ""
    """As configured, or as this or another controller of the store last read it from Slurm; empty: take Slurm's own."""
    slurm_seen_at: Callable[[], datetime | None] = lambda: None
    """When Slurm was last read, also while no cycle passes; None: as the world shows it."""
    slurm_error: Callable[[], str | None] = lambda: None
    """Why the last reading of Slurm failed; None: it did not."""
    certificate: Callable[[], Certificate | None] = lambda: None
    """What this controller serves; None: no certificate."""
    connections: Connections | None = None
    """Those to the API; None: they are not counted."""
    settings: ApiSettings = field(default_factory=ApiSettings)
    rooms: QuorumRooms | None = None
    """The quorum service; None: this site has none."""
    quorum: QuorumSection = field(default_factory=QuorumSection)
    """How the rendezvous of elastic jobs decide."""
    untaken: UntakenWatch = field(default_factory=UntakenWatch)
    """Planned steps that no actor takes."""
    trouble: Callable[[], str | None] = lambda: None
    """Why the control loop decides nothing at present; None: it does."""
    stage_times: Callable[[], Mapping[str, float]] = lambda: dict.fromkeys(STAGES, 0.0)
    """How long each stage of the control loop's turns has taken since the start, in seconds."""
    aside: Callable[[], Sequence[Input]] = lambda: ()
    """Inputs that no decision can be made about."""
    neighbours: Callable[[str], Sequence[Node]] = lambda _node: ()
    """The nodes that this node's agent tries to reach in calm times."""
    surveys: Callable[[str], list[dict[str, str | int | float]]] = lambda _node: []
    """Checkpoint directories that this node's agent reads now and then."""
    heartbeat_s: Callable[[], float | None] = lambda: None
    """Interval for agents whose configuration sets none; None: the size of the fleet is not known yet."""
    enrolment: EnrolmentSection = field(default_factory=EnrolmentSection)
    """Who may have a token for the identity of a machine."""
    sts: WhoSigned | None = None
    """None: enrolment is off."""
    look: Callable[[int], None] = lambda _job_id: None
    """An agent knows more of this job than the newest view of Slurm shows: it may be read soon."""


class Threads:
    """Runs the store's synchronous calls outside the event loop, in bounded numbers."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._limiters: dict[str, CapacityLimiter] = {}
        self._waiting = 0
        self._reports = 0

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A query. Raises ApiError 503 when too many wait."""
        return await self._run("read", self._settings.read_threads, partial(call, *args, **kwargs))

    async def render(self, make: Callable[[], BaseModel]) -> Response:
        """An answer that may be large: made and written in a thread, as the event loop has other things to do. Raises as :meth:`read`."""
        return await self.read(lambda: Response(make().model_dump_json(by_alias=True), media_type="application/json"))

    async def write(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A durable write; the thread ends it even when the caller goes away."""
        return await self._run("write", self._settings.write_threads, partial(call, *args, **kwargs))

    async def durable(self, call: Callable[[], Future[T]]) -> T:
        """The result of a future of the store's writer, without a thread. Raises ApiError 503 when too many wait."""
        if self._reports >= self._settings.max_reports:
            raise _too_many()
        self._reports += 1
        try:
            return await asyncio.wrap_future(call())
        finally:
            self._reports -= 1

    async def _run(self, name: str, size: int, call: Callable[[], T]) -> T:
        if self._waiting >= self._settings.max_waiting:
            raise _too_many()
        self._waiting += 1
        try:
            limiter = self._limiters.setdefault(name, CapacityLimiter(size))
            return await to_thread.run_sync(metered(call), limiter=limiter)
        finally:
            self._waiting -= 1


def _too_many() -> ApiError:
    return ApiError(503, "unavailable", "Too many requests wait for the database; try again")


@dataclass
class Api:
    """The dependencies and what the API itself keeps, shared by its routers."""

    deps: ApiDeps
    threads: Threads
    auth: Authenticator
    quota: AgentQuota
    readers: ReaderQuotas
    counters: ApiCounters
    strangers: Strangers
    shared: SharedAnswers
    streams: Streams

    @classmethod
    def of(cls, deps: ApiDeps) -> Api:
        threads = Threads(deps.settings)
        auth = Authenticator(deps.store, threads.read, deps.clock)
        counters, monotonic_s = ApiCounters(), deps.clock.monotonic_s
        readers = ReaderQuotas(monotonic_s, refused=counters.limited.inc)
        streams = Streams(
            lambda after_id, most: threads.read(lambda: frames_after(deps.store, after_id, most)),
            lambda: threads.read(deps.store.newest_event_id),
            monotonic_s,
        )
        quota, shared = AgentQuota(monotonic_s), SharedAnswers(monotonic_s)
        return cls(deps, threads, auth, quota, readers, counters, Strangers(), shared, streams)


def frames_after(store: ApiStore, after_id: int, most: int) -> Sequence[StreamFrame]:
    """Records after one, as streams send them. In a thread."""
    return [frame_of(event) for event in store.events(after_id=after_id, limit=most)]
