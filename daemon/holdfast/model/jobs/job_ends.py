"""Ends of job runs: what was seen of each, and the cause. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.model.slurm.cluster import JobKey, JobRun
from holdfast_checks.words import unknown_reads_as


@unknown_reads_as("unknown", "why the job died counts as unknown")
class Cause(StrEnum):
    """Cause of a run's end. Only the first speaks against a node."""

    NODE = "node_fault"
    """A fault of one of its nodes."""
    MEMORY = "out_of_memory"
    """Host memory, its job's limit of it, or GPU memory."""
    DISK = "full_disk"
    """A full file system or a spent quota."""
    TIME = "time_limit"
    CODE = "users_code"
    """A bug of the program: an exception, a crash, a missing command."""
    STOPPED = "stopped"
    """Cancelled or preempted."""
    NO_FILE = "no_file"
    """Slurm could not open a file of its output or its input: its script never started."""
    UNKNOWN = "unknown"


@unknown_reads_as("other", "the line is shown and nothing is concluded from it")
class Sign(StrEnum):
    """Subject of a line of a job's output."""

    NODE_FAILED = "node_failed"
    """srun or slurmstepd: a node failed."""
    GPU_LOST = "gpu_lost"
    """CUDA: the GPU is gone, or its memory has an uncorrectable error."""
    CUDA = "cuda"
    """Any other error of CUDA or its libraries."""
    NCCL = "nccl"
    """NCCL, Gloo or a connection to another rank broke."""
    MEMORY = "memory"
    DISK = "disk"
    TIME = "time"
    STOPPED = "stopped"
    ASSERT = "assert"
    """The program's own check on the GPU failed (a device-side assert)."""
    EXCEPTION = "exception"
    """A Python exception with nothing of the above in it, or a command that is not there."""
    SIGNAL = "signal"
    """A process crashed: segmentation fault, bus error, abort."""
    TASK = "task"
    """srun: a task on this node ended with an error."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Clue:
    """One line of a job's output that says something of its end."""

    sign: Sign
    line: str
    node: str = ""
    """Node that the line names; empty: it names none."""


@unknown_reads_as("unreadable", "the output counts as not read")
class Reading(StrEnum):
    """Status of reading the last lines of a job's output."""

    NOT_NEEDED = "not_needed"
    """Slurm's state is enough."""
    PENDING = "pending"
    """An agent was, or is to be, asked for them."""
    READ = "read"
    UNREADABLE = "unreadable"
    """The note says why."""


@unknown_reads_as("not_known", "the text next to it says more")
class Again(StrEnum):
    """Whether a run that is over is started again."""

    STARTED = "started"
    """Holdfast has queued it again, or Slurm has, as it lost the node."""
    BY_OTHERS = "by_others"
    """It is queued again, and not by Holdfast: by its owner, an operator, a preemption."""
    COMING = "coming"
    """Holdfast is about to."""
    WAITS = "waits"
    """Holdfast is to, and something holds it back; the recovery's note says what."""
    PAUSED = "paused"
    """Holdfast is to, and an operator has paused it."""
    OBSERVED = "observed"
    """Holdfast would, and only observes."""
    HELD = "held"
    """Holdfast holds it in the queue: its restart budget is spent, or the job itself is the suspect."""
    PROBED = "probed"
    """No fault explains its end: its nodes are probed, and if one fails, it is started again off it."""
    NO_CONSENT = "no_consent"
    """It did not opt in."""
    CANNOT_BE_REQUEUED = "cannot_be_requeued"
    """Slurm requeues no such job: salloc, srun, ``--no-requeue``."""
    LEFT_ALONE = "left_alone"
    """Holdfast leaves it alone; the recovery's note says why."""
    NO_FAULT = "no_fault"
    """No fault of a node is to blame, as far as anything shows."""
    FAULT_OVER = "fault_over"
    """The fault's incident is over, or an operator's."""
    FORGOTTEN = "forgotten"
    """Slurm no longer knows the job."""
    NOT_KNOWN = "not_known"
    """Its output is still being read, or Slurm does not answer."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of one run, as it was seen, and what was concluded from it."""

    job: JobKey
    restarts: int
    user: str
    uid: int
    name: str
    nodes: tuple[str, ...]
    slurm_state: str
    """Slurm's state of the run that is over: FAILED, TIMEOUT, OUT_OF_MEMORY …"""
    exit_code: str
    """``status:signal``, as Slurm shows it."""
    reason: str
    """Slurm's state."""
    ended_at: datetime
    """By Slurm's clock, in whole seconds."""
    seen_at: datetime
    reading: Reading = Reading.NOT_NEEDED
    reading_note: str = ""
    """Reason why its output was not read."""
    output: str = ""
    """The file that its standard error goes to; empty: unknown."""
    output_bytes: int | None = None
    """Size of that file when it was read: what the next run appends comes behind. None: it was not read."""
    clues: tuple[Clue, ...] = ()
    cause: Cause = Cause.UNKNOWN
    text: str = ""
    """The cause in a sentence, for people."""
    incident_id: str = ""
    """Incident of the fault that ended it; empty: of none."""
    started_at: datetime | None = None
    """Start of the run, by the same clock; None: not known (earlier releases did not record it), or it never started."""
    slurm_error: int | None = None
    """As :attr:`holdfast.model.slurm.cluster.Job.slurm_error`."""
    stdout: str = ""
    """The file of its standard output, where that is another one."""
    array_job_id: int | None = None
    array_task_id: int | None = None
    """Of an array's element; None: of none, or an earlier release did not record it."""

    @property
    def run(self) -> JobRun:
        return JobRun.of(self.job, self.restarts)

    @property
    def id(self) -> str:
        return self.run.text

    @property
    def shown_id(self) -> str:
        """As :attr:`holdfast.model.slurm.cluster.Job.shown_id`. One element of an array has the array's own id, by which
        scontrol takes all."""
        return str(self.job) if self.array_task_id is None else f"{self.array_job_id}_{self.array_task_id}"

    def shows(self, *signs: Sign) -> Clue | None:
        """The first clue of any of these signs, the first sign first."""
        return next((clue for sign in signs for clue in self.clues if clue.sign is sign), None)
