"""``kernel.oops``: bugs of the kernel, and panics."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.host import OOPS
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(OOPS, "The kernel has not tripped over itself", Severity.FATAL, Remedy.REBOOT)
