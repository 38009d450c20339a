"""From ``scontrol show … -o`` to the nouns of ``model.cluster``. Pure; formats of Slurm 22.05 to 26.05.

Times are asked for as seconds since 1970 (``SLURM_TIME_FORMAT=%s``), so that no time zone comes into it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain

from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.RangeSet import RangeSet, RangeSetException

from holdfast.model.background import Topology
from holdfast.model.cluster import Job, JobKey, Node, Partition, Reservation
from holdfast.model.errors import Rejected
from holdfast.slurm.records import OwnTexts, fields, free_text, printable

_REASON = re.compile(r"(?:^|\s)Reason=(.*) \[([^\s@\]]*)@([^\s\]]*)\]", re.DOTALL)
_USER = re.compile(r"(.*)\((\d+)\)$")
_DETAIL = re.compile(r"\sNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GRES_INDICES = re.compile(r"(?:^|,)(?:gres[:/])?(gpu|shard|mps)(?::[^:,()]+)*:\d+\(IDX:([0-9,\-]*)\)")
_GRES_COUNT = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,()]+)?:(\d+)(?=,|$)")
SHARED = ("shard", "mps")
"""GRES of which several jobs hold shares of one GPU."""
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::([1-9]\d*))?)?")
_MOST_TASKS = 4_000_001
"""slurm.conf(5): the most that MaxArraySize may be."""
_STATE_SIGNS = "*~#!%$@^-"
"""sinfo(1): signs after a state; the star is for a node that does not respond."""
_UNITS_S = (86400, 3600, 60, 1)


@lru_cache(maxsize=4096)
def hosts(text: str) -> tuple[str, ...]:
    """Node names of a host list such as ``n[1-3,7]``, in its order; empty for none. Raises Rejected for nonsense."""
    if text in {"", "(null)", "None assigned"}:
        return ()
    try:
        return tuple(NodeSet(text))
    except NodeSetException as error:
        raise Rejected(f"not a host list: {text!r}") from error


def fold(names: Iterable[str]) -> str:
    """Names as one host list."""
    return str(NodeSet.fromlist(list(names)))


def time_or_none(text: str) -> datetime | None:
    """A time in seconds since 1970; None for Unknown, None, N/A."""
    return datetime.fromtimestamp(int(text), UTC) if text.isdigit() and int(text) else None


def duration_s(text: str) -> int | None:
    """``[days-]hours:minutes:seconds``; None for UNLIMITED, Partition_Limit and the like."""
    days, _, rest = text.rpartition("-")
    parts = rest.split(":")
    if not 2 <= len(parts) <= 3 or not all(part.isdigit() for part in (*parts, days or "0")):
        return None
    numbers = [int(days or 0), *([0] if len(parts) == 2 else []), *(int(part) for part in parts)]
    return sum(number * unit for number, unit in zip(numbers, _UNITS_S, strict=True))


def gpu_indices(record: str, *names: str) -> dict[str, frozenset[int]]:
    """Node → GRES indices of GPUs, or of ``names``, from the detail lines of ``show job -d``. Nodes without one are absent."""
    held: dict[str, frozenset[int]] = {}
    for nodes, gres in _DETAIL.findall(record.partition(" Command=")[0]):
        indices = _indices(gres, names or ("gpu",))
        for node in hosts(nodes) if indices else ():
            held[node] = held.get(node, frozenset()) | indices
    return held


def shared_indices(record: str) -> dict[str, dict[str, frozenset[int]]]:
    """Node → ``shard`` or ``mps`` → indices of which the job holds a share."""
    held: dict[str, dict[str, frozenset[int]]] = {}
    for name in SHARED:
        for node, indices in gpu_indices(record, name).items():
            held.setdefault(node, {})[name] = indices
    return held


def _indices(gres: str, names: Collection[str]) -> frozenset[int]:
    found: set[int] = set()
    for name, text in _GRES_INDICES.findall(gres):
        try:
            found.update(int(index) for index in RangeSet(text) if name in names)
        except RangeSetException:
            continue
    return frozenset(found)


def job(record: str, cluster: str, own: OwnTexts) -> Job:
    """One job. ``own``: name and account, read apart because they may have been cut out of the record.

    What not every record has, the ids of an array or of a heterogeneous job, Slurm prints before the name: elsewhere users wrote it.

    Raises Rejected when the record lacks what identifies a job."""
    found, ids = fields(record.partition(" Command=")[0]), fields(record.partition(" JobName=")[0])
    submitted = time_or_none(found.get("SubmitTime", ""))
    user = _USER.match(found.get("UserId", ""))
    if not found.get("JobId", "").isdigit() or submitted is None or user is None:
        raise Rejected(f"not a job record: {record[:80]!r}")
    job_id = int(found["JobId"])
    return Job(
        key=JobKey(cluster, job_id, submitted),
        name=printable(own.name),
        user=user[1],
        uid=int(user[2]),
        account="" if own.account == "(null)" else printable(own.account),
        partition=found.get("Partition", ""),
        qos=found.get("QOS", ""),
        state=found.get("JobState", ""),
        reason=found.get("Reason", ""),
        restarts=_number(found.get("Restarts")),
        requeue=found.get("Requeue") == "1",
        batch=found.get("BatchFlag", "0") != "0",
        num_nodes=_number(found.get("NumNodes")),
        nodes=hosts(found.get("NodeList", "")),
        required_nodes=hosts(found.get("ReqNodeList", "")),
        excluded_nodes=hosts(found.get("ExcNodeList", "")),
        gpu_indices=gpu_indices(record),
        shared_indices=shared_indices(record) if any(name in record for name in SHARED) else {},
        exclusive=_has_nodes_alone(found),
        priority=_number(found.get("Priority")),
        reservation=found.get("Reservation", ""),
        comment=printable(free_text(record, "Comment")),
        admin_comment=printable(free_text(record, "AdminComment")),
        start_time=time_or_none(found.get("StartTime", "")),
        end_time=time_or_none(found.get("EndTime", "")),
        suspend_time=time_or_none(found.get("SuspendTime", "")),
        eligible_time=time_or_none(found.get("EligibleTime", "")),
        time_limit_s=duration_s(found.get("TimeLimit", "")),
        exit_code=found.get("ExitCode", ""),
        het_leader=_optional(ids.get("HetJobId")),
        array_job_id=_optional(ids.get("ArrayJobId")),
        array_task_id=_optional(ids.get("ArrayTaskId")),
        array_tasks_waiting=_waiting(ids.get("ArrayTaskId", "")),
        array_throttle=_optional(ids.get("ArrayTaskThrottle")) or None,
        work_dir=printable(free_text(record, "WorkDir")),
        stdout=printable(free_text(record, "StdOut")),
    )


def waiting_tasks(text: str) -> tuple[int, ...]:
    """Task ids of ``2-5,9%1`` or ``0-8:2``; empty for what cannot be read, and for more than an array may have."""
    found = [_TASKS.fullmatch(part) for part in text.partition("%")[0].split(",")]
    ranges = [range(int(m[1]), int(m[2] or m[1]) + 1, int(m[3] or 1)) for m in found if m is not None]
    if len(ranges) != len(found) or sum(map(len, ranges)) > _MOST_TASKS:
        return ()
    return tuple(chain.from_iterable(ranges))


def _waiting(task: str) -> tuple[int, ...]:
    return () if task.isdigit() else waiting_tasks(task)


def _has_nodes_alone(found: Mapping[str, str]) -> bool:
    """From 26.05 on Slurm says it in a key of its own, and ``OverSubscribe=NO`` also of jobs that share their nodes."""
    return found["Exclusive"] == "NODE" if "Exclusive" in found else found.get("OverSubscribe") == "NO"


def node(record: str) -> Node:
    """One node. Raises Rejected when the record has no name."""
    found = fields(record)
    if not found.get("NodeName"):
        raise Rejected(f"not a node record: {record[:80]!r}")
    base, flags = node_state(found.get("State", "UNKNOWN"))
    reason = _REASON.search(record)
    return Node(
        name=found["NodeName"],
        base_state=base,
        flags=flags,
        reason=reason[1] if reason else found.get("Reason", ""),
        reason_user=reason[2] if reason else "",
        reason_time=time_or_none(reason[3]) if reason else None,
        address=found.get("NodeAddr", ""),
        port=_number(found.get("Port"), 6818),
        partitions=tuple(part for part in found.get("Partitions", "").split(",") if part),
        gres=found.get("Gres", ""),
        features=frozenset(f for f in _words(found.get("ActiveFeatures", "")) if f != "(null)"),
        gpu_count=sum(int(count) for count in _GRES_COUNT.findall(re.sub(r"\([^)]*\)", "", found.get("Gres", "")))),
        boot_time=time_or_none(found.get("BootTime", "")),
        slurmd_start_time=time_or_none(found.get("SlurmdStartTime", "")),
        last_busy_time=time_or_none(found.get("LastBusyTime", "")),
    )


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
    """``scontrol show partition --oneliner``. A line of another shape says nothing."""
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

    A line of another shape says nothing; a node is under each switch that names it, the lowest level first."""
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
