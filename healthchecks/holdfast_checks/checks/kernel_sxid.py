"""``kernel.sxid``: what the NVSwitch driver says."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.gpu import SXID
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(SXID, "NVSwitch reports no fatal error", Severity.FATAL, Remedy.STOP_START)
