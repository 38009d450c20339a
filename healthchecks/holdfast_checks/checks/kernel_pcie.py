"""``kernel.pcie``: what PCIe ports report of the devices below them."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.pcie import PCIE
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(PCIE, "PCIe ports report no fatal error", Severity.DEGRADED, Remedy.REBOOT)
