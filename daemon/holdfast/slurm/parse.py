"""Parse Slurm's output into the types of ``model.slurm.cluster``. Pure; formats of Slurm 22.05 to 26.05.

Times are requested as seconds since 1970 (``SLURM_TIME_FORMAT=%s``), so that no time zone matters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from holdfast.model.background import Topology
from holdfast.model.errors import Rejected
from holdfast.model.slurm.cluster import Job, JobKey, Node, Partition, Reservation
from holdfast.slurm.details import Details
from holdfast.slurm.hosts import hosts, users_hosts
from holdfast.slurm.records import EMPTY, fields, printable
from holdfast.slurm.squeue import SqueueRow
from holdfast.slurm.tasks import waiting_tasks

_FREE_TEXTS = re.compile(r"\s(?:Reason|Comment|Extra)=")
"""Start of the administrators' texts in a node's record: a ``Key=value`` from here on is no key."""
_REASON = re.compile(
    r"\sReason=(.*?) \[([^\s@\]]*)@(\d+|Unknown)\](?=\s*$|\s+(?:Comment|Extra|ReservationName|InstanceId|InstanceType)=)",
    re.DOTALL,
)
"""The first end that Slurm can have printed: a comment after it may look like another one."""
_GRES_COUNT = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,()]+)?:(\d+)(?=,|$)")
_STATE_SIGNS = "*~#!%$@^-"
"""sinfo(1): signs after a state; the star is for a node that does not respond."""
_SIGNAL = 0x7F
"""The bits of a status of wait(2) that hold the signal."""
LAST_S = 253_402_300_799
"""The end of the year 9999; a user may ask for any time."""
_UNITS_S = (86400, 3600, 60, 1)
_NAME = re.compile(r"[\w.-]+", re.ASCII)
"""Name of one node: no list, no ClusterShell group, no set operator."""


def fold(names: Iterable[str]) -> str:
    """Fold names into one host list. Raises Rejected for anything but the name of one node: ClusterShell would take it for a list or for a
    group, whose name it passes to a shell; Slurm takes ALL for every node."""
    found = list(names)
    for name in found:
        if _NAME.fullmatch(name) is None or name.upper() == "ALL":
            raise Rejected(f"no node is called {name[:80]!r}")
    return str(NodeSet.fromlist(found, resolver=RESOLVER_NOGROUP))


def time_or_none(text: str) -> datetime | None:
    """A time in seconds since 1970; None for Unknown, None, N/A."""
    return datetime.fromtimestamp(min(int(text), LAST_S), UTC) if text.isdigit() and int(text) else None


def duration_s(text: str) -> int | None:
    """``[days-]hours:minutes:seconds``; None for UNLIMITED, Partition_Limit and the like."""
    days, _, rest = text.rpartition("-")
    parts = rest.split(":")
    if not 2 <= len(parts) <= 3 or not all(part.isdigit() for part in (*parts, days or "0")):
        return None
    numbers = [int(days or 0), *([0] if len(parts) == 2 else []), *(int(part) for part in parts)]
    return sum(number * unit for number, unit in zip(numbers, _UNITS_S, strict=True))


def job(row: SqueueRow, cluster: str, details: Details) -> Job:
    """One job. Raises Rejected when the row lacks what identifies a job."""
    submitted = time_or_none(row.submitted)
    if submitted is None:
        raise Rejected(f"squeue shows no submit time of job {row.job_id}")
    required, unreadable = users_hosts("ReqNodeList", row.required)
    element, batch = row.task != "N/A", row.batch != "0"
    return Job(
        key=JobKey(cluster, row.number, submitted),
        name=printable(row.name),
        user=row.user,
        uid=row.user_id,
        account=_text(row.account),
        partition=_word(row.partition),
        qos=_word(row.qos),
        state=row.state,
        reason="_".join(_word(row.reason).split()),
        restarts=_number(row.restarts),
        requeue=row.requeue == "1",
        batch=batch,
        num_nodes=_number(row.num_nodes),
        nodes=hosts(row.nodes),
        required_nodes=required,
        excluded_nodes=details.excluded_nodes,
        unreadable=printable(" ".join(filter(None, (unreadable, details.unreadable)))),
        exclusions_known=details.exclusions_known,
        gpu_indices=details.gpu_indices,
        shared_indices=details.shared_indices,
        gpus_known=details.gpus_known,
        exclusive=details.exclusive,
        asks=details.asks,
        priority=_number(row.priority),
        reservation=_word(row.reservation),
        comment=_text(row.comment),
        admin_comment=_text(row.admin_comment),
        start_time=time_or_none(row.started),
        end_time=time_or_none(row.ends),
        suspend_time=details.suspend_time,
        eligible_time=time_or_none(row.eligible),
        time_limit_s=duration_s(row.time_limit),
        exit_code=exit_code(row.exit_code),
        slurm_error=slurm_error(row.exit_code),
        het_leader=_optional(row.het_id),
        array_job_id=_optional(row.array_id) if element else None,
        array_task_id=_optional(row.task),
        array_tasks_waiting=waiting_tasks(row.task) if element and not row.task.isdigit() else (),
        array_throttle=details.array_throttle,
        work_dir=_text(row.work_dir),
        stdout=_file(row, row.stdout) if batch else "",
        stderr=_file(row, row.stderr) if batch else "",
        batch_host=_text(row.batch_host) if batch and "," not in row.batch_host else "",
        dependency=_word(row.dependency) if row.state == "PENDING" else None,
    )


def _file(row: SqueueRow, shown: str) -> str:
    """A file that a batch job writes to, its patterns as they are. squeue of 22.05 shows the default of an array's element under the
    element's own id; slurmd names it by the array."""
    path, folder = _text(shown), _text(row.work_dir)
    if row.task.isdigit() and path == f"{folder}/slurm-{row.job_id}.out":
        return f"{folder}/slurm-{row.array_id}_{row.task}.out"
    return f"{folder}/{path}" if path and folder and not path.startswith("/") else path


def exit_code(text: str) -> str:
    """``status:signal``. Releases before 25.05 print what wait(2) gave."""
    if not text.isdigit():
        return text
    code = int(text)
    number = code & _SIGNAL
    if number == _SIGNAL:  # Slurm's -1: the script was never begun
        return "0:0"
    return f"0:{number}" if number else f"{code >> 8 & 0xFF}:0"


def slurm_error(text: str) -> int | None:
    """The error of Slurm's own that squeue prints as if wait(2) had given it: no process ends with a status and by a signal. 0: there is
    none; None: the release does not show it."""
    if not text.isdigit():
        return None
    code = int(text)
    return code if code & _SIGNAL not in (0, _SIGNAL) and 0 < code >> 8 <= 0xFF else 0


def _text(text: str) -> str:
    """A user's text on one line."""
    return "" if text == "(null)" else printable(text)


def _word(text: str) -> str:
    return "" if text in EMPTY else text


SLURMD_PORT = 6818
"""Slurm's default SlurmdPort."""


def node(record: str, slurmd_port: int = SLURMD_PORT) -> Node:
    """One node. ``slurmd_port``: slurm.conf's SlurmdPort; Slurm prints a node's port only where it is another. Raises Rejected when the
    record has no name."""
    texts = _FREE_TEXTS.search(record)
    found = fields(record[: texts.start()] if texts is not None else record)
    if not found.get("NodeName"):
        raise Rejected(f"not a node record: {record[:80]!r}")
    base, flags = node_state(found.get("State", "UNKNOWN"))
    behind = record[texts.start() :] if texts is not None else ""
    reason = _REASON.match(behind)
    return Node(
        name=found["NodeName"],
        base_state=base,
        flags=flags,
        reason=reason[1] if reason else _unsigned(behind),
        reason_user=reason[2] if reason else "",
        reason_time=time_or_none(reason[3]) if reason else None,
        address=found.get("NodeAddr", ""),
        port=_number(found.get("Port"), slurmd_port),
        partitions=tuple(part for part in found.get("Partitions", "").split(",") if part),
        gres=found.get("Gres", ""),
        features=frozenset(f for f in _words(found.get("ActiveFeatures", "")) if f != "(null)"),
        gpu_count=sum(int(count) for count in _GRES_COUNT.findall(re.sub(r"\([^)]*\)", "", found.get("Gres", "")))),
        cpus=_number(found.get("CPUEfctv") or found.get("CPUTot")),
        memory_mb=max(0, _number(found.get("RealMemory")) - _number(found.get("MemSpecLimit"))),
        boot_time=time_or_none(found.get("BootTime", "")),
        slurmd_start_time=time_or_none(found.get("SlurmdStartTime", "")),
        last_busy_time=time_or_none(found.get("LastBusyTime", "")),
    )


def _unsigned(behind: str) -> str:
    """A reason of which Slurm does not say who gave it, as slurmctld's own may be."""
    return fields(behind).get("Reason", "") if behind.lstrip().startswith("Reason=") else ""


def node_state(text: str) -> tuple[str, frozenset[str]]:
    """Base state and flags of a text such as ``MIXED+DRAIN`` or ``DOWN*+DRAIN``."""
    base, *flags = text.split("+")
    marks = {flag.rstrip(_STATE_SIGNS) for flag in flags}
    if base.endswith("*"):
        marks.add("NOT_RESPONDING")
    return base.rstrip(_STATE_SIGNS), frozenset(marks)


def reservation(record: str) -> Reservation:
    """One reservation. Raises Rejected when the record has no name."""
    found = fields(record)
    if not found.get("ReservationName"):
        raise Rejected(f"not a reservation record: {record[:80]!r}")
    return Reservation(
        name=found["ReservationName"],
        nodes=hosts(found.get("Nodes", "")),
        users=_words(found.get("Users", "")),
        accounts=_words(found.get("Accounts", "")),
        flags=frozenset(_words(found.get("Flags", ""))),
        start_time=time_or_none(found.get("StartTime", "")),
        end_time=time_or_none(found.get("EndTime", "")),
    )


def partitions(text: str) -> tuple[Partition, ...]:
    """Parse ``scontrol show partition --oneliner``. Lines of another form are ignored."""
    lines = [fields(line) for line in text.splitlines()]
    return tuple(
        Partition(
            name=found["PartitionName"],
            preempt_mode=found.get("PreemptMode", ""),
            priority_tier=_number(found.get("PriorityTier")),
            grace_time_s=_number(found.get("GraceTime")),
            nodes=hosts(found.get("Nodes", "")),
        )
        for found in lines
        if found.get("PartitionName")
    )


def topology(text: str) -> Topology:
    """``scontrol show topology``: a tree's switches (``SwitchName=… Level=… Nodes=…``) or blocks (``BlockName=… Nodes=…``).

    Lines of another form are ignored; a node is under each switch that names it, the lowest level first."""
    above: dict[str, list[tuple[int, str]]] = {}
    for line in text.splitlines():
        found = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name = found.get("SwitchName") or found.get("BlockName")
        if name:
            for node in hosts(found.get("Nodes", "")):
                above.setdefault(node, []).append((_number(found.get("Level")), name))
    return Topology({node: tuple(name for _, name in sorted(switches)) for node, switches in above.items()})


def config(text: str) -> dict[str, str]:
    """``scontrol show config``: key → value, ``(null)`` as empty. Only slurmctld's part, without cgroup's and
    ping's."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and " " not in key.strip():
            found.setdefault(key.strip(), "" if value.strip() in {"(null)", "N/A"} else value.strip())
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _number(text: str | None, absent: int = 0) -> int:
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else absent


def _optional(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
