"""``dcgm.diag2``: ``dcgmi diag -r 2``. Run by name only: a diagnostic of DCGM wants its GPUs for itself."""

from __future__ import annotations

from holdfast_checks.dcgm.level import diag_check
from holdfast_checks.registry import Cost

CHECK = diag_check(
    2,
    "DCGM's medium diagnostic passes (adds PCIe and memory)",
    Cost.ACTIVE,
    1800,
    "awslabs: 30 min; 2.5 to 10.5 min seen on AWS",
)
