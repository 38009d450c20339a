"""``kernel.hung_task``: tasks that do not come back from the kernel."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.host import HUNG_TASK
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(HUNG_TASK, "No task hangs in the kernel", Severity.WARNING, Remedy.NONE)
