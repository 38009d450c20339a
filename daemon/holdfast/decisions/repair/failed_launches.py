"""Failed launches: machines that replaced a node in place and whose agent never reported. Pure.

Only the provider can report that such a machine has failed (HyperPod: ``Failure``), and only the provider knows its id. The next order
names that machine, since the one before it is gone."""

from __future__ import annotations

from datetime import timedelta

from holdfast.decisions.common import attempted_steps, node_agents
from holdfast.decisions.planned import notices
from holdfast.decisions.repair import repair_progress
from holdfast.decisions.repair.ladder import Rung
from holdfast.model.actions.action import Intent, Replace
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast.model.machine import Notice, NoticeKind

LAG_S = 180.0
"""A failing status check of a new machine counts once it has failed for this long (ParallelCluster's own health_check_timeout). A notice
without a time is a verdict, not a status check: it counts at once."""


def failure(world: World, incident: Incident) -> str | None:
    """Reason why this attempt will bring no machine; None: none is reported."""
    notice = _word(world, incident)
    return f"the new machine {notice.instance_id} did not come up: {notice.code}: {notice.text}" if notice else None


def successor(world: World, incident: Incident) -> str | None:
    """The machine that has the name now as the provider reports it, if its agent has not reported; None: not known, or the agent
    reports."""
    ordered = _ordered(world, incident)
    if ordered is None or repair_progress.machine_up(world, incident) is not None:
        return None
    notice = _word(world, incident)
    named = notice.instance_id if notice is not None else str(ordered.result.get("instance_id", ""))
    return named if named and named != ordered.action.target.instance_id else None


def _ordered(world: World, incident: Incident) -> Intent | None:
    """The order of this attempt to exchange the machine in place, once it was taken."""
    if repair_progress.rung_of(incident) is not Rung.REPLACE:
        return None
    done = attempted_steps.done(repair_progress.attempts(world, incident))
    return done if done is not None and isinstance(done.action, Replace) else None


def _word(world: World, incident: Incident) -> Notice | None:
    """The provider's notice that the machine which the order brought is impaired; None while any agent of the node reports."""
    ordered, looked = _ordered(world, incident), notices.looked(world)
    if node_agents.unheard_yet(world, incident.node):
        return None
    if ordered is None or looked is None or looked.error or node_agents.agent_of(world, incident.node) is not None:
        return None
    since = ordered.finished_at or ordered.planned_at
    before = {ordered.action.target.instance_id, incident.instance_id, incident.machine}
    if looked.seen_at <= since:
        return None
    for notice in looked.notices:
        new = notice.node == incident.node and notice.instance_id not in before
        lasting = notice.at is None or world.now - notice.at >= timedelta(seconds=LAG_S)
        if new and lasting and notice.kind is NoticeKind.IMPAIRED:
            return notice
    return None
