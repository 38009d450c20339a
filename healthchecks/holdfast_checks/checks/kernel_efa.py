"""``kernel.efa``: EFA's admin queue."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.network import EFA
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(EFA, "The EFA driver reports no dead device", Severity.FATAL, Remedy.REBOOT)
