"""``active.pair``: copies between every two GPUs, over NVLink where there is one."""

from __future__ import annotations

from holdfast_checks.active.check import GPU_CALLS, active_check
from holdfast_checks.registry import Need

CHECK = active_check(
    "pair",
    "Copies between GPUs are right and fast enough",
    GPU_CALLS,
    frozenset({Need.COMMAND}),
)
