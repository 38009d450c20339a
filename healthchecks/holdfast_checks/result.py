"""The nouns of a health check: verdict, severity, remedy and result. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Scalar = str | int | float | bool
"""What evidence may hold: nothing nested, so that it fits a log line and a database column."""

NODE_COMPONENT = "node"
"""The component of a result that concerns the node as a whole."""


class Verdict(StrEnum):
    """What a check found. Only ``OK`` clears an earlier finding; only ``DEGRADED`` and ``FAILED`` raise one."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It could not be asked (a hang, an error). Never health, never a fault by itself."""
    SKIPPED = "skipped"
    """It does not apply here (no such hardware, an old driver); the summary says why."""


class Severity(StrEnum):
    """How soon a finding calls for action."""

    FATAL = "fatal"
    """Act now: the jobs on the component are lost or produce wrong results."""
    DEGRADED = "degraded"
    """Take the node out of service when its jobs end."""
    WARNING = "warning"
    """Record and watch; never act."""


class Remedy(StrEnum):
    """What the evidence calls for, in rising order of cost."""

    NONE = "none"
    RESTART_JOB = "restart_job"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    STOP_START = "stop_start"
    REPLACE = "replace"
    HUMAN = "human"


@dataclass(frozen=True, slots=True)
class Result:
    """One judged result of one check on one component of this node."""

    check: str
    """Id of the check, such as ``gpu.xid``."""
    verdict: Verdict
    component: str = NODE_COMPONENT
    """GPU UUID, PCI address, EFA device, mount point, or ``node``."""
    code: str = ""
    """What the check's own domain calls the fault (an Xid number); with check and component it names a finding."""
    severity: Severity | None = None
    """None when the verdict is neither DEGRADED nor FAILED."""
    remedy: Remedy = Remedy.NONE
    summary: str = ""
    """One line for people; no control characters."""
    evidence: Mapping[str, Scalar] = field(default_factory=dict)
    gpu_uuid: str | None = None
    gpu_minor: int | None = None
    """Device minor number (``/dev/nvidiaN``), which is what Slurm's GRES index names. None: not a GPU, or unknown."""
    pci: str | None = None
    """PCI address, ``0000:3b:00.0``, lower case."""
    fault_monotonic_s: float | None = None
    """When the fault happened on this node's CLOCK_MONOTONIC, in seconds. None: when the check saw it."""
    consequence: bool = False
    """A consequence of another fault (Xid 43, 45): joins an incident, never opens one."""
    sticky: bool = False
    """The hardware keeps the state (row remap, lost GPU) until it is repaired: an OK of the same check clears it.
    An event (an Xid) is not sticky: nothing but repair or an operator clears it."""

    @property
    def bad(self) -> bool:
        return self.verdict in (Verdict.DEGRADED, Verdict.FAILED)
