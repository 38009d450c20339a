"""A job's requests to its nodes, from its record of ``scontrol show job``. Pure; formats of Slurm 22.05 to 26.05.

The record is understood completely, or the result is unknown: an unknown word may be what keeps the job off a node. Users' texts follow the
part that is read in order. A user can add keys that are searched for there (``TresPerNode`` …) but not hide them, and additional ones only
make the result stricter."""

from __future__ import annotations

import re

from holdfast.model.slurm.asks import Asks
from holdfast.slurm.records import Own

_SIZE = re.compile(
    r" NumNodes=(\d+)(?:-\d+)? NumCPUs=(\d+)(?:-\d+)? NumTasks=\d+ CPUs/Task=(\d+|N/A) ReqB:S:C:T=0:0:\*:\* "
    r".* ?Socks/Node=\* NtasksPerN:B:S:C=(\d+):0:\*:\S+ CoreSpec=\*(?: |$)"
)
_NEEDS = re.compile(
    r"(\d+) MinMemory(Node|CPU)=(\d+(?:\.\d+)?)([KMGTP]?) MinTmpDiskNode=0 Features=(\S+) DelayBoot=\S+ (?:Reservation=\S+ )?"
    r"OverSubscribe=\S+ (?:Exclusive=\S+ )?Contiguous=0 Licenses=\(null\) "
)
_MORE = re.compile(r"((?:TresPer|MemPer|CpusPer)\w+|Switches|BurstBuffer|ClusterFeatures)=(\S*)")
_FEATURES = re.compile(r"[\w.-]+(?:&[\w.-]+)*")
_GPUS = re.compile(r"gres[:/]gpu(?:[:=](?!\d+$)([\w.-]+))?(?:[:=](\d+))?")
_CPUS = re.compile(r"cpu[:=]\d+")
_MB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}


def asks(own: Own) -> Asks | None:
    """Parse the requests; None: the job requests something unknown to this module."""
    size, needs = _SIZE.search(own.held), _NEEDS.match(own.rest)
    gpus = _gpus(own.rest)
    if size is None or needs is None or gpus is None:
        return None
    features = frozenset[str]()
    if needs[5] != "(null)":
        if not _FEATURES.fullmatch(needs[5]):
            return None
        features = frozenset(needs[5].split("&"))
    nodes, cpus, per_task, tasks = int(size[1]), int(size[2]), size[3], int(size[4])
    memory_mb = -int(-float(needs[3]) * _MB[needs[4]] // 1)
    return Asks(
        features=features,
        gpus=gpus[1],
        gpu_type=gpus[0],
        cpus=max(int(needs[1]), -(-cpus // max(1, nodes)), tasks * (int(per_task) if per_task.isdigit() else 1)),
        memory_mb=memory_mb if needs[2] == "Node" else 0,
        memory_per_cpu_mb=memory_mb if needs[2] == "CPU" else 0,
    )


def _gpus(rest: str) -> tuple[str, int] | None:
    """Type and number of GPUs per node."""
    types, most = set(), 0
    for key, value in _MORE.findall(rest):
        if key == "TresPerTask" and _CPUS.fullmatch(value):
            continue  # CPUs/Task says so, too
        found = _GPUS.fullmatch(value) if key == "TresPerNode" else None
        if found is None:
            return None
        types.add(found[1] or "")
        most = max(most, int(found[2] or 1))
    return (types.pop() if types else "", most) if len(types) <= 1 else None
