"""Provider notices about machines that serve: read from its API by the actor, or on the machine by the agent. Pure.

A finding of an agent passes such a notice on if a check of the instance metadata made it (:data:`PASSED_ON_BY`), its evidence names a kind
under ``notice`` (and ``goes_at``, if a time is given), and the provider has such metadata. Its severity limits the actions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.decisions.common import node_agents, node_incidents
from holdfast.model.agents.report import Finding
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.machine import PASSED_ON_BY, Notice, NoticeKind, ProviderView
from holdfast.model.policies.lookback import ANNOUNCED_S
from holdfast_checks.result import Severity

LOOK_OLD_S = 180.0
"""The actor polls every 20 s: an older reading of the provider says nothing about the present."""
TAKES_AWAY = frozenset({NoticeKind.INTERRUPTION, NoticeKind.STOP, NoticeKind.REBOOT})
"""Kinds that no job survives."""
_KINDS = {kind.value: kind for kind in NoticeKind}
_FURTHEST = timedelta(seconds=ANNOUNCED_S)
"""A time further off is a mistake (AWS announces retirements two weeks ahead)."""
_LONG_PAST = timedelta(hours=1)  # rule undeclared-window: a time that a notice names
_SAME_TIME = timedelta(seconds=2)
_ASKED_WITHIN = timedelta(seconds=45)
"""After a start the actor has asked the provider by then, twice; what it cannot ask is not waited for."""


def key_of(notice: Notice) -> str:
    """Key of a notice while it is active; its time may be postponed meanwhile."""
    return f"{notice.kind.value}/{notice.code}/{notice.instance_id}"


def kind_of(incident: Incident) -> NoticeKind | None:
    """The kind of the notice that the incident is for; None: it is for none of the provider's own."""
    return _KINDS.get(incident.notice.partition("/")[0])


def passes_on(finding: Finding) -> bool:
    """The agent's finding may be a provider's notice."""
    return bool(PASSED_ON_BY.get(finding.check)) and "notice" in finding.evidence


def looked(world: World) -> ProviderView | None:
    """The actor's look at the provider, if it is recent."""
    provider = world.book.provider
    if provider is None or world.now - provider.seen_at > timedelta(seconds=LOOK_OLD_S):
        return None
    return provider


def from_provider(world: World) -> tuple[Notice, ...]:
    """Notices about machines that serve a node now."""
    provider = looked(world)
    return tuple(n for n in provider.notices if _serves(world, n)) if provider is not None else ()


def _serves(world: World, notice: Notice) -> bool:
    record = world.book.nodes.get(notice.node)
    return bool(notice.node) and (record is None or record.instance_id in ("", notice.instance_id))


def of_finding(world: World, finding: Finding) -> Notice | None:
    """The notice that an agent's finding passes on; None: it is none, only observed, makes no sense, or the provider announces nothing."""
    kind = _KINDS.get(str(finding.evidence.get("notice")))
    if kind is None or kind not in PASSED_ON_BY.get(finding.check, ()) or finding.observed:
        return None
    if world.book.provider is None or not world.book.provider.can.announces:
        return None
    at = _time(finding.evidence.get("goes_at"))
    if at is not None and not world.now - _LONG_PAST <= at <= world.now + _FURTHEST:
        return None
    return Notice(finding.instance_id, finding.node, kind, finding.code, finding.summary, at, finding.severity)


def _time(said: object) -> datetime | None:
    if not isinstance(said, str):
        return None
    try:
        at = datetime.fromisoformat(said)
        return at.astimezone(UTC) if at.tzinfo is not None else None
    except (ValueError, OverflowError):  # the first and the last day that there are have no other time zone
        return None


def evidence(world: World, incident: Incident) -> list[Finding]:
    """Findings on the incident's machine that have not cleared, without consequences."""
    return [
        f
        for f in world.book.findings.values()
        if f.incident_id == incident.id
        and not f.consequence
        and f.cleared_at is None
        and f.instance_id in ("", incident.instance_id)
    ]


def of_incident(world: World, incident: Incident) -> list[Notice]:
    """All current notices about the incident's machine, from the provider or its agent."""
    told = [n for n in from_provider(world) if incident.instance_id and n.instance_id == incident.instance_id]
    passed_on = (of_finding(world, f) for f in evidence(world, incident))
    return told + [n for n in passed_on if n is not None]


def planned(world: World, incident: Incident) -> bool:
    """Whether all that is wrong with the node is that its machine will go: until then its jobs are well."""
    if incident.goes_at is None or incident.dead:
        return False
    serious = (f for f in evidence(world, incident) if f.severity is Severity.FATAL)
    return all(of_finding(world, f) is not None for f in serious)


def goes_soon(world: World, incident_id: str) -> bool:
    """Whether the provider takes the incident's machine anyway, within the time in which that is acted upon."""
    incident = world.book.incidents.get(incident_id)
    if incident is None or incident.goes_at is None:
        return False
    soon = world.now + timedelta(seconds=world.policy.planned.act_before_s)
    return incident.goes_at <= soon and not withdrawn(world, incident)


def by_notice_alone(world: World, incident: Incident) -> bool:
    """Whether nothing but a notice calls for what is done about the incident."""
    serious = (f for f in evidence(world, incident) if f.severity is not Severity.WARNING)
    return planned(world, incident) and all(of_finding(world, f) is not None for f in serious)


def by_agent_alone(world: World, incident: Incident) -> bool:
    """The same, for a notice that only the node's own agent reports: the provider's API does not."""
    return not incident.notice and by_notice_alone(world, incident)


def unasked(world: World, incident: Incident) -> bool:
    """Whether nothing but notices of the node's own agent calls for what is done about the incident, while the provider was not asked yet
    since this controller listens: what it says itself, and whether it announces anything, is still to come."""
    provider, since = world.book.provider, world.listening_since
    if since is None or world.now - since > _ASKED_WITHIN or (provider is not None and provider.seen_at > since):
        return False
    if incident.notice or incident.dead or (provider is not None and not provider.can.announces):
        return False
    serious = [f for f in evidence(world, incident) if f.severity is not Severity.WARNING]
    return bool(serious) and all(passes_on(f) for f in serious)


def withdrawn(world: World, incident: Incident) -> bool:
    """Whether the provider withdrew its notice: it is no longer reported, nothing else was found, and the machine's agent reports."""
    if not (incident.goes_at or incident.notice) or incident.dead or _stands(world, incident):
        return False
    if (
        incident.state is IncidentState.CLOSED
        or node_agents.agent_of(world, incident.node, incident.instance_id) is None
    ):
        return False
    return silent_about(world, incident) if incident.notice else _all_cleared(world, incident)


def _stands(world: World, incident: Incident) -> bool:
    return any(
        f.severity is not Severity.WARNING or of_finding(world, f) is not None for f in evidence(world, incident)
    )


def silent_about(world: World, incident: Incident) -> bool:
    """Whether a reading of the provider since then shows that its notice is no longer active."""
    provider = looked(world)
    if provider is None or provider.error or provider.seen_at <= incident.opened_at:
        return False
    return incident.notice not in {key_of(n) for n in provider.notices}


def _all_cleared(world: World, incident: Incident) -> bool:
    mine = node_incidents.findings_of(world, incident)
    return bool(mine) and all(f.cleared_at is not None for f in mine)


def dealt_with(world: World, notice: Notice) -> bool:
    """Whether this very announcement was acted upon already, and the machine came back from it or an operator closed the matter: what
    is still announced then (AWS takes a while to take a reboot off its list) is watched, not done again."""
    fresh = timedelta(seconds=world.policy.repair.fresh_s)
    for closed in world.book.incidents.values():
        if closed.open or closed.node != notice.node or closed.instance_id != notice.instance_id:
            continue
        touched = closed.rung != "" or closed.operated > 0
        if notice.kind is NoticeKind.IMPAIRED:
            if touched and closed.closed_at is not None and world.now - closed.closed_at < fresh:
                return True
        elif touched and _same(closed.goes_at, notice.at):
            return True
    return False


def _same(one: datetime | None, other: datetime | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _SAME_TIME
