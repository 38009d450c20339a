"""``kernel.nfs``: NFS servers that do not answer."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.network_fs import NFS
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(NFS, "NFS servers answer", Severity.WARNING, Remedy.NONE)
