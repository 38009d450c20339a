"""Job details that only ``scontrol show job -d`` shows. Pure; formats of Slurm 22.05 to 26.05."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ClusterShell.RangeSet import RangeSet, RangeSetException

from holdfast.model.slurm.asks import Asks
from holdfast.slurm.asks import asks
from holdfast.slurm.hosts import hosts, users_hosts
from holdfast.slurm.records import slurms_own
from holdfast.slurm.squeue import SqueueRow

_DETAIL = re.compile(r"\sNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GRES_INDICES = re.compile(r"(?:^|,)(?:gres[:/])?(gpu|shard|mps)(?::[^:,()]+)*:\d+\(IDX:([0-9,\-]*)\)")
_EXCLUDED = re.compile(r" ReqNodeList=.*? ExcNodeList=(.*?) NodeList=", re.DOTALL)
_SUSPENDED = re.compile(r" SuspendTime=(\d+) SecsPreSuspend=")
_SHARING = re.compile(r" OverSubscribe=(\S+)(?: Exclusive=(\S+))? Contiguous=")
_THROTTLE = re.compile(r"JobId=\d+ ArrayJobId=\d+ ArrayTaskId=\S+ ArrayTaskThrottle=(\d+)")
SHARED = ("shard", "mps")
"""GRES of which several jobs hold shares of one GPU."""


@dataclass(frozen=True, slots=True)
class Details:
    """Details of a job. None of them can hide a job, free its nodes or end it: where they are unknown, Holdfast does less."""

    excluded_nodes: tuple[str, ...] = ()
    unreadable: str = ""
    """The list of excluded nodes, where it cannot be read."""
    exclusions_known: bool = True
    suspend_time: datetime | None = None
    exclusive: bool = False
    asks: Asks | None = None
    array_throttle: int | None = None
    gpu_indices: Mapping[str, frozenset[int]] = field(default_factory=dict)
    shared_indices: Mapping[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    gpus_known: bool = True


def unknown(now: datetime) -> Details:
    """Details of a job whose record is in doubt: a GPU fault is not linked to it, its silence counts from now on, and the nodes that its
    user excluded are not overwritten."""
    return Details(exclusions_known=False, gpus_known=False, suspend_time=now)


def details(record: str, row: SqueueRow) -> Details | None:
    """None: the record is not that of this job as it is now."""
    own = slurms_own(record, row)
    if own is None:
        return None
    excluded, suspended = _EXCLUDED.search(own.held), _SUSPENDED.search(own.state)
    excluded_nodes, unreadable = users_hosts("ExcNodeList", excluded[1] if excluded else "")
    sharing, throttle = _SHARING.search(own.rest), _THROTTLE.match(own.head)
    return Details(
        excluded_nodes=excluded_nodes,
        unreadable=unreadable,
        suspend_time=datetime.fromtimestamp(int(suspended[1]), UTC) if suspended else None,
        exclusive=sharing is not None and (sharing[2] == "NODE" if sharing[2] else sharing[1] == "NO"),
        asks=asks(own),
        array_throttle=(int(throttle[1]) or None) if throttle else None,
        gpu_indices=gpu_indices(own.held),
        shared_indices=shared_indices(own.held) if any(name in own.held for name in SHARED) else {},
    )


def gpu_indices(record: str, *names: str) -> dict[str, frozenset[int]]:
    """Node → GRES indices of GPUs, or of ``names``, from the detail lines of ``show job -d``. Nodes without one are absent."""
    held: dict[str, frozenset[int]] = {}
    for nodes, gres in _DETAIL.findall(record):
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
