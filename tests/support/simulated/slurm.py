"""Slurm in memory, with the semantics that were measured on 22.05: a requeued job is COMPLETING for a while, then PENDING with its
BeginTime two minutes ahead, a new SubmitTime and one more restart; a node set DOWN frees and requeues its jobs at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from holdfast.model.background import Topology
from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.model.ids import hold_of_name
from holdfast.model.slurm.asks import Asks
from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView, Job, JobKey, Node, Partition, Reservation
from support.simulated.clock import SimClock

HOLD_S = 120.0
"""AuthInfo=cred_expire: how long a requeued job waits unless its start is set to now."""
SLURMD_TIMEOUT_S = 300.0
COMPLETING_S = 1.0
REBOOT_ISSUED_S = 1.0
_OFF = ("POWERING_DOWN", "POWERED_DOWN", "POWERING_UP")
CLUSTER = "sim"


@dataclass
class SimNode:
    name: str
    drain: bool = False
    down: bool = False
    reason: str = ""
    user: str = ""
    time: datetime | None = None
    slurmd_started: datetime | None = None
    unheard_since_s: float | None = None
    power: str = ""
    """POWER_DOWN (a wish), POWERING_DOWN, POWERED_DOWN, POWERING_UP; empty: on."""
    power_until_s: float = 0.0
    idle_since_s: float = 0.0
    maintenance: bool = False
    """In a reservation with the MAINT flag."""
    failing: bool = False
    """Its drain is shown as FAIL."""
    reboot: str = ""
    """REBOOT_REQUESTED, REBOOT_ISSUED; empty: no reboot was asked for."""
    reboot_at_s: float = 0.0
    """When a requested reboot is issued."""
    registers_at_s: float = 0.0
    """After a start of slurmctld: until then it is UNKNOWN."""
    stuck: bool = False
    """Tasks hang in the driver: a job that ends stays COMPLETING here."""


@dataclass
class SimJob:
    job_id: int
    user: str
    uid: int
    num_nodes: int
    gpus: int
    """Of each node."""
    submit_time: datetime
    state: str = "PENDING"
    reason: str = "None"
    partition: str = "gpu"
    comment: str = ""
    admin_comment: str = ""
    requeue: bool = True
    batch: bool = True
    exclusive: bool = False
    het_leader: int | None = None
    array_job_id: int | None = None
    array_task_id: int | None = None
    priority: int = 0
    restarts: int = 0
    nodes: tuple[str, ...] = ()
    minors: dict[str, frozenset[int]] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    unreadable: str = ""
    """The parts of its lists that only Slurm can read, because its user wrote them that way."""
    in_doubt: bool = False
    """Its record cannot be distinguished from a text of its user's now."""
    reservation: str = ""
    held: bool = False
    begin: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    suspend_time: datetime | None = None
    then: str = ""
    """State after COMPLETING."""
    completing_until_s: float = 0.0
    name: str = "train"
    work_dir: str = ""
    exit_code: str = "0:0"
    stdout: str = ""
    stderr: str = ""
    features: frozenset[str] | None = frozenset()
    """Features that its nodes must have; None: its request is in a form that Holdfast does not read."""
    dependency: str = ""
    """Its dependencies, in Slurm's form; only :meth:`SimSlurm.depend` makes it wait."""


@dataclass(frozen=True)
class PowerSaving:
    suspend_time_s: float = 600.0
    suspend_timeout_s: float = 120.0
    excluded: frozenset[str] = frozenset()
    """SuspendExcNodes."""


@dataclass(frozen=True)
class Undrained:
    """The node's reason and state when Slurm was asked to resume it through the port."""

    node: str
    reason: str
    user: str


def _address(number: int) -> str:
    """Of the node in this place, counted from 0."""
    return f"10.0.0.{number + 1}"


class SimSlurm:
    """Implements :class:`holdfast.ports.Scheduler`. Reasons set through the port are by ``root``."""

    def __init__(self, clock: SimClock, names: tuple[str, ...], gpus: int = 8) -> None:
        self._clock = clock
        self._gpus = gpus
        self.nodes = {n: SimNode(n, slurmd_started=clock.now()) for n in names}
        self.jobs: dict[int, SimJob] = {}
        self.reservations: dict[str, Reservation] = {}
        self.forgotten_jobs = 0
        """Jobs from before a cold start: later ones get new ids (FirstJobId was raised); else Slurm reuses ids."""
        self.away = False
        self.started = self._second()
        """When slurmctld started."""
        self.slurmd_timeout_s: float = SLURMD_TIMEOUT_S
        """0: a silent node is never set DOWN."""
        self.adds_to_reasons = False
        """From 23.02 on: a drained node that goes DOWN gets Slurm's text appended to its reason, in SlurmUser's name."""
        self.switches: dict[str, tuple[str, ...]] = {}
        """Node → switches above it, the leaf first."""
        self.gres: dict[str, str] = {}
        self.features: dict[str, frozenset[str]] = {}
        self.shown_asks: dict[int, Asks] = {}
        """Jobs whose record shows other requirements than those that Slurm uses to choose their nodes."""
        self.undrained: list[Undrained] = []
        self.instance_ids: dict[str, str] = {}
        """Node → instance, as recorded in Slurm."""
        self.calls: list[tuple[str, str]] = []
        self.taken_out: list[tuple[float, str]] = []
        """When (seconds) which node was drained or set DOWN through the port."""
        self.drained: list[tuple[float, str, str]] = []
        """With the reason; without those set DOWN: a dead node's jobs are lost already, so no drain budget counts its DOWN."""
        self.requeued: Counter[tuple[int, int]] = Counter()
        """How often a run (job id, Restarts) was requeued through the port."""
        self.on_requeue: Callable[[SimJob], None] = lambda _job: None
        self.saving: PowerSaving | None = None
        """SuspendTime and related settings; None: Slurm saves no power."""
        self.addresses: dict[str, str] = {}
        """NodeAddr of each node where it was set."""
        self.suspended: list[tuple[float, str]] = []
        """When (seconds) Slurm began to power which node down."""
        self.on_resume: Callable[[str], None] = lambda _node: None
        """ResumeProgram."""
        self.on_set_down: Callable[[str], None] = lambda _node: None
        self.registers_after_s = 0.0
        """How long after slurmctld's start slurmds have not registered."""
        self.reboot_program = "(null)"
        self.return_to_service = 1
        self.resume_timeout_s = 3600.0
        """ResumeTimeout (60 s as Slurm ships it): a reboot that takes longer leaves its node DOWN."""
        self.on_reboot: Callable[[str], None] = lambda _node: None
        self._shown_before: dict[str, tuple[tuple[object, ...], Node]] = {}
        """Node → what it was shown for, and how."""

    def address(self, name: str) -> str:
        return self.addresses.get(name) or _address(list(self.nodes).index(name))

    def node_at(self, address: str) -> str:
        """The node of an address; of an IP alone, agents know no names."""
        for name, set_by_hand in self.addresses.items():
            if set_by_hand == address:
                return name
        return list(self.nodes)[int(address.rsplit(".", 1)[1]) - 1]

    # What users and the environment do

    def submit(self, num_nodes: int = 1, **changed: object) -> SimJob:
        number = self.forgotten_jobs + 100 + len(self.jobs)
        job = SimJob(number, "ada", 1000, num_nodes, self._gpus, self._clock.now())
        for name, value in changed.items():
            setattr(job, name, value)
        self.jobs[number] = job
        self.schedule()
        return job

    def submit_together(self, *sizes: int, **changed: object) -> tuple[SimJob, ...]:
        """A heterogeneous job with a component of each size."""
        leader = self.forgotten_jobs + 100 + len(self.jobs)
        begin = self._clock.now() + timedelta(days=1)  # none starts before all exist
        parts = tuple(self.submit(n, het_leader=leader, begin=begin, **changed) for n in sizes)
        for part in parts:
            part.begin = None
        self.schedule()
        return parts

    def parts(self, job: SimJob) -> list[SimJob]:
        """The jobs that a verb for this job id affects: of a leader, all components."""
        return [j for j in self.jobs.values() if j.het_leader == job.job_id] or [job]

    def operator_drains(self, name: str, reason: str = "psu", user: str = "ops") -> None:
        node = self.nodes[name]
        node.drain, node.reason, node.user, node.time = True, reason, user, self._second()

    def operator_fails(self, name: str, reason: str = "bad fan", user: str = "ops") -> None:
        """``state=FAIL``: replaces a drain."""
        self.operator_drains(name, reason, user)
        self.nodes[name].failing = True

    def operator_resumes(self, name: str) -> None:
        self._resume(self.nodes[name])

    def restart(self) -> None:
        """Restart slurmctld with its saved state."""
        self._start()

    def start_cold(self) -> None:
        """``slurmctld -c``: it keeps reservations alone (seen on 22.05)."""
        self._start()
        self.forgotten_jobs += len(self.jobs)
        self.jobs.clear()
        for node in self.nodes.values():
            self._forget(node)

    def _start(self) -> None:
        self.started = self._second()
        for node in self.nodes.values():
            node.registers_at_s = self._clock.elapsed_s + self.registers_after_s

    def take_out(self, name: str) -> SimNode:
        """The node leaves slurm.conf."""
        self.restart()
        return self.nodes.pop(name)

    def put_in(self, node: SimNode) -> None:
        """The node is in slurm.conf again."""
        self.restart()
        self._forget(node)
        node.slurmd_started = None
        self.nodes[node.name] = node

    def _forget(self, node: SimNode) -> None:
        self._resume(node)
        node.maintenance, node.reboot, node.stuck = False, "", False

    def operator_reserves(
        self, name: str, *nodes: str, hours: float | None = None, flags: frozenset[str] = frozenset({"MAINT"})
    ) -> None:
        """A reservation for root that starts now: ``scontrol create reservation users=root flags=maint``."""
        end = None if hours is None else self._clock.now() + timedelta(hours=hours)
        begin = self._second()
        self.reservations[name] = Reservation(name, nodes, ("root",), flags=flags, start_time=begin, end_time=end)

    def operator_reboots(self, name: str) -> None:
        """``scontrol reboot``, done at once."""
        self.nodes[name].reboot, self.nodes[name].reboot_at_s = "REBOOT_ISSUED", self._clock.elapsed_s
        self.on_reboot(name)

    def operator_orders_reboot(self, name: str) -> None:
        """``scontrol reboot``: issued once no job holds the node."""
        self.nodes[name].reboot, self.nodes[name].reboot_at_s = (
            "REBOOT_REQUESTED",
            self._clock.elapsed_s + REBOOT_ISSUED_S,
        )

    def finds_rebooted(self, name: str) -> None:
        """The node's slurmd registers after a reboot that slurmctld was not informed of."""
        node = self.nodes[name]
        node.down, node.reason, node.user, node.time = True, "Node unexpectedly rebooted", "slurm", self._second()
        self._kill_on(name)

    def finish(self, job: SimJob, state: str) -> None:
        """The job ends normally."""
        if job.state == "RUNNING":
            self._complete(job, state)

    def operator_suspends(self, job: SimJob, *, on: bool = True) -> None:
        """``scontrol suspend`` and ``resume``; the second is refused of a job that was queued again."""
        assert job.state == ("RUNNING" if on else "SUSPENDED"), job.state
        job.state, job.suspend_time = "SUSPENDED" if on else "RUNNING", self._clock.now()

    def end_stuck(self, name: str, job_id: int, restarts: int) -> str:
        """Kill a job's hanging processes on a node; returns why that failed, as its agent finds from Slurm's state."""
        node, job = self.nodes[name], self.jobs.get(job_id)
        drained = node.drain and node.reason.startswith("holdfast[")
        if not drained and all((hold_of_name(r) or ("", ""))[1] != name for r in self.reservations):
            return "the node is not drained by Holdfast"
        if job is None or job.state not in ("COMPLETING", "PENDING") or job.restarts - restarts not in (0, 1):
            return "the run is not over"
        node.stuck = False
        return ""

    # Time

    def step(self, hears: Callable[[str], bool]) -> None:
        """Do what is due. ``hears``: slurmctld receives the node's slurmd."""
        for node in self.nodes.values():
            self._issue_reboot(node)
            self._listen(node, hears(node.name))
            self._save_power(node)
        for job in self.jobs.values():
            if job.state == "COMPLETING" and self._completed(job, hears):
                self._over(job)
        for name, held in list(self.reservations.items()):
            if held.end_time is not None and held.end_time <= self._clock.now():
                self._purge(name)
        self.schedule()

    def _save_power(self, node: SimNode) -> None:
        """SuspendTime and power-downs by hand: a node goes down once it is idle, reserved or not (tried on 22.05)."""
        now_s, saving = self._clock.elapsed_s, self.saving
        if saving is None:
            return
        if any(node.name in j.nodes and j.state in HOLDING_STATES for j in self.jobs.values()):
            node.idle_since_s = now_s
            return
        due = now_s - node.idle_since_s >= saving.suspend_time_s and node.name not in saving.excluded
        if node.power == "POWER_DOWN" or (due and not node.power and not node.down):
            node.power, node.power_until_s, node.drain = "POWERING_DOWN", now_s + saving.suspend_timeout_s, False
            self.suspended.append((now_s, node.name))
        elif node.power == "POWERING_DOWN" and now_s >= node.power_until_s:
            node.power = "POWERED_DOWN"

    def registers(self, name: str, up_s: float = 0.0) -> None:
        """A slurmd of another boot registers: a node that was off is on, a reboot is over, and no earlier job runs there. ``up_s``: for
        how long its machine has been up."""
        node = self.nodes[name]
        node.reboot = ""
        unheard_s = self._clock.elapsed_s - (node.unheard_since_s or self._clock.elapsed_s)
        self._kill_on(name, begun_before=self._clock.now() - timedelta(seconds=max(unheard_s, up_s)))
        if node.power in ("POWERED_DOWN", "POWERING_UP"):
            node.power, node.idle_since_s = "", self._clock.elapsed_s
            node.reason, node.user, node.time = "", "", None

    def _listen(self, node: SimNode, heard: bool) -> None:
        now_s = self._clock.elapsed_s
        if heard:
            node.unheard_since_s = None
        elif node.unheard_since_s is None or node.reboot or node.power in _OFF:
            node.unheard_since_s = now_s
        elif self.slurmd_timeout_s and now_s - node.unheard_since_s >= self.slurmd_timeout_s and not node.down:
            node.down = True
            if not node.reason:
                node.reason, node.user, node.time = "Not responding", "slurm", self._second()
            elif self.adds_to_reasons:
                node.reason += " : Not responding"
                node.user, node.time = "slurm", self._second()
            self._kill_on(node.name)

    def _completed(self, job: SimJob, hears: Callable[[str], bool]) -> bool:
        if self._clock.elapsed_s < job.completing_until_s:
            return False
        return all(self.nodes[n].down or (hears(n) and not self.nodes[n].stuck) for n in job.nodes)

    def _complete(self, job: SimJob, then: str) -> None:
        job.state, job.then, job.end = "COMPLETING", then, self._clock.now()
        job.completing_until_s = self._clock.elapsed_s + COMPLETING_S

    def _over(self, job: SimJob) -> None:
        job.state = job.then
        job.minors = {}
        if job.then == "PENDING":
            job.nodes, job.start, job.end = (), None, None
            job.restarts += 1
            job.submit_time = self._second()
            job.begin = self._clock.now() + timedelta(seconds=HOLD_S)
            job.reason = "BeginTime"

    def _kill_on(self, name: str, begun_before: datetime | None = None) -> None:
        for job in self.jobs.values():
            if name not in job.nodes or job.state != "RUNNING":
                continue
            if begun_before is not None and (job.start is None or job.start >= begun_before):
                continue
            alone = job.nodes == (name,) and job.het_leader == job.job_id  # tried on 22.05: the others run on
            leader = self.jobs.get(job.het_leader or job.job_id, job)
            for part in [job] if alone else self.parts(leader):
                self._complete(part, "PENDING" if part.requeue and part.batch else "NODE_FAIL")

    def schedule(self) -> None:
        for job in self.jobs.values():
            if job.state == "PENDING" and (job.het_leader == job.job_id or job.het_leader not in self.jobs):
                parts = self.parts(job)
                for part in parts:
                    self._try_start(part)
                if not all(part.state == "RUNNING" for part in parts):
                    for part in (p for p in parts if p.state == "RUNNING" and p.start == self._clock.now()):
                        part.state, part.nodes, part.minors, part.start = "PENDING", (), {}, None

    def _try_start(self, job: SimJob) -> None:
        now = self._clock.now()
        if job.state != "PENDING":
            return
        if job.held:
            job.reason = "JobHeldUser" if job.reason not in ("BadConstraints", "JobHeldAdmin") else "JobHeldAdmin"
        elif job.reason == "BadConstraints":
            return
        elif job.dependency:
            job.reason = "Dependency"
        elif job.begin is not None and job.begin > now:
            job.reason = "BeginTime"
        else:
            usable = [n for n in self.nodes if self._usable(job, n)]
            mine = self.reservations[job.reservation].nodes if job.reservation in self.reservations else ()
            chosen = sorted(usable, key=lambda n: (n not in job.required, n not in mine))[: job.num_nodes]
            if len(set(self.nodes) - set(job.excluded)) < job.num_nodes:  # tried: Slurm never checks it again
                job.reason, job.priority = "BadConstraints", 0
                return
            if len(chosen) < job.num_nodes or not set(job.required) <= set(chosen):
                job.reason = "Resources"
                return
            job.minors = {n: frozenset(sorted(self._free(n))[: job.gpus]) for n in chosen if job.gpus}
            job.nodes, job.state, job.start, job.reason = tuple(sorted(chosen)), "RUNNING", now, "None"

    def _usable(self, job: SimJob, name: str) -> bool:
        node = self.nodes[name]
        if (
            node.drain
            or node.down
            or node.power
            or node.reboot
            or node.unheard_since_s is not None
            or name in job.excluded
        ):
            return False
        over = [r.name for r in self.reservations.values() if name in r.nodes]
        mine = self.reservations.get(job.reservation)
        flexible = (
            mine is not None and {"FLEX", "OVERLAP"} <= mine.flags and not node.maintenance
        )  # tried: it skips what others reserve; with FLEX alone it does not
        if set(over) - {job.reservation} and not flexible:
            return False
        if job.features is None or not job.features <= self.features.get(name, frozenset()):
            return False
        free = self._free(name)
        return len(free) >= (self._gpus if job.exclusive else job.gpus)

    def _free(self, name: str) -> set[int]:
        used = {m for j in self.jobs.values() if j.state in HOLDING_STATES for m in j.minors.get(name, ())}
        return set(range(self._gpus)) - used

    # The port: reading

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("slurmctld does not answer")

    def view(self) -> ClusterView:
        self._answer()
        return ClusterView(
            cluster=CLUSTER,
            read_at=self._clock.now(),
            nodes=self._shown_nodes(),
            jobs={j: self._job(job) for j, job in self.jobs.items()},
            reservations=dict(self.reservations),
        )

    def node(self, name: str) -> Node:
        self._answer()
        if name not in self.nodes:
            raise NotFound(f"no node {name}")
        return self._shown(self.nodes[name])

    def job(self, job_id: int) -> Job:
        self._answer()
        if job_id not in self.jobs:
            raise NotFound(f"no job {job_id}")
        return self._job(self.jobs[job_id])

    def components(self, job_id: int) -> tuple[Job, ...]:
        leader = self.job(job_id)
        mine = [part.job_id for part in self.jobs.values() if part.het_leader == job_id] or [leader.key.job_id]
        return tuple(self.job(number) for number in sorted(mine))

    def jobs_on(self, node: str) -> tuple[Job, ...]:
        self.node(node)
        here = [
            number for number, job in sorted(self.jobs.items()) if node in job.nodes and job.state in HOLDING_STATES
        ]
        return tuple(self.job(number) for number in here)

    def all_nodes(self) -> dict[str, Node]:
        self._answer()
        return {name: self._shown(node) for name, node in self.nodes.items()}

    def all_reservations(self) -> dict[str, Reservation]:
        self._answer()
        return dict(self.reservations)

    def version(self) -> str:
        return "22.05.8"

    def config(self) -> dict[str, str]:
        self._answer()
        return {
            "ClusterName": CLUSTER,
            "SlurmUser": "slurm(64030)",
            "SlurmdTimeout": f"{self.slurmd_timeout_s:.0f} sec",
            "RebootProgram": self.reboot_program,
            "ReturnToService": str(self.return_to_service),
            "BOOT_TIME": str(int(self.started.timestamp())),
        }

    def partitions(self) -> tuple[Partition, ...]:
        self._answer()
        return (Partition("gpu", preempt_mode="OFF", priority_tier=1, grace_time_s=0, nodes=tuple(self.nodes)),)

    def topology(self) -> Topology:
        self._answer()
        return Topology(self.switches)

    def reservation(self, name: str) -> Reservation:
        self._answer()
        if name not in self.reservations:
            raise NotFound(f"no reservation {name}")
        return self.reservations[name]

    def _shown_nodes(self) -> dict[str, Node]:
        holding = [j for j in self.jobs.values() if j.state in HOLDING_STATES]
        on: dict[str, list[SimJob]] = {}
        for job in holding:
            for name in job.nodes:
                on.setdefault(name, []).append(job)
        reserved = {name for r in self.reservations.values() for name in r.nodes}
        return {
            n: self._as_before(node, on.get(n, []), n in reserved, self.addresses.get(n) or _address(number))
            for number, (n, node) in enumerate(self.nodes.items())
        }

    def _as_before(self, node: SimNode, here: list[SimJob], reserved: bool, address: str) -> Node:
        """The node; the very object that was shown before where nothing of it has changed."""
        completing = any(j.state == "COMPLETING" and self._ends_on(j, node) for j in here)
        unknown = self._clock.elapsed_s < node.registers_at_s
        unheard = node.unheard_since_s is not None and self.slurmd_timeout_s != 0
        state = (
            *(bool(here), completing, reserved, unknown, unheard, address, self.gres.get(node.name, "")),
            *(node.drain, node.failing, node.down, node.maintenance, node.power, node.reboot, node.slurmd_started),
            *(node.reason, node.user, node.time, self.features.get(node.name)),
        )
        known = self._shown_before.get(node.name)
        if known is None or known[0] != state:
            known = self._shown_before[node.name] = state, self._shown(node)
        return known[1]

    def _shown(self, node: SimNode) -> Node:
        here = [j for j in self.jobs.values() if node.name in j.nodes and j.state in HOLDING_STATES]
        busy = bool(here)
        unknown = self._clock.elapsed_s < node.registers_at_s
        flags = {
            "DRAIN": node.drain and not node.failing,
            "FAIL": node.failing,
            "COMPLETING": any(j.state == "COMPLETING" and self._ends_on(j, node) for j in here),
            "NOT_RESPONDING": node.unheard_since_s is not None
            and node.power != "POWERED_DOWN"
            and self.slurmd_timeout_s != 0,  # then slurmctld pings only what does not respond already
            "MAINTENANCE": node.maintenance,
            "RESERVED": node.maintenance or any(node.name in r.nodes for r in self.reservations.values()),
            node.power: bool(node.power),
            node.reboot: bool(node.reboot),
        }
        return Node(
            name=node.name,
            base_state="DOWN" if node.down else "UNKNOWN" if unknown else "ALLOCATED" if busy else "IDLE",
            flags=frozenset(f for f, on in flags.items() if on),
            reason=node.reason,
            reason_user=node.user,
            reason_time=node.time,
            address=self.address(node.name),
            partitions=("gpu",),
            gres=self.gres.get(node.name, ""),
            features=self.features.get(node.name, frozenset()),
            gpu_count=self._gpus,
            slurmd_start_time=None if unknown else node.slurmd_started,
        )

    def _ends_on(self, job: SimJob, node: SimNode) -> bool:
        """The job's end is not complete on this node yet."""
        early = self._clock.elapsed_s < job.completing_until_s
        return not node.down and (early or node.stuck or node.unheard_since_s is not None)

    def _job(self, job: SimJob) -> Job:
        return Job(
            key=JobKey(CLUSTER, job.job_id, job.submit_time),
            name=job.name,
            user=job.user,
            uid=job.uid,
            account=job.user,
            partition=job.partition,
            qos="normal",
            state=job.state,
            reason=job.reason,
            restarts=job.restarts,
            requeue=job.requeue,
            batch=job.batch,
            num_nodes=job.num_nodes,
            nodes=job.nodes,
            required_nodes=job.required,
            excluded_nodes=() if job.unreadable or job.in_doubt else job.excluded,
            unreadable=job.unreadable,
            exclusions_known=not job.in_doubt,
            gpu_indices={} if job.in_doubt else dict(job.minors),
            gpus_known=not job.in_doubt,
            exclusive=job.exclusive,
            exit_code=job.exit_code,
            stdout=job.stdout,
            stderr=job.stderr,
            work_dir=job.work_dir,
            dependency=job.dependency if job.state == "PENDING" else None,
            reservation=job.reservation,
            het_leader=job.het_leader,
            array_job_id=job.array_job_id,
            array_task_id=job.array_task_id,
            priority=job.priority,
            asks=self._asks(job),
            comment=job.comment,
            admin_comment=job.admin_comment,
            start_time=job.start,
            suspend_time=job.suspend_time,
            end_time=job.end if job.state not in HOLDING_STATES else None,
            eligible_time=job.begin,
        )

    def _asks(self, job: SimJob) -> Asks | None:
        asks = Asks(job.features, job.gpus) if job.features is not None else None
        return self.shown_asks.get(job.job_id, asks)

    # The port: verbs

    def _change(self, verb: str, target: object) -> None:
        self._answer()
        self.calls.append((verb, str(target)))

    def _node(self, verb: str, name: str) -> SimNode:
        self._change(verb, name)
        if name not in self.nodes:
            raise NotFound(f"no node {name}")
        return self.nodes[name]

    def _mine(self, verb: str, job_id: int) -> SimJob:
        self._change(verb, job_id)
        if job_id not in self.jobs:
            raise NotFound(f"no job {job_id}")
        return self.jobs[job_id]

    def drain(self, node: str, reason: str) -> None:
        found = self._node("drain", node)
        self.taken_out.append((self._clock.elapsed_s, node))
        self.drained.append((self._clock.elapsed_s, node, reason))
        found.drain, found.reason, found.user, found.time = True, reason, "root", self._second()
        found.failing = False

    def undrain(self, node: str) -> None:
        found = self._node("undrain", node)
        self.undrained.append(Undrained(node, found.reason, found.user))
        self._resume(found)

    def set_instance_id(self, node: str, instance_id: str) -> None:
        self._node("set_instance_id", node)
        self.instance_ids[node] = instance_id

    def _resume(self, node: SimNode) -> None:
        node.drain = node.down = node.failing = False
        node.reason, node.user, node.time = "", "", None
        node.unheard_since_s = None

    def power_down(self, node: str, reason: str) -> None:
        found = self._node("power_down", node)
        if self.saving is None:
            raise Rejected("Invalid node state specified")
        found.reason, found.user, found.time = reason, "root", self._second()
        if not found.power:
            found.power, found.drain = "POWER_DOWN", True

    def power_up(self, node: str) -> None:
        found = self._node("power_up", node)
        if self.saving is None:
            raise Rejected("Invalid node state specified")
        if found.power == "POWERED_DOWN":
            found.power = "POWERING_UP"
            self.on_resume(node)

    def set_down(self, node: str, reason: str, *, drain: bool = True) -> None:
        found = self._node("set_down", node)
        self.taken_out.append((self._clock.elapsed_s, node))
        self.on_set_down(node)
        found.drain, found.down = found.drain or drain, True
        found.reason, found.user, found.time = reason, "root", self._second()
        self._kill_on(node)

    def requeue(self, job_id: int) -> None:
        job = self._mine("requeue", job_id)
        if job.het_leader in self.jobs and job.het_leader != job_id:
            raise Rejected(f"job {job_id} is not a heterogeneous job's leader")
        refusals = [self._requeue(part) for part in self.parts(job)]
        if any(refusals):  # Slurm says so of the leader, and has requeued the others all the same
            raise Rejected(next(r for r in refusals if r))

    def _requeue(self, job: SimJob) -> str:
        """Returns why it was refused; empty when it was done."""
        if not job.batch or not job.requeue:
            return f"job {job.job_id} cannot be requeued"
        if job.state == "PENDING" or (job.state == "COMPLETING" and job.then == "PENDING"):
            return f"job {job.job_id} is pending execution"
        self.on_requeue(job)
        self.requeued[job.job_id, job.restarts] += 1
        if job.state == "RUNNING":
            self._complete(job, "PENDING")
        elif job.state == "COMPLETING":
            job.then = "PENDING"
        else:
            job.then = "PENDING"
            self._over(job)
        return ""

    def release(self, job_id: int, *, reservation: str | None = None) -> None:
        parts = self.parts(self._mine("release", job_id))
        for part in parts:
            if part.state != "PENDING":
                raise Rejected(f"job {part.job_id} is {part.state}, not PENDING")
        if reservation is not None and reservation not in self.reservations:
            raise Rejected(f"no reservation {reservation}")
        for part in parts:
            part.reservation = reservation or part.reservation
            part.begin = self._clock.now()
        self.schedule()

    def delay_start(self, job_id: int, delay_s: int) -> None:
        for part in self.parts(self._mine("delay_start", job_id)):
            if part.state != "PENDING":
                raise Rejected(f"job {part.job_id} is {part.state}, not PENDING")
            part.begin = self._clock.now() + timedelta(seconds=delay_s)

    def set_array_throttle(self, array_job_id: int, most: int | None) -> None:
        raise NotFound(f"no array {array_job_id}: support.simulated.arrays has them")

    def hold(self, job_id: int, reason: str) -> None:
        job = self._mine("hold", job_id)
        if job.state not in ("PENDING", "RUNNING", "FAILED"):
            raise Rejected(f"job {job_id} is {job.state}: it cannot be held")
        if job.state == "FAILED" and not (job.batch and job.requeue):
            raise Rejected(f"job {job_id} cannot be requeued")
        for part in self.parts(job):
            part.held = True
            if part.state == "RUNNING":
                self._complete(part, "PENDING")
            elif part.state == "FAILED":
                part.then = "PENDING"
                self._over(part)

    def set_excluded_nodes(self, job_id: int, nodes: tuple[str, ...]) -> None:
        job = self._mine("set_excluded_nodes", job_id)
        if job.state != "PENDING":
            raise Rejected(f"job {job_id} is {job.state}, not PENDING")
        job.excluded = nodes
        if job.reason == "BadConstraints":
            job.reason = "None"  # an update of its constraints lets it be scheduled again (tried on 22.05)

    def set_num_nodes(self, job_id: int, nodes: int) -> None:
        job = self._mine("set_num_nodes", job_id)
        if job.state != "PENDING":
            raise Rejected(f"job {job_id} is {job.state}, not PENDING")
        job.num_nodes = nodes

    def set_job_reservation(self, job_id: int, reservation: str | None) -> None:
        for part in self.parts(self._mine("set_job_reservation", job_id)):
            part.reservation = reservation or ""

    def tell_owner(self, job_id: int, text: str) -> None:
        for part in self.parts(self._mine("tell_owner", job_id)):
            if part.state in ("FAILED", "NODE_FAIL", "CANCELLED", "COMPLETED", "TIMEOUT"):
                raise Rejected(f"Job has already finished for job {job_id}")
            part.admin_comment = text

    def create_reservation(
        self,
        name: str,
        nodes: tuple[str, ...],
        *,
        users: tuple[str, ...],
        duration_s: int | None,
        hold_for_job: bool = False,
        over: str | None = None,
        maint: bool = False,
    ) -> None:
        self._change("create_reservation", name)
        self._known(nodes)
        there = self.reservations.get(name)
        if there is not None and set(there.nodes) != set(nodes):
            raise Rejected(f"reservation {name} exists with other nodes")
        if there is None:
            now = self._clock.now()
            end = None if duration_s is None else now + timedelta(seconds=duration_s)
            flags = frozenset({"OVERLAP"} if not hold_for_job else {"FLEX", "OVERLAP"} if over is None else {"FLEX"})
            flags |= frozenset({"MAINT"} if maint else ())
            if "OVERLAP" not in flags and any(
                set(r.nodes) & set(nodes) and r.name != over and "OVERLAP" not in r.flags
                for r in self.reservations.values()
            ):  # tried: Slurm refuses it
                raise Rejected("Requested reservation overlaps with another reservation")
            self.reservations[name] = Reservation(
                name, tuple(sorted(nodes)), users, flags=flags, start_time=self._second(), end_time=end
            )

    def set_reservation_nodes(self, name: str, nodes: tuple[str, ...]) -> None:
        self._change("set_reservation_nodes", name)
        self._known(nodes)
        held = self.reservation(name)
        if nodes:
            self.reservations[name] = replace(held, nodes=tuple(sorted(nodes)))
        else:
            self._purge(name)

    def _known(self, nodes: tuple[str, ...]) -> None:
        if not set(nodes) <= self.nodes.keys():
            raise Rejected("Invalid node name specified")

    def delete_reservation(self, name: str) -> None:
        self._change("delete_reservation", name)
        self._purge(name)

    def _purge(self, name: str) -> None:
        self.reservations.pop(name, None)
        for job in self.jobs.values():
            if job.reservation == name:
                job.reservation = ""

    def reboot(self, node: str, reason: str | None) -> None:
        """Requested now, issued by slurmctld a moment later (0.01 to 0.84 s on 22.05). A reason is written at once, with a new time."""
        shown = self._node("reboot", node)
        shown.reboot, shown.reboot_at_s = "REBOOT_REQUESTED", self._clock.elapsed_s + REBOOT_ISSUED_S
        if reason is not None:
            shown.reason, shown.user, shown.time = reason, "root", self._second()

    def _issue_reboot(self, node: SimNode) -> None:
        """In SlurmUser's name. 22.05 writes only its own text where the reason has it already."""
        if node.reboot == "REBOOT_ISSUED" and self._clock.elapsed_s - node.reboot_at_s > self.resume_timeout_s:
            words = "reboot timed out"
            node.reboot, node.down, node.drain, node.user, node.time = "", True, False, "slurm", self._second()
            node.reason = f"{node.reason} : {words}" if node.reason else words
        if node.reboot != "REBOOT_REQUESTED" or self._clock.elapsed_s < node.reboot_at_s:
            return
        if any(node.name in j.nodes and j.state in HOLDING_STATES for j in self.jobs.values()) or node.unheard_since_s:
            return
        node.reboot_at_s = self._clock.elapsed_s
        words = "reboot issued"
        node.reboot, node.user, node.time = "REBOOT_ISSUED", "slurm", self._second()
        node.reason = words if not node.reason or words in node.reason else f"{node.reason} : {words}"
        self.on_reboot(node.name)

    def _second(self) -> datetime:
        """Round down to seconds, the resolution of Slurm's own times."""
        return self._clock.now().replace(microsecond=0)
