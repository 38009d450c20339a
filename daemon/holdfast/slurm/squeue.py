"""Queries to ``squeue``, in a form that 22.05 to 26.05 all answer.

All values that decide about a job come from here: each is printed between marks that are new at each call, so that no user's text can be
taken for a value, hide a job or forge one (``docs/decisions/0025-jobs-are-read-between-marks.md``). The format is passed in the
environment, because every user of the head node can read arguments in ``/proc`` while slurmctld is still answering.

squeue lists a requeued element of an array in the line of those that have not started, under their id. ``-r`` prints a line for each of
these, perhaps a hundred thousand. (22.05 has ``--array-unique`` against both; 24.11 does not know it.)"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.model.errors import NotFound, Unavailable
from holdfast.model.slurm.cluster import HOLDING_STATES
from holdfast.slurm.tasks import waiting_tasks

_Run = Callable[..., str]
SQUEUE = ("squeue", "-h", "-a", "-t", "all")
_EACH = (*SQUEUE, "-r")
"""Query with a line for each element: only where those that have not started are not requested."""
_MOST_IDS = 10_000
"""Maximum number of ids in one argument, which Linux limits to 128 KiB."""
_MOST_UNPROVEN = 1_000
"""Maximum number of unproven ids in a query. squeue compares each with each job, and a user may have forged any number."""
_HEAD = re.compile(r"\nJobId=([0-9]{1,10}) ArrayJobId=([0-9]{1,10}) ArrayTaskId=([0-9]{1,10}) ")
FORMAT = "SQUEUE_FORMAT2"
"""Environment variable with squeue's format if no option gives one. ``SQUEUE_FORMAT`` takes precedence."""


class SqueueRow(NamedTuple):
    """A job as squeue prints it: Slurm's and its user's texts, each in its own field."""

    job_id: str
    array_id: str
    task: str
    """Task id of an element; task ids of an array's elements that have not started; ``N/A``."""
    het_id: str
    uid: str
    user: str
    name: str
    account: str
    wckey: str
    alloc_node: str
    """The submit host, as the user claims."""
    partition: str
    qos: str
    state: str
    reason: str
    restarts: str
    requeue: str
    batch: str
    exit_code: str
    num_nodes: str
    nodes: str
    required: str
    priority: str
    reservation: str
    comment: str
    admin_comment: str
    submitted: str
    started: str
    ends: str
    eligible: str
    time_limit: str
    work_dir: str
    stdout: str
    stderr: str
    batch_host: str
    dependency: str

    @property
    def number(self) -> int:
        """The job's id."""
        return int(self.job_id)

    @property
    def user_id(self) -> int:
        """The user's id. squeue prints it as a signed number."""
        return int(self.uid) & 0xFFFFFFFF

    @property
    def holds_nodes(self) -> bool:
        """Whether the job holds nodes, by its state."""
        return self.state in HOLDING_STATES

    @property
    def waiting(self) -> bool:
        """Whether it is the record of an array's elements that have not started."""
        return not self.task.isdigit() and self.task != "N/A"


_FIELDS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "UserID", "UserName", "Name", "Account", "WCKey", "AllocNodes", "Partition",
    "QOS", "State", "Reason", "RestartCnt", "Requeue", "BatchFlag", "exit_code", "NumNodes", "NodeList", "ReqNodes", "PriorityLong",
    "Reservation", "Comment", "admin_comment", "SubmitTime", "StartTime", "EndTime", "EligibleTime", "TimeLimit", "WorkDir", "STDOUT",
    "STDERR", "BatchHost", "Dependency",
)  # fmt: skip
"""Squeue's names for the values of a :class:`SqueueRow`, in their order."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Separators printed after each value, and after a job's last value."""

    value: str
    job: str

    @classmethod
    def fresh(cls) -> Marks:
        """Create marks that cannot be guessed. They start with a letter: a digit would be read as part of the width."""
        return cls(*(f"m{secrets.token_hex(16)}" for _ in range(2)))

    @property
    def format(self) -> str:
        """squeue's format: each value in full length (width 0), then its mark."""
        *others, last = _FIELDS
        return ",".join([*(f"{name}:0{self.value}" for name in others), f"{last}:0{self.job}"])

    def rows(self, text: str) -> list[SqueueRow]:
        """Parse squeue's output. Raises Unavailable where it is incomplete."""
        *printed, rest = text.split(f"{self.job}\n")
        found = [one.split(self.value) for one in printed]
        if rest.strip() or any(len(one) != len(_FIELDS) or not one[0].isdigit() for one in found):
            raise Unavailable("squeue's answer is incomplete")
        return [SqueueRow._make(one) for one in found]


def _rows(run: _Run, *argv: str) -> list[SqueueRow]:
    marks = Marks.fresh()
    return marks.rows(run(*argv, env={FORMAT: marks.format}))


def rows(run: _Run, *which: str) -> dict[int, SqueueRow]:
    """Jobs by id; an array's row is of those that have not started."""
    return {row.number: row for row in _rows(run, *SQUEUE, *which)}


def rows_of(run: _Run, records_text: str, *which: str) -> dict[int, SqueueRow]:
    """The same, with waiting elements that have their own record; ``records_text`` of ``scontrol`` shows candidates.

    A record that a user forges makes the query longer and adds no job: only ids count that squeue knows as part of a waiting array."""
    listed = rows(run, *which)
    arrays = {row.array_id: row for row in listed.values() if row.waiting}
    heads = _HEAD.findall(f"\n{records_text}") if arrays else []
    seen = [(int(number), array, int(task)) for number, array, task in heads if array in arrays]
    missing = [one for one in seen if one[0] not in listed]
    tasks = {array: frozenset(waiting_tasks(arrays[array].task)) for array in {array for _, array, _ in missing}}
    wanted = {number for number, array, task in missing if task in tasks[array]}
    elements = _elements(run, wanted, frozenset(arrays)) if wanted else {}
    own: dict[str, set[int]] = {}
    for one in elements.values():
        own.setdefault(one.array_id, set()).add(int(one.task))
    listed |= {arrays[array].number: _alone(arrays[array], theirs) for array, theirs in own.items()}
    return listed | elements


def _elements(run: _Run, wanted: set[int], arrays: frozenset[str]) -> dict[int, SqueueRow]:
    if len(wanted) > _MOST_UNPROVEN:
        wanted = wanted & _waiting(run)
    found: dict[int, SqueueRow] = {}
    for start in range(0, len(wanted), _MOST_IDS):
        ids = ",".join(map(str, sorted(wanted)[start : start + _MOST_IDS]))
        with contextlib.suppress(NotFound):
            found |= {row.number: row for row in _rows(run, *_EACH, "-j", ids)}
    return {number: row for number, row in found.items() if row.array_id in arrays and row.job_id != row.array_id}


def _waiting(run: _Run) -> set[int]:
    """Ids of all waiting jobs: one short line for each element of an array."""
    return set(map(int, run(*SQUEUE[:-1], "PENDING", "-r", "-o", "%A").split()))


def _alone(row: SqueueRow, others: set[int]) -> SqueueRow:
    """The row of an array without the waiting elements that have their own records, and without their reasons."""
    tasks = ",".join(str(task) for task in waiting_tasks(row.task) if task not in others)
    found = re.match(r"(?:, |[^,])*", row.reason)
    return row._replace(task=tasks, reason=found[0] if found else row.reason)


def holders_of(run: _Run, node: str) -> dict[int, SqueueRow]:
    """The jobs that hold a node. Raises NotFound where squeue does not know the node."""
    return {row.number: row for row in _rows(run, *_EACH, "-w", node) if row.holds_nodes}


def states_in(run: _Run, reservation: str) -> dict[int, str]:
    """State by id of every job that uses a reservation."""
    lines = run(*_EACH, "-R", reservation, "-o", "%A %T").splitlines()
    return {int(job_id): state for job_id, state in (line.split() for line in lines)}


def array_of(run: _Run, job_id: int) -> tuple[str, str] | None:
    """Id of the job's array, and its task or tasks as squeue lists them; None: the job is no array element."""
    found = [line.split() for line in run(*SQUEUE, "-j", str(job_id), "-o", "%A %F %K").splitlines()]
    mine = [
        (array, task.partition("%")[0]) for number, array, task in found if number == str(job_id) and task[:1].isdigit()
    ]
    return mine[0] if mine else None
