"""``kernel.block_io``: input/output errors of local disks."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.storage import BLOCK_IO
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(BLOCK_IO, "No local disk reports input/output errors", Severity.DEGRADED, Remedy.STOP_START)
