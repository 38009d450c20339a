"""``cloud.metadata``: EC2's instance metadata, and so the machine's role, is closed to users. A finding needs an operator."""

from __future__ import annotations

from holdfast_checks.per_host import bad, good
from holdfast_checks.probes.imds import base_url
from holdfast_checks.probes.imds_users import DEADLINE_S, MetadataReached, addresses, try_as_user
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "cloud.metadata"


def gather(context: Context) -> MetadataReached:
    """Raises NotApplicable away from EC2 and where the site lets jobs use the role; NotGathered without root's rights."""
    if context.settings.cloud.jobs_use_role:
        raise NotApplicable("the site lets jobs use the machine's role (cloud.jobs_use_role)")
    return try_as_user(addresses(base_url(context.settings)))


def judge(reached: MetadataReached) -> tuple[Result, ...]:
    """Never more than a warning: the node itself is healthy."""
    if not reached.addresses:
        return (good(CHECK_ID, "users do not reach the instance metadata"),)
    way = "without a token (IMDSv1)" if reached.plain else "with a token (IMDSv2)"
    summary = (
        f"any user of this node can read the machine's role from {', '.join(reached.addresses)}, {way}: close it by "
        "holdfast-metadata.service (docs/iam), or set cloud.jobs_use_role where jobs need the role"
    )
    return (bad(CHECK_ID, "open", Severity.WARNING, Remedy.HUMAN, summary, plain=bool(reached.plain)),)


CHECK = Check(
    id=CHECK_ID,
    title="EC2's instance metadata is closed to users",
    needs=frozenset({Need.HOST}),
    interval_s=3600,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.HUMAN,
    gather=gather,
    judge=judge,
    deadline_s=DEADLINE_S + 2.0,
)
