"""``active.tcp``: a TCP stream within the node: the processor and the kernel, not a network."""

from __future__ import annotations

from holdfast_checks.active.check import Calls, active_check
from holdfast_checks.registry import Need
from holdfast_checks.result import Remedy, Severity

CHECK = active_check(
    "tcp",
    "TCP within the node is right and as fast as it was",
    Calls((Severity.DEGRADED, Remedy.HUMAN), (Severity.WARNING, Remedy.NONE)),
    frozenset({Need.COMMAND}),
)
