"""View of Slurm: nodes, jobs and reservations, immutable, one per cycle. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache

from holdfast.model.slurm.asks import Asks, Has


@dataclass(frozen=True, slots=True)
class JobKey:
    """Permanent key of a job's run: Slurm reuses job ids, so the submit time is part of it (design, section 3).

    Slurm sets a new submit time at every requeue (tried on 22.05), so it names a run; :meth:`Job.continues` returns whether a later run is
    of the same job (``docs/decisions/0001-job-identity.md``)."""

    cluster: str
    job_id: int
    """Slurm's own id of the record; for an array element its JobId, not ARRAY_TASK notation."""
    submit_time: datetime

    def __str__(self) -> str:
        return str(self.job_id)

    @property
    def text(self) -> str:
        """Stable text form for database keys: ``cluster/id@unixtime``."""
        return f"{self.cluster}/{self.job_id}@{self.submitted_s}"

    @property
    def submitted_s(self) -> int:
        """The submit time as Unix time."""
        return int(self.submit_time.timestamp())


ANOTHER_JOBS = timedelta(days=1)
"""Reports made this long before a job was submitted came from an earlier job under its id. A shorter time is not safe: if the head node's
clock is set back, a job's own reports are from before its submission, and among them are its steps, which keep a silent node from being
taken for dead."""
_RUN = re.compile(r"(?P<cluster>.*)/(?P<job_id>\d+)@(?P<submitted_s>-?\d+)r(?P<restarts>\d+)")


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job: what is stopped, fails or hangs together."""

    cluster: str
    job_id: int
    submitted_s: int
    """Submit time as Unix time: part of the job's name, as Slurm reuses ids."""
    restarts: int

    @classmethod
    def of(cls, job: JobKey, restarts: int) -> JobRun:
        return cls(job.cluster, job.job_id, job.submitted_s, restarts)

    @classmethod
    def parse(cls, text: str) -> JobRun | None:
        """The run that :attr:`text` names; None: that is no run's."""
        return _parsed_run(text)

    @property
    def key(self) -> JobKey:
        """Its job, as Slurm named it at this run."""
        return JobKey(self.cluster, self.job_id, datetime.fromtimestamp(self.submitted_s, UTC))

    @property
    def job(self) -> str:
        """``JobKey.text`` of its job."""
        return f"{self.cluster}/{self.job_id}@{self.submitted_s}"

    @property
    def text(self) -> str:
        """Stable text form for database keys: ``cluster/id@unixtime``, r, restarts."""
        return f"{self.job}r{self.restarts}"


@lru_cache(maxsize=4096)  # of some thousands of incidents, asked for in every cycle
def _parsed_run(key: str) -> JobRun | None:
    match = _RUN.fullmatch(key)
    if match is None:
        return None
    return JobRun(match["cluster"], int(match["job_id"]), int(match["submitted_s"]), int(match["restarts"]))


@dataclass(frozen=True, slots=True)
class Job:
    """One Slurm job as the scheduler shows it. Absent lists are empty; an unknown time is None."""

    key: JobKey
    name: str
    user: str
    uid: int
    account: str
    partition: str
    qos: str
    state: str
    """Base state in Slurm's long spelling: PENDING, RUNNING, COMPLETING, FAILED, NODE_FAIL, REQUEUED …"""
    reason: str
    restarts: int
    """Slurm's Restarts counter: 0 in the first run."""
    requeue: bool
    """Slurm's Requeue flag. It is Slurm's default, so it is a permission and not a consent."""
    batch: bool
    """Submitted by sbatch. salloc and plain srun jobs cannot be requeued."""
    num_nodes: int
    nodes: tuple[str, ...]
    """Nodes that it holds now (also while COMPLETING); empty while pending."""
    required_nodes: tuple[str, ...]
    excluded_nodes: tuple[str, ...]
    unreadable: str = ""
    """Those of these two lists that only Slurm can parse (``ExcNodeList=[n1``): such a list is unknown, and empty above."""
    exclusions_known: bool = True
    """False: its record could not be read just now; ``excluded_nodes`` is empty then and means nothing. A later reading shows it."""
    gpu_indices: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Node → GRES indices of GPUs or MIG instances that the job holds there (``scontrol show job -d``). No device minors: only the node's
    slurmd knows which GPU an index is (``decisions/common/gpu_link.py``). A node that is absent: no GPU known."""
    shared_indices: Mapping[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    """Node → ``shard`` or ``mps`` → indices of which the job holds a share."""
    gpus_known: bool = True
    """False: its run is over and Slurm no longer shows which GPUs it held; no GPU above means nothing then."""
    exclusive: bool = False
    asks: Asks | None = None
    """Requirements on each node; None: not read, or not all of them are understood."""
    priority: int = 0
    reservation: str = ""
    comment: str = ""
    admin_comment: str = ""
    start_time: datetime | None = None
    end_time: datetime | None = None
    suspend_time: datetime | None = None
    """When its run was last suspended or resumed (SuspendTime); None: never, or not read."""
    eligible_time: datetime | None = None
    time_limit_s: int | None = None
    exit_code: str = ""
    """``status:signal``, as scontrol prints it. The signal may be none, but the low bits of an error of Slurm's own."""
    slurm_error: int | None = None
    """Number of Slurm's own error in place of an exit status, as the script was not started (4021: the file of its output cannot be
    opened); 0: there is none; None: the release does not show it (from 25.05 on)."""
    het_leader: int | None = None
    """Job id of the leader of a heterogeneous job; None for an ordinary job."""
    parts: tuple[Job, ...] = ()
    """Where this is a heterogeneous job seen as one (``decisions/common/het_jobs.py``): its components, the leader first."""
    array_job_id: int | None = None
    """Of an array's element: the id of the whole array (SLURM_ARRAY_JOB_ID); None for any other job."""
    array_task_id: int | None = None
    """None for no array's element, and for the record of an array's elements that have not started yet."""
    array_tasks_waiting: tuple[int, ...] = ()
    """Task ids that this record stands for, where it is the one of an array's elements that have not started yet."""
    array_throttle: int | None = None
    """ArrayTaskThrottle: how many elements of the array may run at a time; None: as many as there are."""
    work_dir: str = ""
    stdout: str = ""
    stderr: str = ""
    """Path of its standard error, with ``%`` patterns where its release leaves them (:mod:`holdfast.model.jobs.output_path`)."""
    batch_host: str = ""
    """Node that its script runs, or ran, on; empty: none, or not read."""
    dependency: str | None = None
    """Dependency that it waits for, or waited for when last seen waiting (``afternotok:7(unfulfilled)``); empty: on no job; None: it was
    never seen waiting, or the dependency was not read."""

    @property
    def shown_id(self) -> str:
        """The id as people know it: ``7``, of an array's element ``4_2``."""
        if self.array_job_id is None or self.array_task_id is None:
            return str(self.key.job_id)
        return f"{self.array_job_id}_{self.array_task_id}"

    @property
    def speaks_since(self) -> datetime | None:
        """Start of the time from which reports count as this job's: a day before its submission, in its first run. None: not known, as a
        requeue sets a new submit time."""
        return None if self.restarts else self.key.submit_time - ANOTHER_JOBS

    @property
    def suspended(self) -> bool:
        """Someone has stopped its processes (``scontrol suspend``, a preemption with SUSPEND); it keeps its nodes."""
        return any(state in _SUSPENDED for state in (self.state, *(part.state for part in self.parts)))

    def continues(self, key: JobKey) -> bool:
        """Whether this is the run that ``key`` names, or a later run of the same job.

        A requeue sets a new SubmitTime and counts Restarts up; a new job under a reused id has no restarts."""
        if (self.key.cluster, self.key.job_id) != (key.cluster, key.job_id):
            return False
        return self.key.submit_time == key.submit_time or (self.restarts > 0 and self.key.submit_time > key.submit_time)

    @property
    def run(self) -> JobRun:
        """The run that Slurm shows now."""
        return JobRun.of(self.key, self.restarts)

    @property
    def requeueable(self) -> bool:
        return self.batch and self.requeue

    @property
    def held(self) -> bool:
        """A pending job that starts only once it is released."""
        return self.reason in _HELD  # rule prose: Slurm's own words

    @property
    def fits_nowhere(self) -> bool:
        """A pending job that no node can ever run, by what it asks for and excludes: Slurm does not look at it again until one of these is
        changed. Its priority is then 0, so that Slurm takes a hold by its user for an administrator's (tried on 22.05)."""
        parts = (p for p in self.components if p.priority == 0)
        return any(p.reason in _FITS_NOWHERE for p in parts)  # rule prose: Slurm's own words

    @property
    def depends(self) -> bool:
        """A pending job that waits for other jobs."""
        return self.reason in _DEPENDS  # rule prose: Slurm's own words

    @property
    def waits_for_nodes(self) -> bool:
        """A pending job that Slurm has considered, and that would start if it had the nodes."""
        return self.reason in _WAITS_FOR_NODES  # rule prose: Slurm's own words

    @property
    def may_start(self) -> bool:
        """A pending job that waits only for nodes; also one that Slurm has not considered yet."""
        return self.waits_for_nodes or self.reason in _NOT_LOOKED_AT  # rule prose: Slurm's own words

    @property
    def tasks(self) -> tuple[int, ...]:
        """Task ids of the array's elements that this record stands for; empty for a job of another kind."""
        return self.array_tasks_waiting if self.array_task_id is None else (self.array_task_id,)

    @property
    def components(self) -> tuple[Job, ...]:
        """The records that Slurm keeps of it: of an ordinary job its own alone."""
        return self.parts or (self,)


@dataclass(frozen=True, slots=True)
class Partition:
    """Settings of a partition that decide which jobs are preempted."""

    name: str
    preempt_mode: str
    """REQUEUE, CANCEL, SUSPEND, OFF; several joined by commas as Slurm prints them."""
    priority_tier: int
    grace_time_s: int
    """From the first signal to the end of a preempted job."""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Reason of a node that is out of service, as Slurm shows it: text, user and time."""

    text: str
    user: str
    time: datetime | None


@dataclass(frozen=True, slots=True)
class Node:
    """One Slurm node. Slurm's state is a base state and a set of flags; small predicates read it."""

    name: str
    base_state: str
    """IDLE, ALLOCATED, MIXED, DOWN, FUTURE, UNKNOWN …"""
    flags: frozenset[str]
    """DRAIN, FAIL, COMPLETING, NOT_RESPONDING, MAINTENANCE, RESERVED, REBOOT_REQUESTED, REBOOT_ISSUED, INVALID_REG …"""
    reason: str = ""
    """Empty when Slurm shows ``none``."""
    reason_user: str = ""
    reason_time: datetime | None = None
    address: str = ""
    """NodeAddr, where peers reach its slurmd."""
    port: int = 6818
    partitions: tuple[str, ...] = ()
    gres: str = ""
    features: frozenset[str] = frozenset()
    """ActiveFeatures; empty also where the scheduler's twin does not read them."""
    gpu_count: int = 0
    cpus: int = 0
    """Those that jobs may have; 0 also where the scheduler's twin does not read them."""
    memory_mb: int = 0
    """The same of its memory."""
    boot_time: datetime | None = None
    slurmd_start_time: datetime | None = None
    last_busy_time: datetime | None = None
    """Time when the last job left it; None: not reported."""

    @property
    def given_reason(self) -> NodeReason:
        return NodeReason(self.reason, self.reason_user, self.reason_time)

    @property
    def has(self) -> Has:
        """Resources that jobs may request of it."""
        return Has(self.features, self.gres, self.gpu_count, self.cpus, self.memory_mb)

    @property
    def draining(self) -> bool:
        """An operator or a tool set DRAIN, or FAIL, which only people set (it may still run jobs)."""
        return not _TAKES_NO_JOB.isdisjoint(self.flags)

    @property
    def down(self) -> bool:
        return self.base_state == "DOWN"

    @property
    def responding(self) -> bool:
        return "NOT_RESPONDING" not in self.flags

    @property
    def unknown(self) -> bool:
        """slurmctld has started, and the node's slurmd has not registered since: not even its jobs are known."""
        return self.base_state == "UNKNOWN"

    @property
    def registered(self) -> bool:
        """Its slurmd has registered since slurmctld started, and named the job steps that it runs."""
        return not self.unknown and self.slurmd_start_time is not None

    @property
    def completing(self) -> bool:
        return "COMPLETING" in self.flags

    @property
    def asleep(self) -> bool:
        """Slurm's power saving has it off, or is switching it off or on: no report is due from it."""
        return bool(self.flags & _ASLEEP)

    @property
    def rebooting(self) -> bool:
        """Slurm was asked for a reboot of it, or has started one."""
        return "REBOOT_REQUESTED" in self.flags or self.reboot_issued

    @property
    def reboot_issued(self) -> bool:
        """Slurm has started a reboot of it; one that was only requested waits for the node's jobs."""
        return "REBOOT_ISSUED" in self.flags

    @property
    def out_of_service(self) -> bool:
        return self.draining or self.down

    @property
    def rebooted_unexpectedly(self) -> bool:
        """slurmctld set it DOWN because it booted, and slurmctld had not been notified of that."""
        return self.down_by_slurm and self.reason == _UNEXPECTED_REBOOT  # rule prose: Slurm's own words

    @property
    def down_by_slurm(self) -> bool:
        """slurmctld itself set it DOWN, as its reason shows: no user's decision. It drains no node with these reasons: a drain with one of
        them is a user's, and so is a DOWN without any (``State=DOWN`` in slurm.conf)."""
        return self.down and not self.draining and self.reason in NODE_REASONS_OF_SLURM  # rule prose: Slurm's own words

    @property
    def reboot_timed_out(self) -> bool:
        """slurmctld set it DOWN since an ordered reboot took longer than ResumeTimeout. The node still belongs to the one who ordered the
        reboot: Slurm clears the drain, and its reason may follow an operator's."""
        said = self.reason.endswith(_REBOOT_TIMED_OUT)  # rule prose: Slurm's own words
        return self.down and not self.draining and said


@dataclass(frozen=True, slots=True)
class Reservation:
    name: str
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    start_time: datetime | None = None
    end_time: datetime | None = None


@dataclass(frozen=True)
class ClusterView:
    """Everything one cycle knows of Slurm, read at one time."""

    cluster: str
    read_at: datetime
    nodes: Mapping[str, Node]
    jobs: Mapping[int, Job]
    """By job id; finished jobs stay as long as slurmctld shows them (MinJobAge)."""
    reservations: Mapping[str, Reservation]

    def jobs_on(self, node: str) -> tuple[Job, ...]:
        """Jobs that hold the node now, COMPLETING ones too, in the order of their ids."""
        return tuple(j for j in self._by_node.get(node, ()) if j.state in HOLDING_STATES)

    def failed_on(self, node: str) -> tuple[Job, ...]:
        """Jobs that held the node and have failed, in the order of their ids."""
        return tuple(j for j in self._by_node.get(node, ()) if j.state in FAILED_STATES)

    @cached_property
    def _by_node(self) -> Mapping[str, tuple[Job, ...]]:
        """Made once a reading: each incident asks for its node's jobs several times a cycle, and there may be 10,000 jobs."""
        found: dict[str, list[Job]] = {}
        for _, job in sorted(self.jobs.items()):
            if job.state in HOLDING_STATES or job.state in FAILED_STATES:
                for node in dict.fromkeys(job.nodes):
                    found.setdefault(node, []).append(job)
        return {node: tuple(jobs) for node, jobs in found.items()}


# Slurm's fixed reasons for a waiting job and for a node out of service. Only here.
_HELD = frozenset({"JobHeldUser", "JobHeldAdmin", "job_requeued_in_held_state"})
_FITS_NOWHERE = frozenset({"BadConstraints"})
_DEPENDS = frozenset({"Dependency", "DependencyNeverSatisfied"})
_WAITS_FOR_NODES = frozenset({"Resources", "Priority"})
_NOT_LOOKED_AT = frozenset({"", "None"})
_REBOOT_TIMED_OUT = "reboot timed out"
_UNEXPECTED_REBOOT = "Node unexpectedly rebooted"
NODE_REASONS_OF_SLURM = frozenset({"Not responding", _UNEXPECTED_REBOOT})
"""Reasons that slurmctld itself gives a node."""

_TAKES_NO_JOB = frozenset({"DRAIN", "FAIL"})
_ASLEEP = frozenset({"POWERING_DOWN", "POWERED_DOWN", "POWERING_UP"})
"""Flags in Slurm's spelling since 21.08. POWER_DOWN alone is a wish: jobs may still run there."""

_SUSPENDED = frozenset({"SUSPENDED", "STOPPED"})
HOLDING_STATES = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT"})
"""Job states in which a job holds its nodes."""
FAILED_STATES = frozenset({"FAILED", "NODE_FAIL"})
