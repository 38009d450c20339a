"""``dcgmi diag -r 1`` to ``3``. Run by name only: a diagnostic of DCGM needs its GPUs exclusively."""

from __future__ import annotations

from holdfast_checks.dcgm.level import diag_check
from holdfast_checks.registry import Cost

CHECKS = (
    diag_check(
        1,
        "DCGM's quick diagnostic passes (software, settings, memory state)",
        Cost.LIGHT,
        10,
        "never more than 10 s in a prolog; level 1 takes seconds",
    ),
    diag_check(
        2,
        "DCGM's medium diagnostic passes (adds PCIe and memory)",
        Cost.ACTIVE,
        1800,
        "awslabs: 30 min; 2.5 to 10.5 min seen on AWS",
    ),
    diag_check(
        3,
        "DCGM's long diagnostic passes (adds stress of compute, power and memory)",
        Cost.ACTIVE,
        3600,
        "awslabs: 60 min",
    ),
)
