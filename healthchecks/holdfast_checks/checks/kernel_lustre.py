"""``kernel.lustre``: Lustre's client."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.network_fs import LUSTRE
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(LUSTRE, "The Lustre client lost nothing", Severity.DEGRADED, Remedy.REBOOT)
