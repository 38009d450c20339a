"""``kernel.edac``: memory errors by DIMM."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.memory import EDAC
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(EDAC, "Memory controllers report no uncorrectable error", Severity.FATAL, Remedy.STOP_START)
