"""Active tests: they need an idle node, and run by name only (:mod:`holdfast_checks.active`)."""

from __future__ import annotations

from holdfast_checks.active.check import GPU_CALLS, Calls, active_check
from holdfast_checks.registry import Need
from holdfast_checks.result import Remedy, Severity

CHECKS = (
    active_check(
        "burn",
        "GPUs compute right under load, and fast enough",
        GPU_CALLS,
        frozenset({Need.COMMAND}),
    ),
    active_check(
        "copy",
        "Copies to and from each GPU are right and fast enough",
        GPU_CALLS,
        frozenset({Need.COMMAND}),
    ),
    active_check(
        "efa",
        "Each EFA device carries data to itself fast enough",
        Calls((Severity.DEGRADED, Remedy.HUMAN), (Severity.DEGRADED, Remedy.HUMAN)),
        frozenset({Need.NETWORK, Need.COMMAND}),
    ),
    active_check(
        "memory",
        "GPU memory gives back what was written",
        GPU_CALLS,
        frozenset({Need.COMMAND}),
    ),
    active_check(
        "pair",
        "Copies between GPUs are right and fast enough",
        GPU_CALLS,
        frozenset({Need.COMMAND}),
    ),
    active_check(
        "tcp",
        "TCP within the node is right and as fast as it was",
        Calls((Severity.DEGRADED, Remedy.HUMAN), (Severity.WARNING, Remedy.NONE)),
        frozenset({Need.COMMAND}),
    ),
)
