"""``kernel.gpu_driver``: lines of the GPU driver that carry no Xid."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.gpu import GPU_DRIVER
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(GPU_DRIVER, "The GPU driver could start every GPU", Severity.FATAL, Remedy.REBOOT, gpus=True)
