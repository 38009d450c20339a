"""``cloud.maintenance``: has EC2 scheduled a reboot, a stop or a retirement? The controller acts upon it in time (``[planned]``)."""

from __future__ import annotations

from functools import partial

from holdfast_checks.cloud import judge_maintenance
from holdfast_checks.probes.imds import Said, look
from holdfast_checks.registry import Check, Context, Cost, Need
from holdfast_checks.result import Remedy, Severity

CHECK_ID = "cloud.maintenance"
PATH = "events/maintenance/scheduled"


def gather(context: Context) -> Said:
    """Raises NotApplicable where there is no instance metadata."""
    return look(context, PATH)


CHECK = Check(
    id=CHECK_ID,
    title="EC2 has scheduled no maintenance of this machine",
    needs=frozenset({Need.HOST}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    gather=gather,
    judge=partial(judge_maintenance, CHECK_ID),
    compares=True,
    deadline_s=5.0,
    observe=False,
)
