"""``cloud.interruption``: is this spot machine about to be taken back? EC2 says so two minutes ahead, and asks to be asked every 5 s."""

from __future__ import annotations

from functools import partial

from holdfast_checks.cloud import judge_interruption
from holdfast_checks.probes.imds import Said, look
from holdfast_checks.registry import Check, Context, Cost, Need
from holdfast_checks.result import Remedy, Severity

CHECK_ID = "cloud.interruption"
PATH = "spot/instance-action"


def gather(context: Context) -> Said:
    """Raises NotApplicable where there is no instance metadata."""
    return look(context, PATH)


CHECK = Check(
    id=CHECK_ID,
    title="EC2 does not take this spot machine back",
    needs=frozenset({Need.HOST}),
    interval_s=5,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.REPLACE,
    gather=gather,
    judge=partial(judge_interruption, CHECK_ID),
    compares=True,
    deadline_s=5.0,
    observe=False,
)
