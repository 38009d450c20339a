"""Requirements of a job on each of its nodes. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TYPED_GPUS = re.compile(r"(?:^|,)(?:gres[:/])?gpu:([^:,()]+):(\d+)(?=[,(]|$)")


@dataclass(frozen=True, slots=True)
class Asks:
    """Criteria by which Slurm chooses a job's nodes, for each node, in addition to partition, reservation and named nodes."""

    features: frozenset[str] = frozenset()
    """Each of them."""
    gpus: int = 0
    gpu_type: str = ""
    """Empty: any."""
    cpus: int = 0
    memory_mb: int = 0
    memory_per_cpu_mb: int = 0


@dataclass(frozen=True, slots=True)
class Has:
    """Resources of a node when it is empty."""

    features: frozenset[str]
    gres: str
    gpus: int
    cpus: int
    memory_mb: int

    def meets(self, asks: Asks) -> bool:
        """For certain. Of memory by the CPU as much is wanted as all of the node's CPUs could take."""
        typed = sum(int(count) for kind, count in _TYPED_GPUS.findall(self.gres) if kind == asks.gpu_type)
        memory_mb = max(asks.memory_mb, asks.memory_per_cpu_mb * max(self.cpus, asks.cpus))
        return (
            asks.features <= self.features
            and asks.gpus <= (typed if asks.gpu_type else self.gpus)
            and asks.cpus <= self.cpus
            and memory_mb <= self.memory_mb
        )
