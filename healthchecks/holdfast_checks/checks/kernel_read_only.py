"""``kernel.read_only``: file systems that turned read-only."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.storage import READ_ONLY
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(READ_ONLY, "No file system turned read-only after an error", Severity.DEGRADED, Remedy.REBOOT)
