"""``active.copy``: copies between the host's memory and each GPU."""

from __future__ import annotations

from holdfast_checks.active.check import GPU_CALLS, active_check
from holdfast_checks.registry import Need

CHECK = active_check(
    "copy",
    "Copies to and from each GPU are right and fast enough",
    GPU_CALLS,
    frozenset({Need.COMMAND}),
)
