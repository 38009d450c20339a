"""``active.burn``: the same large product again and again on all GPUs at once: heat, speed, and whether it is right."""

from __future__ import annotations

from holdfast_checks.active.check import GPU_CALLS, active_check
from holdfast_checks.registry import Need

CHECK = active_check(
    "burn",
    "GPUs compute right under load, and fast enough",
    GPU_CALLS,
    frozenset({Need.COMMAND}),
)
