"""``dcgm.diag1``: ``dcgmi diag -r 1``. Run by name only: a diagnostic of DCGM wants its GPUs for itself."""

from __future__ import annotations

from holdfast_checks.dcgm.level import diag_check
from holdfast_checks.registry import Cost

CHECK = diag_check(
    1,
    "DCGM's quick diagnostic passes (software, settings, memory state)",
    Cost.LIGHT,
    10,
    "never more than 10 s in a prolog; level 1 takes seconds",
)
