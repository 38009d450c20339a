"""A complete simulated site: the controller's real loop and actor over simulated twins; tests move its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from holdfast.actor.actor import Actor
from holdfast.actor.adapters import Outside
from holdfast.actor.notice_desk import NoticeDesk, Place
from holdfast.actor.owner_desk import OwnerDesk
from holdfast.actor.provider_watch import LOOK_EVERY_S, ProviderWatch
from holdfast.controller.loop import ControlLoop
from holdfast.controller.observing.background import READ_EVERY_S
from holdfast.controller.observing.head_reach import HeadReached
from holdfast.controller.observing.observe import Observer, SlurmWatch
from holdfast.controller.orders import OrderHub
from holdfast.controller.timing.lanes import LANES
from holdfast.decisions.careful import careful_turn
from holdfast.decisions.machines.disputes import claimants
from holdfast.decisions.nodes.hands_off import own_reservations
from holdfast.decisions.turn import turn
from holdfast.model.actions.action import Intent
from holdfast.model.book import Book, Change
from holdfast.model.errors import OutsideError, Unavailable
from holdfast.model.event import EventKind
from holdfast.model.ids import incident_id
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.machine import ProviderCan
from holdfast.model.notice import Matter, Message
from holdfast.model.policies.hangs import HangPolicy
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import HOLDING_STATES
from holdfast.ports import Operation, Store
from support.simulated import agents
from support.simulated.agents import SimAgents
from support.simulated.clock import SimClock
from support.simulated.machines import Machine
from support.simulated.provider import FULL, SimProvider
from support.simulated.slurm import SimJob, SimNode, SimSlurm
from support.simulated.store import MemoryStore

POLICY = replace(Policy(), mode=Mode.ACT, hangs=HangPolicy(act="restart", floor_s=60.0, together_jobs=0))
"""The shipped defaults, in ``act`` mode; a job that hangs is restarted after a minute, whatever other jobs do."""
NO_BUDGET = replace(POLICY, repair=replace(POLICY.repair, budget_cluster_share=1.0))
"""For small sites where several nodes are repaired at once."""
ROUNDS = 120
"""Most rounds of turn and actor in one second; more means that the two trigger each other endlessly."""
LONG_RUN_S = 60.0
QUIET_S = 10
QUIET_STEP_S = 5.0
"""In runs longer than :data:`LONG_RUN_S`, this much time passes at a time where nothing was decided or done for :data:`QUIET_S` seconds.
Whatever falls due meanwhile comes up to four seconds late; a test that counts these seconds names its step."""


T = TypeVar("T")


class Crash(BaseException):
    """The actor is killed at a boundary of a step."""


class _Inline(ThreadPoolExecutor):
    """Runs the given function at once, in the caller's thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


_AT_ONCE = dict.fromkeys(LANES, _Inline(1))


class Notices:
    """Implements :class:`holdfast.ports.Notifier`."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.bodies: list[tuple[str, str]] = []
        self.messages: list[Message] = []
        self.kept: list[Matter] = []

    def notify(self, subject: str, body: str, *, over_of: str = "") -> None:
        self.sent.append(subject)
        self.bodies.append((subject, body))

    # As an address of the desk (:class:`holdfast.ports.Address`)

    name = "test"

    def send(self, message: Message) -> None:
        self.messages.append(message)
        if not message.over:
            self.notify(message.subject, message.body)

    def keep(self, matters: Sequence[Matter]) -> None:
        self.kept = list(matters)


class Site:
    """``nodes``: how many; ``spares``: those in the spare pool; ``made``: node → machine that serves it, where others launched it."""

    def __init__(
        self,
        nodes: int = 4,
        *,
        spares: tuple[str, ...] = (),
        policy: Policy = POLICY,
        can: ProviderCan = FULL,
        store: Store | None = None,
        warm: bool = True,
        made: Mapping[str, str] | None = None,
        slurm: type[SimSlurm] = SimSlurm,
    ) -> None:
        self.clock = SimClock()
        serving = made or {f"n{n + 1}": f"i-{n + 1:04d}" for n in range(nodes)}
        names = tuple(serving)
        self.machines = {number: Machine(number, name) for name, number in serving.items()}
        self.provider = SimProvider(self.clock, self.machines, can)
        self.slurm = slurm(self.clock, names)
        self.slurm.on_reboot = self.provider.power_cycle
        self.store: Store = store if store is not None else MemoryStore()
        self.agents = SimAgents(self.clock, self.store, self.machines, self.provider.serving)
        self.agents.end_job = self._end_job
        self.agents.probes.busy = lambda node: any(
            node in job.nodes and job.state in HOLDING_STATES for job in self.slurm.jobs.values()
        )
        self.agents.node_at = self.slurm.node_at
        self.notices = Notices()
        self.places = list[Place]()
        """Further addresses of the actor's notices, for its next start."""
        self.owners: OwnerDesk | None = None
        """The desk of mails to jobs' owners, for the actor's next start."""
        self.policy = policy
        self.kill_at: tuple[str, str] | None = None
        """(kind of action, boundary) at which the actor dies once."""
        self.killed = 0
        self.at_boundary: Callable[[Intent, str], None] = lambda _intent, _moment: None
        self._broken: list[AssertionError] = []
        self.no_descriptors = False
        """Neither controller nor actor can open a connection to a node."""
        self.may_set_aside = False
        """A drill makes turns raise on purpose; otherwise that is a bug that fails the test."""
        self._entropy = 0
        self._drawn = 0
        self._looks_at_s = 0.0
        self._slurmd_of: dict[str, tuple[str, datetime | None]] = {}
        """Node → boot whose slurmd registered last, and when it had started."""
        self._reads_at_s = 0.0
        if spares:
            self.slurm.create_reservation(policy.spare_reservation, spares, users=("root",), duration_s=None)
        self.start_controller()
        self.start_actor()
        if warm:
            self.warm_up()

    def warm_up(self) -> None:
        """Let the time pass for which a started controller concludes nothing, from heartbeat to heartbeat: nothing else happens in it."""
        self.run(1)
        self.run(30, step_s=min(10.0, agents.HEARTBEAT_S))

    # Processes

    def start_controller(self) -> None:
        """A fresh controller process: it has its store, and no agent has reported to it yet."""
        self.agents.registry = type(self.agents.registry)()
        observer = Observer(
            store=self.store,
            slurm=SlurmWatch(self.slurm),
            agents=self.agents.registry,
            clock=self.clock,
            policy=self.policy,
            draw=self._draw,
        )
        observer.head.connect = self._reach
        observer.background.resolve = lambda _names: {}
        hub = OrderHub(self.clock.monotonic_s)
        self.loop = ControlLoop(observer, self.store, hub, "head", lambda: None, self._new_id)

    def _draw(self) -> str:
        """Random numbers, the same in every run of a test."""
        self._drawn += 1
        return f"chance-{self._drawn}"

    def start_actor(self) -> None:
        outside = Outside(
            scheduler=self.slurm,
            provider=self.provider,
            notifier=self.notices,
            clock=self.clock,
            sleep=self._step_waits,
            marks=lambda: dict(self.store.load_book(self.clock.now()).marks),
            own_reservations=lambda: own_reservations(
                self.store.load_book(self.clock.now()), self.policy.spare_reservation
            ),
            claims=lambda instance_id: claimants(self.store.load_book(self.clock.now()), instance_id),
            spare_reservation=self.policy.spare_reservation,
            reach=self._reach,
        )
        self.watch = ProviderWatch(self.store, self.provider, self.slurm, self.clock)
        desk = NoticeDesk(self.store, self.clock, [Place(self.notices), *self.places], before_step=self._boundary)
        self.actor = Actor(
            self.store,
            outside,
            lambda: "head",
            lambda _s: None,
            lambda: None,
            self._boundary,
            mode=self.policy.mode,
            policy=self.policy,
            desk=desk,
            owners=self.owners,
        )

    def _step_waits(self, seconds: float) -> None:
        """The controller is another process: it renews its lease while a step waits."""
        self.clock.advance(seconds)
        with suppress(OutsideError):
            self.loop._lead()

    def _reach(self, targets: Mapping[str, tuple[str, int]], _timeout_s: float) -> HeadReached:
        """Nodes whose kernels answer the head node."""
        if self.no_descriptors:
            return HeadReached(untried=frozenset(targets))
        machines = {name: self.provider.serving(name) for name in targets}
        now_s = self.clock.elapsed_s
        alive = (n for n, m in machines.items() if m.powered and not m.cut_off and now_s >= m.boots_at_s)
        return HeadReached(frozenset(alive))

    def _boundary(self, intent: Intent, moment: str) -> None:
        self.at_boundary(intent, moment)
        if self.kill_at is not None and self.kill_at == (intent.kind, moment):
            self.kill_at = None
            raise Crash

    def _end_job(self, machine: Machine, job_id: int, restarts: int) -> str:
        if not machine.kill_helps:
            return "the tasks survive"
        return self.slurm.end_stuck(machine.node, job_id, restarts)

    def _new_id(self, at: datetime) -> str:
        self._entropy += 1
        return incident_id(at, self._entropy % 2**15)

    # Time

    def run(self, seconds: float, step_s: float | None = None) -> None:
        """Let this many seconds pass: one at a time, as the real loop turns, and in a long run more at a time while nothing happens
        (:data:`QUIET_STEP_S`). ``step_s``: as much at a time, whatever happens."""
        until_s = self.clock.elapsed_s + seconds
        still = 0
        while (left_s := until_s - self.clock.elapsed_s) > 0:
            longer = step_s is None and seconds > LONG_RUN_S and still >= QUIET_S
            self.clock.advance(min(QUIET_STEP_S, left_s) if longer else step_s or 1.0)
            self.world_moves()
            still = still + 1 if self.react() == 1 else 0

    def watched(self, check: Callable[[T], None]) -> Callable[[T], None]:
        """A check in the middle of a step. The actor survives any exception of a step, so the test fails once the step is over."""

        def noticed(subject: T) -> None:
            try:
                check(subject)
            except AssertionError as error:
                self._broken.append(error)

        return noticed

    def world_moves(self) -> None:
        """Everything outside Holdfast does what is due."""
        for node in self.slurm.nodes.values():
            machine = self.provider.serving(node.name)
            if machine.slurmd(self.clock.elapsed_s):
                self._register(node, machine)
        self.slurm.step(lambda name: self.provider.serving(name).slurmd(self.clock.elapsed_s))
        self.agents.step()
        if self.clock.elapsed_s >= self._looks_at_s:
            self._looks_at_s = self.clock.elapsed_s + LOOK_EVERY_S
            self.watch.look()
        if self.clock.elapsed_s >= self._reads_at_s and self.loop.world is not None:
            self._reads_at_s = self.clock.elapsed_s + READ_EVERY_S
            self.read_background()

    def _register(self, node: SimNode, machine: Machine) -> None:
        boot, started_at = self._slurmd_of.get(node.name, ("", None))
        if boot != machine.boot_id:
            started_at = self.clock.now().replace(microsecond=0)
            if node.name in self._slurmd_of:
                self.slurm.registers(node.name, up_s=self.clock.elapsed_s - machine.boots_at_s)
            self._slurmd_of[node.name] = machine.boot_id, started_at
        node.slurmd_started = started_at

    def read_background(self) -> None:
        """What the loop reads in addition to its cycle."""
        assert self.loop.world is not None
        self.loop.observer.background.refresh(replace(self.loop.world, now=self.clock.now()))

    def react(self) -> int:
        """Turn and act until nothing is left to do at this moment. Returns how many rounds this took: 1 where nothing was to be done."""
        for number in range(1, ROUNDS + 1):
            change = self.turn()
            acted = self.act()
            if self._broken:
                raise self._broken[0]
            self.agents.obey()
            if not acted and (change is None or change.empty):
                return number
        raise AssertionError(f"the loop does not come to rest: {change}")

    def turn(self) -> Change | None:
        """One cycle of the control loop; None when something outside did not answer, as in the loop itself."""
        loop = self.loop
        loop.observer.slurm.refresh()
        try:
            if not loop._lead():
                return None
            assert loop.lease is not None
            if loop.world is not None:
                loop.observer.head.refresh(loop.world)
            world = loop._look()
            fence = loop.lease.fence
            turned = careful_turn(world, lambda w: turn(w, self._new_id, fence), self._new_id, loop.aside)
            assert self.may_set_aside or not turned.new, turned.new
            loop.set_aside(turned)
            change = turned.change
            loop.world = world
            if not change.empty:
                self.store.commit(loop.observer.as_recorded(change), loop.lease.fence)
            loop._expire_orders(world, loop.lease.fence)
        except Unavailable:
            return None
        return change

    def act(self) -> bool:
        """The actor polls once; a crash is followed by a fresh one. True: something was settled."""
        before = self._settled()
        try:
            self.actor._hand_out(_AT_ONCE)
        except Crash:
            self.killed += 1
            self.start_actor()
        except OutsideError:
            return False
        return self._settled() != before

    def _settled(self) -> int:
        try:
            return len(self.store.due_intents())
        except OutsideError:
            return -1

    # Reading

    @property
    def book(self) -> Book:
        """The incident as it is, also while the store answers no process."""
        away = getattr(self.store, "away", False)
        if not away:
            return self.store.load_book(self.clock.now())
        assert isinstance(self.store, MemoryStore)
        self.store.away = False
        try:
            return self.store.load_book(self.clock.now())
        finally:
            self.store.away = away

    def machine(self, node: str) -> Machine:
        return self.provider.serving(node)

    def incident(self, node: str) -> Incident:
        """The newest incident of a node."""
        return self.store.incidents(node=node)[0]

    def recovery(self, job_id: int) -> Recovery:
        """The newest recovery of a job."""
        return self.store.recoveries(job_id=job_id)[-1]

    def kinds(self, incident: str | None = None) -> list[str]:
        """Kinds of all steps that were done, in order."""
        done = self.store.events(incident_id=incident, kinds=(EventKind.ACTION_DONE,))
        return [str(event.detail["kind"]) for event in done]

    def story(self, incident_id: str | None = None) -> str:
        """All events of an incident, for the output of a failed test."""
        return "\n".join(f"{e.at:%T} {e.kind.value} {e.text}" for e in self.store.events(incident_id=incident_id))

    def registers(self, job: SimJob) -> None:
        """Holdfast's library registers a directory without a checkpoint. It reports each save, so the lack of one is known."""
        machine, detail = self.machine(job.nodes[0]), {"fenced": True}
        self.agents.state(machine, "checkpoint.register", job.job_id, job.restarts, path="/ckpt", detail=detail)

    def operate(
        self, verb: str, target: str = "", reason: str = "drill", *, who: str = "ops", for_s: float | None = None
    ) -> None:
        """``for_s``: how long an accept counts, or until a snoozed proposal is asked again."""
        now = self.clock.now()
        until = now + timedelta(seconds=for_s) if for_s is not None else None
        self.store.operate(Operation(verb, who, target, reason, until=until), now)

    def fault(self, node: str, **changed: Any) -> None:
        """The node's agent reports a finding (Xid 79 of GPU 3 unless said otherwise)."""
        self.agents.find(self.machine(node), **changed)
