"""``kernel.machine_check``: machine checks."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.memory import MACHINE_CHECK
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(MACHINE_CHECK, "CPUs and memory report no uncorrected error", Severity.FATAL, Remedy.STOP_START)
