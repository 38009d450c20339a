"""Network file systems that do not answer: the agents' findings, and which of them speak against no node. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from holdfast.model.agents.report import Finding
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.slurm.cluster import Job

_UNANSWERED = frozenset(
    {("host.mounts", "hang"), ("kernel.nfs", "not_responding"), ("kernel.lustre", "connection_lost")}
)
"""(check, code) of a server that is away."""
ALONE_S = 300.0
"""For this long a file system that does not answer on one node is blamed on no one: other nodes may report it this late (``host.mounts``
asks every 60 s and counts at the second failure of three)."""
LASTS = timedelta(hours=1)  # rule undeclared-window: of an open incident
"""Jobs that have been stalled together for longer do not count for one that stops now."""
_OF_STORAGE = frozenset({"host.mounts", "host.dstate", "kernel.nfs", "kernel.lustre", "kernel.hung_task"})
"""Checks that find what a stalled file system does to every node that uses it. While only watched, they are no fault of the node."""


def unanswered(world: World, nodes: Iterable[str], since: datetime) -> dict[str, list[str]]:
    """File system → the nodes that report that it does not answer: an ongoing state, or an event since then."""
    there, found = set(nodes), dict[str, list[str]]()
    for finding in world.book.findings.values():
        if finding.node in there and _is_unanswered(finding) and _counts(finding, since):
            source = str(finding.evidence.get("source") or "")
            name = f"{finding.component} ({source})" if source else finding.component
            found.setdefault(name, []).append(finding.node)
    return {name: sorted(set(on)) for name, on in found.items()}


def waits(world: World, finding: Finding) -> bool:
    """Whether a finding that calls for action on its node waits because a file system may be to blame: it does not answer on other nodes
    either, or that is not known yet. The server is one cause, and draining its clients repairs nothing."""
    if finding.check not in _OF_STORAGE:  # rule kind-not-check: a finding has no kind
        return False
    if any(finding.node in {f.node for f in found} for found in away(world).values()):
        return True
    young = world.now - finding.received_at < timedelta(seconds=ALONE_S)
    return _is_unanswered(finding) and finding.cleared_at is None and young


def away(world: World) -> dict[str, list[Finding]]:
    """File system → findings that it does not answer, if two nodes or more report it."""
    found, since = dict[str, list[Finding]](), world.now - timedelta(seconds=ALONE_S)
    for finding in world.book.findings.values():
        if _is_unanswered(finding) and _counts(finding, since):
            found.setdefault(str(finding.evidence.get("source") or finding.component), []).append(finding)
    return {name: on for name, on in found.items() if len({f.node for f in on}) > 1}


def _is_unanswered(finding: Finding) -> bool:
    return (finding.check, finding.code) in _UNANSWERED  # rule kind-not-check: a finding has no kind


def _counts(finding: Finding, since: datetime) -> bool:
    return finding.cleared_at is None and (finding.sticky or finding.fault_at >= since)


def of_storage(world: World) -> frozenset[str]:
    """Watched incidents that a stalled file system may have caused."""
    watching = IncidentState.WATCHING
    found = (i for i in world.book.open_incidents() if i.state is watching)
    return frozenset(i.id for i in found if i.check in _OF_STORAGE)  # rule kind-not-check: faults have one kind


def in_a_stall(world: World, job: Job, at: datetime) -> bool:
    """Whether what the run did at that time is a file system's doing: it had stopped together with others, or its nodes report it."""
    window = timedelta(seconds=world.policy.hangs.together_s)
    past = (i for i in world.book.incidents.values() if i.kind is IncidentKind.STALL and job.run.text in i.stalled)
    return any(_until(i, at - window) for i in past) or bool(unanswered(world, job.nodes, at - window))


def during_a_stall(world: World, at: datetime) -> bool:
    """Whether jobs stopped together around that time, or within the hour before: a job that hung then is not to blame."""
    window = timedelta(seconds=world.policy.hangs.together_s)
    past = (i for i in world.book.incidents.values() if i.kind is IncidentKind.STALL)
    return any(i.fault_at - window <= at <= i.fault_at + LASTS and _until(i, at - window) for i in past)


def _until(stall: Incident, at: datetime) -> bool:
    return stall.closed_at is None or stall.closed_at >= at
