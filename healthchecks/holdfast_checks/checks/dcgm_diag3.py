"""``dcgm.diag3``: ``dcgmi diag -r 3``. Run by name only: a diagnostic of DCGM wants its GPUs for itself."""

from __future__ import annotations

from holdfast_checks.dcgm.level import diag_check
from holdfast_checks.registry import Cost

CHECK = diag_check(
    3,
    "DCGM's long diagnostic passes (adds stress of compute, power and memory)",
    Cost.ACTIVE,
    3600,
    "awslabs: 60 min",
)
