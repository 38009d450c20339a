"""``kernel.oom``: the node ran out of memory, not only a job's cgroup."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.host import OOM
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(OOM, "The node has not run out of memory", Severity.WARNING, Remedy.NONE)
