"""``kernel.nvme``: NVMe controllers."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.storage import NVME
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(NVME, "NVMe controllers answer", Severity.DEGRADED, Remedy.STOP_START)
