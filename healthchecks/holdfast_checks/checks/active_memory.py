"""``active.memory``: patterns into nearly all free GPU memory and back, on all GPUs at once."""

from __future__ import annotations

from holdfast_checks.active.check import GPU_CALLS, active_check
from holdfast_checks.registry import Need

CHECK = active_check(
    "memory",
    "GPU memory gives back what was written",
    GPU_CALLS,
    frozenset({Need.COMMAND}),
)
