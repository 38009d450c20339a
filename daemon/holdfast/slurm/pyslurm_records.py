"""Convert pyslurm's attributes to the types of ``model.slurm.cluster``. Pure; the attributes of pyslurm 24.11, each None where unset."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ClusterShell.RangeSet import RangeSet, RangeSetException

from holdfast.model.errors import Rejected
from holdfast.model.slurm.cluster import Job, JobKey, Node
from holdfast.slurm.details import SHARED
from holdfast.slurm.hosts import hosts, users_hosts
from holdfast.slurm.parse import LAST_S, node_state
from holdfast.slurm.records import printable
from holdfast.slurm.tasks import waiting_tasks

Attributes = Mapping[str, Any]

NODE_ATTRIBUTES = (
    "name",
    "state",
    "reason",
    "reason_time",
    "address",
    "slurmd_port",
    "partitions",
    "configured_gres",
    "active_features",
    "boot_time",
    "slurmd_start_time",
    "last_busy_time",
)
"""Attributes of ``pyslurm.Node``, and ``reason_user``."""
JOB_ATTRIBUTES = (
    "id",
    "name",
    "user_id",
    "account",
    "partition",
    "qos",
    "state",
    "state_reason",
    "requeue_count",
    "is_requeueable",
    "is_batch_job",
    "num_nodes",
    "allocated_nodes",
    "required_nodes",
    "excluded_nodes",
    "resource_sharing",
    "priority",
    "reservation",
    "comment",
    "admin_comment",
    "submit_time",
    "start_time",
    "end_time",
    "eligible_time",
    "time_limit",
    "exit_code",
    "exit_code_signal",
    "heterogeneous_id",
    "array_id",
    "array_task_id",
    "array_tasks_waiting",
    "array_tasks_parallel",
    "working_directory",
    "standard_output",
)
"""Attributes of ``pyslurm.Job``, and ``user_name`` and ``layout`` (node → GRES held there)."""
_INFINITE = 0xFFFFFFFF
"""slurm.h: INFINITE."""


def node(found: Attributes) -> Node:
    """One node. Raises Rejected when it has no name."""
    if not found["name"]:
        raise Rejected("pyslurm gave a node without a name")
    base, flags = node_state(found["state"] or "UNKNOWN")
    gres = found["configured_gres"] or {}
    reason = found["reason"] or ""
    return Node(
        name=found["name"],
        base_state=base,
        flags=flags,
        reason=reason,
        reason_user=(found["reason_user"] or "") if reason else "",
        reason_time=_time(found["reason_time"]) if reason else None,
        address=found["address"] or "",
        port=_number(found["slurmd_port"], 6818),
        partitions=tuple(found["partitions"] or ()),
        gres=",".join(f"{name}:{count}" for name, count in gres.items()),
        features=frozenset(found["active_features"] or ()),
        gpu_count=sum(_number(count) for name, count in gres.items() if _is_gpu(name)),
        boot_time=_time(found["boot_time"]),
        slurmd_start_time=_time(found["slurmd_start_time"]),
        last_busy_time=_time(found["last_busy_time"]),
    )


def node_in_doubt(found: Attributes) -> bool:
    """Whether the node's base state may be wrong.

    pyslurm 24.11.0 makes MIXED of every node on which some CPUs are allocated and some not, be it DOWN."""
    return str(found["state"] or "").startswith("MIXED")


def job_in_doubt(found: Attributes) -> bool:
    """Whether the job holds nodes whose layout is missing, so that its GPUs are unknown, or ended with an exit code that may be
    wrong.

    pyslurm 24.11.0 reads the layout from a private structure of Slurm; on 24.11.5 it was empty until the job's first step
    ran. It subtracts 128 from every exit code of 128 or more."""
    return bool(found["exit_code"]) or not set(hosts(found["allocated_nodes"] or "")) <= set(found["layout"])


def job(found: Attributes, cluster: str, now: datetime) -> Job:
    """One job. Raises Rejected when what identifies a job is missing."""
    submitted = _time(found["submit_time"])
    if not found["id"] or submitted is None:
        raise Rejected(f"pyslurm gave a job without id or submit time: {found['id']!r}")
    limit_min = found["time_limit"]
    required, unreadable = users_hosts("ReqNodeList", found["required_nodes"] or "")
    excluded, unreadable_too = users_hosts("ExcNodeList", found["excluded_nodes"] or "")
    return Job(
        key=JobKey(cluster, found["id"], submitted),
        name=printable(found["name"] or ""),
        user=found["user_name"],
        uid=_number(found["user_id"]),
        account=printable(found["account"] or ""),
        partition=found["partition"] or "",
        qos=found["qos"] or "",
        state=found["state"] or "",
        reason=_reason(found["state_reason"]),
        restarts=_number(found["requeue_count"]),
        requeue=bool(found["is_requeueable"]),
        batch=bool(found["is_batch_job"]),
        num_nodes=_number(found["num_nodes"]),
        nodes=hosts(found["allocated_nodes"] or ""),
        required_nodes=required,
        excluded_nodes=excluded,
        unreadable=printable(" ".join(filter(None, (unreadable, unreadable_too)))),
        gpu_indices=gpu_indices(found["layout"]),
        shared_indices=shared_indices(found["layout"]),
        exclusive=found["resource_sharing"] == "NO",
        priority=_INFINITE if found["priority"] == "UNLIMITED" else _number(found["priority"]),
        reservation=found["reservation"] or "",
        comment=printable(found["comment"] or ""),
        admin_comment=printable(found["admin_comment"] or ""),
        start_time=_time(found["start_time"]),
        end_time=_end_time(found, now),
        eligible_time=_time(found["eligible_time"]),
        time_limit_s=limit_min * 60 if isinstance(limit_min, int) else None,
        exit_code=f"{_number(found['exit_code'])}:{_number(found['exit_code_signal'])}",
        het_leader=found["heterogeneous_id"] or None,
        array_job_id=found["array_id"] or None,
        array_task_id=_array_task(found),
        array_tasks_waiting=waiting_tasks(found["array_tasks_waiting"] or ""),
        array_throttle=found["array_tasks_parallel"] or None,
        work_dir=printable(found["working_directory"] or ""),
        stdout=printable(found["standard_output"] or ""),
        dependency="" if _waits_for_no_job(found) else None,
    )


def _waits_for_no_job(found: Attributes) -> bool:
    """Whether the job is pending for a reason other than other jobs. pyslurm 24.11 does not show which jobs it waits for in scontrol's
    form."""
    return found["state"] == "PENDING" and _reason(found["state_reason"]) not in (
        "Dependency",
        "DependencyNeverSatisfied",
    )


def gpu_indices(layout: Mapping[str, Mapping[str, Any]]) -> dict[str, frozenset[int]]:
    """Node → GRES indices of GPUs that the job holds there. Nodes without a GPU, or without indices, are absent."""
    held: dict[str, frozenset[int]] = {}
    for name, gres in layout.items():
        indices: set[int] = set()
        for kind, share in gres.items():
            if _is_gpu(kind) and isinstance(share, Mapping):
                indices |= _indices(str(share.get("indexes", "")))
        if indices:
            held[name] = frozenset(indices)
    return held


def shared_indices(layout: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, frozenset[int]]]:
    """Node → ``shard`` or ``mps`` → indices of which the job holds a share."""
    held: dict[str, dict[str, frozenset[int]]] = {}
    for node, gres in layout.items():
        for kind, share in gres.items():
            name = kind.partition(":")[0]
            indices = _indices(str(share.get("indexes", ""))) if isinstance(share, Mapping) else set()
            if name in SHARED and indices:
                mine = held.setdefault(node, {})
                mine[name] = mine.get(name, frozenset()) | indices
    return held


def _indices(text: str) -> set[int]:
    try:
        return {int(index) for index in RangeSet(text)} if text else set()
    except RangeSetException:
        return set()


def _is_gpu(gres: str) -> bool:
    return gres == "gpu" or gres.startswith("gpu:")


def _end_time(found: Attributes, now: datetime) -> datetime | None:
    """As scontrol prints it: the end of a job without a limit is not known while it lies ahead."""
    end = _time(found["end_time"])
    return None if end is not None and found["time_limit"] is None and end > now else end


def _array_task(found: Attributes) -> int | None:
    """Task id of the record. pyslurm shows task 0 as None; an array's record without waiting tasks is one task."""
    task: int | None = found["array_task_id"]
    if task is None and found["array_id"] and not found["array_tasks_waiting"]:
        return 0
    return task


def _reason(text: str | None) -> str:
    """As scontrol prints it: one word, nothing for None."""
    return "" if text in {None, "", "None"} else "_".join(str(text).split())


def _time(seconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(min(seconds, LAST_S), UTC) if isinstance(seconds, int) and seconds else None


def _number(value: object, absent: int = 0) -> int:
    return value if isinstance(value, int) else absent
