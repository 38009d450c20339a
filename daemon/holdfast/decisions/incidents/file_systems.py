"""File systems that do not answer on several nodes: one notification. Pure.

The nodes are left in service (:func:`holdfast.decisions.common.mounts.waits`); an operator is notified once."""

from __future__ import annotations

from datetime import timedelta

from holdfast.decisions.common import mounts
from holdfast.decisions.common.part import Part
from holdfast.decisions.incidents.correlate import acts
from holdfast.model.actions import steps
from holdfast.model.actions.action import Notify, Proposal
from holdfast.model.book import World
from holdfast.model.conditions import ConditionKind
from holdfast.model.ids import UPKEEP
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.policies.lookback import SPARES_TOLD_S

_FEW = 8


def tell_of_file_systems(world: World) -> Part:
    """One message for each occurrence, in the first half hour: the store knows for an hour that it was sent."""
    proposals = []
    for name, found in sorted(mounts.away(world).items()):
        lasts = world.conditions.of(ConditionKind.FILE_SYSTEM, name)
        if lasts is None:
            continue
        since = min(f.received_at for f in found)
        step = steps.notify_file_system(name, lasts.since)
        fresh = world.now - lasts.since < timedelta(seconds=SPARES_TOLD_S)
        if fresh and any(acts(f.severity, f.remedy) for f in found) and world.may_try(UPKEEP, step):
            nodes = sorted({f.node for f in found})
            more = f" and {len(nodes) - _FEW} more" if len(nodes) > _FEW else ""
            subject = f"{name} does not answer on {len(nodes)} nodes since {since:%Y-%m-%d %H:%M} UTC"
            body = (
                f"{subject}: {', '.join(nodes[:_FEW])}{more}\nOne cause: look at the file server and the network to it. "
                "No node is drained for it; one on which it still does not answer when the others are well is."
            )
            proposals.append(
                Proposal(
                    UPKEEP,
                    step,
                    Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.FILE_SYSTEM, tuple(nodes), lasts.key),
                    subject,
                    order=50,
                )
            )
    return Part(tuple(proposals))
