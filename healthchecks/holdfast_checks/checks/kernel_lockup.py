"""``kernel.lockup``: CPUs that were stuck in the kernel."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.host import LOCKUP
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(LOCKUP, "No CPU was stuck", Severity.DEGRADED, Remedy.REBOOT)
