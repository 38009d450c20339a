"""``kernel.file_system``: damage in local file systems."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.storage import FILE_SYSTEM
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(FILE_SYSTEM, "No local file system reports damage", Severity.DEGRADED, Remedy.REBOOT)
