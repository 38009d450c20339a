"""``kernel.panic``: the kernel of the boot before died, says pstore."""

from __future__ import annotations

from holdfast_checks.kernel.pstore import BEFORE_BOOT_S, CHECK_ID, gather, judge
from holdfast_checks.registry import Check, Cost, Need
from holdfast_checks.result import Remedy, Severity

CHECK = Check(
    id=CHECK_ID,
    title="The boot before did not end in a kernel panic",
    needs=frozenset({Need.HOST}),
    interval_s=3600,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.HUMAN,
    gather=gather,
    judge=judge,
    thresholds=(BEFORE_BOOT_S,),
)
