"""``cloud.rebalance``: does EC2 think that an interruption is likely?"""

from __future__ import annotations

from functools import partial

from holdfast_checks.cloud import judge_rebalance
from holdfast_checks.probes.imds import Said, look
from holdfast_checks.registry import Check, Context, Cost, Need
from holdfast_checks.result import Remedy, Severity

CHECK_ID = "cloud.rebalance"
PATH = "events/recommendations/rebalance"


def gather(context: Context) -> Said:
    """Raises NotApplicable where there is no instance metadata."""
    return look(context, PATH)


CHECK = Check(
    id=CHECK_ID,
    title="EC2 sees no raised risk of an interruption",
    needs=frozenset({Need.HOST}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    gather=gather,
    judge=partial(judge_rebalance, CHECK_ID),
    compares=True,
    deadline_s=5.0,
    observe=False,
)
