"""Classes of kernel lines (:mod:`holdfast_checks.kernel`), and the kernel of the boot before, by pstore."""

from __future__ import annotations

from holdfast_checks.kernel import pstore
from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.gpu import GPU_DRIVER, SXID
from holdfast_checks.kernel.host import HUNG_TASK, LOCKUP, OOM, OOPS
from holdfast_checks.kernel.memory import EDAC, MACHINE_CHECK
from holdfast_checks.kernel.network import EFA, MLX5
from holdfast_checks.kernel.network_fs import LUSTRE, NFS
from holdfast_checks.kernel.pcie import PCIE
from holdfast_checks.kernel.storage import BLOCK_IO, FILE_SYSTEM, NVME, READ_ONLY
from holdfast_checks.registry import Check, Cost, Need
from holdfast_checks.result import Remedy, Severity

CHECKS = (
    kernel_check(BLOCK_IO, "No local disk reports input/output errors", Severity.DEGRADED, Remedy.STOP_START),
    kernel_check(EDAC, "Memory controllers report no uncorrectable error", Severity.FATAL, Remedy.STOP_START),
    kernel_check(EFA, "The EFA driver reports no dead device", Severity.FATAL, Remedy.REBOOT),
    kernel_check(FILE_SYSTEM, "No local file system reports damage", Severity.DEGRADED, Remedy.REBOOT),
    kernel_check(GPU_DRIVER, "The GPU driver could start every GPU", Severity.FATAL, Remedy.REBOOT, gpus=True),
    kernel_check(HUNG_TASK, "No task hangs in the kernel", Severity.WARNING, Remedy.NONE),
    kernel_check(LOCKUP, "No CPU was stuck", Severity.DEGRADED, Remedy.REBOOT),
    kernel_check(LUSTRE, "The Lustre client lost nothing", Severity.DEGRADED, Remedy.REBOOT),
    kernel_check(MACHINE_CHECK, "CPUs and memory report no uncorrected error", Severity.FATAL, Remedy.STOP_START),
    kernel_check(MLX5, "The mlx5 driver reports no dead adapter", Severity.FATAL, Remedy.REBOOT),
    kernel_check(NFS, "NFS servers answer", Severity.WARNING, Remedy.NONE),
    kernel_check(NVME, "NVMe controllers answer", Severity.DEGRADED, Remedy.STOP_START),
    kernel_check(OOM, "The node has not run out of memory", Severity.WARNING, Remedy.NONE),
    kernel_check(OOPS, "The kernel has not tripped over itself", Severity.FATAL, Remedy.REBOOT),
    Check(
        id=pstore.CHECK_ID,
        title="The boot before did not end in a kernel panic",
        needs=frozenset({Need.HOST}),
        interval_s=3600,
        cost=Cost.PASSIVE,
        severity=Severity.WARNING,
        remedy=Remedy.HUMAN,
        gather=pstore.gather,
        judge=pstore.judge,
        thresholds=(pstore.BEFORE_BOOT_S,),
    ),
    kernel_check(PCIE, "PCIe ports report no fatal error", Severity.DEGRADED, Remedy.REBOOT),
    kernel_check(READ_ONLY, "No file system turned read-only after an error", Severity.DEGRADED, Remedy.REBOOT),
    kernel_check(SXID, "NVSwitch reports no fatal error", Severity.FATAL, Remedy.STOP_START),
)
