"""Suspects without evidence: the nodes of a job that failed or hung without a finding. Pure.

Each such job run is investigated once. Its incident is only watched: nothing is drained for it. It lists the nodes, and the pair probes are
its intents, so that a restart neither repeats nor loses them. A node that the probes find bad gets a separate incident."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.decisions.common import mounts, node_incidents, slurm_view
from holdfast.decisions.common.consent import consent
from holdfast.decisions.common.elastic_jobs import elastic_of
from holdfast.decisions.job_ends import attribution, run_ends
from holdfast.decisions.job_ends.why_died import began_after
from holdfast.decisions.probing import probe_orders
from holdfast.decisions.probing.pairs import Probe, ProbeOutcome, SuspectVerdict, exhausted, judge
from holdfast.model.actions.action import Intent
from holdfast.model.actions.steps import notify_cannot_tell
from holdfast.model.book import Change, World
from holdfast.model.event import Event
from holdfast.model.ids import NewId
from holdfast.model.incidents.incident import ABOUT_JOBS, Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import Detection, Moved, NewIncident, close, open_incident
from holdfast.model.policies.lookback import INQUIRIES_S
from holdfast.model.slurm.cluster import ClusterView, Job
from holdfast_checks.result import Remedy, Severity

UNEXPLAINED = "job.unexplained"
HUNG = node_incidents.HUNG
STRAGGLER = node_incidents.STRAGGLER
CHECKS = {
    IncidentKind.UNEXPLAINED: UNEXPLAINED,
    IncidentKind.HANG: HUNG,
    IncidentKind.STRAGGLER: STRAGGLER,
    IncidentKind.HELD_JOB: "job.held",
    IncidentKind.STALL: "job.stall",
}
"""Check shown with an incident about a job when it is opened; one whose nodes are probed is shown as unexplained."""

Changed = tuple[list[Incident], list[Event]]


def follow_suspects(world: World, new_id: NewId) -> Change:
    """Open an inquiry for a job that failed without a finding, move those that are open on (also of jobs that hung, :mod:`detect`), and
    open the incidents of nodes that were convicted."""
    view = slurm_view.fresh_view(world)
    if view is None or not world.policy.suspects.probe:
        return Change()
    incidents: list[Incident] = []
    events: list[Event] = []
    open_ = inquiries(world)
    orders = probe_orders.all_orders(world) if open_ else []
    steps = [_follow(world, view, inquiry, orders, new_id) for inquiry in open_]
    steps += [_opened(world, job, at, new_id) for job, at in _unexplained(world, view)]
    for changed, seen in steps:
        incidents += changed
        events += seen
    return Change(incidents=tuple(incidents), events=tuple(events))


def inquiries(world: World) -> list[Incident]:
    """Open ones about a run that is over."""
    return [i for i in world.book.open_incidents() if i.pair_probed and i.state is IncidentState.WATCHING]


def looks_for_a_suspect(incident: Incident) -> bool:
    """About a run of which it is, or may be, asked which node is at fault."""
    return incident.pair_probed or incident.kind is IncidentKind.HANG


# Which jobs


def _unexplained(world: World, view: ClusterView) -> list[tuple[Job, datetime]]:
    """Failed job runs to investigate from now on, with the time of their end."""
    found = sorted(_failed(world, view), key=lambda each: each[0].key.job_id)
    if not found:
        return []
    slow = IncidentKind.STRAGGLER
    known = {i.run for i in world.book.incidents.values() if not (i.kind is slow and i.follows_run)}
    quota = InquiryQuota(world, view)
    return [each for each in found if each[0].run not in known and quota.take(each[0])]


class InquiryQuota:
    """Limit on the jobs investigated within an hour, counted by :func:`whole`: one for all jobs, and a lower one for each user, whose jobs
    may fail or pause at will."""

    def __init__(self, world: World, view: ClusterView) -> None:
        self._view, self._policy = view, world.policy.suspects
        hour = world.now - timedelta(seconds=INQUIRIES_S)
        recent = [i for i in world.book.incidents.values() if looks_for_a_suspect(i) and i.opened_at > hour]
        self._users = {whole(view, run.job_id): i.job_uid for i in recent if (run := i.run) is not None}

    def take(self, job: Job, *, half: bool = False) -> bool:
        """Whether the job may be investigated now; if so it counts. ``half``: only while half of the hour's are left."""
        number = whole(self._view, job.key.job_id)
        if number in self._users:
            return True
        in_all = self._policy.jobs_per_hour // (2 if half else 1)
        mine = sum(uid == job.uid for uid in self._users.values())
        if len(self._users) >= in_all or mine >= self._policy.jobs_per_hour_per_user:
            return False
        self._users[number] = job.uid
        return True


def whole(view: ClusterView, job_id: int) -> int:
    """The groups of an elastic job wait for each other, and are one job here: the id of its base array. Any other job's own."""
    elastic = elastic_of(view, job_id)
    return job_id if elastic is None else elastic.base_array_id


def _failed(world: World, view: ClusterView) -> list[tuple[Job, datetime]]:
    policy = world.policy.suspects
    found = []
    for job in view.jobs.values():
        if job.state not in slurm_view.FAILED or len(job.nodes) < 2 or job.end_time is None:
            continue
        age_s = (world.now - job.end_time).total_seconds()
        listened_s = (world.now - max(job.end_time, world.listening_since or job.end_time)).total_seconds()
        if listened_s < policy.wait_s or age_s > policy.window_s or consent(world, job) is None:
            continue
        if run_ends.undecided(world, job) or run_ends.speaks_for_its_nodes(world, job):
            continue  # what a bug, a full disk or a user did costs no node anything
        if mounts.in_a_stall(world, job, job.end_time):
            continue  # no node of it is asked for what a file system did
        if world.book.recovery_of(job.key, job.restarts) is not None:
            continue
        over = frozenset(
            i.id for i in world.book.incidents.values() if began_after(job.start_time, attribution.over_at(i))
        )
        if explained(world, job.nodes, job.end_time, apart=over) is None:
            found.append((job, job.end_time))
    return found


def explained(
    world: World, nodes: Iterable[str], at: datetime, *, apart: frozenset[str] = frozenset()
) -> Incident | None:
    """An incident of one of the nodes that explains trouble at that time: one that calls for action or a silence that is open, or a
    finding near it. ``apart``: ids of incidents that do not count."""
    before = timedelta(seconds=world.policy.job.attribution_before_s)
    after = timedelta(seconds=world.policy.job.attribution_after_s)
    there = set(nodes)
    for incident in sorted(world.book.incidents.values(), key=lambda i: i.id):
        apart_from_it = incident.only_ordered or incident.kind in ABOUT_JOBS or incident.id in apart
        if incident.node not in there or apart_from_it:
            continue
        stands = incident.open and incident.state is not IncidentState.WATCHING
        if stands or at - before <= incident.fault_at <= at + after:
            return incident
    return None


def _opened(world: World, job: Job, at: datetime, new_id: NewId) -> Changed:
    note = "its nodes are probed in pairs"
    new = about_job(world, job, IncidentKind.UNEXPLAINED, at, f"failed ({job.state})", note, new_id)
    return one(open_about_job(world, new, job.key.text))


def about_job(
    world: World, job: Job, kind: IncidentKind, at: datetime, told: str, note: str, new_id: NewId
) -> NewIncident:
    """New incident about this run, with its nodes as suspects. ``told``: what the job did."""
    what = f"job {job.key.job_id} of {job.user} on {len(job.nodes)} node{'s' * (len(job.nodes) > 1)}"
    check = CHECKS[kind]
    return NewIncident(
        id=new_id(world.now),
        kind=kind,
        node=min(job.nodes),
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        check=check,
        headline=f"{check}: {what} {told}, and no finding says why",
        fault_at=at,
        job=job.run.text,
        job_uid=job.uid,
        suspects=tuple(sorted(job.nodes)),
        pair_probed=kind is IncidentKind.UNEXPLAINED,
        note=note,
    )


def open_about_job(world: World, new: NewIncident, job: str) -> Moved:
    """It is only watched: nothing is drained for it. ``job``: JobKey.text."""
    detail = {"nodes": list(new.suspects)} if new.suspects else {}
    return open_incident(new, IncidentState.WATCHING, world.now, Detection(job=job, detail=detail))


def one(step: Moved) -> Changed:
    """The one incident of a step, as a list."""
    return [step[0]], step[1]


# Progress of an inquiry


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Progress of the probes of one job's nodes."""

    probes: tuple[Probe, ...]
    standings: Mapping[str, SuspectVerdict]

    def of(self, standing: SuspectVerdict) -> list[str]:
        return sorted(node for node, each in self.standings.items() if each is standing)

    @property
    def one_cause(self) -> bool:
        """Most of the nodes fail: the cause is what they share."""
        return len(self.of(SuspectVerdict.BAD)) > self._most

    @property
    def may_be_one_cause(self) -> bool:
        """It could still turn out so: some have failed once, or are being asked."""
        asked = {n for p in self.probes if p.outcome in (ProbeOutcome.BAD, ProbeOutcome.RUNNING) for n in p.nodes}
        return len(self.of(SuspectVerdict.BAD)) + len(asked & set(self.of(SuspectVerdict.UNDECIDED))) > self._most

    @property
    def _most(self) -> int:
        return max(1, len(self.standings) // 2)


def read(world: World, incident: Incident, orders: Iterable[Intent]) -> Inquiry:
    """``orders``: of all probes in the state."""
    probes = probe_orders.probes_of(world, (o for o in orders if o.incident_id == incident.id))
    trusted = probe_orders.partners(world, probes, incident.suspects)
    return Inquiry(tuple(probes), judge(incident.suspects, trusted, probes))


def _follow(world: World, view: ClusterView, incident: Incident, orders: list[Intent], new_id: NewId) -> Changed:
    cause = _came_to_light(world, incident)
    if cause is not None:
        return one(close(incident, world.now, f"explained by incident {cause.id}: {cause.headline}"))
    inquiry = read(world, incident, orders)
    closed = _end(world, view, incident, inquiry)
    wait = inquiry.one_cause or (inquiry.may_be_one_cause and not closed[0])
    convicted = [] if wait else _convict(world, incident, inquiry, new_id)
    incidents = [*(i for i, _ in convicted), *closed[0]]
    if not closed[0] and inquiry.one_cause:
        incidents.append(replace(incident, note=_ONE_CAUSE))
    return incidents, [*(e for _, seen in convicted for e in seen), *closed[1]]


_ONE_CAUSE = "most of its nodes fail the pair probe: look for what they share; none is taken out"


def _came_to_light(world: World, incident: Incident) -> Incident | None:
    """A finding that came later and explains it; what this inquiry itself found does not."""
    mine = {i.id for i in world.book.incidents.values() if i.run == incident.run}
    book = replace(world.book, incidents={n: i for n, i in world.book.incidents.items() if n not in mine})
    return explained(replace(world, book=book), incident.suspects, incident.fault_at)


def _convict(world: World, incident: Incident, inquiry: Inquiry, new_id: NewId) -> list[Moved]:
    found = []
    for node in inquiry.of(SuspectVerdict.BAD):
        again = any(i.run == incident.run and i.node == node and i.kind is IncidentKind.PAIR for i in _all(world))
        if again or any(node_incidents.acting(i) for i in world.book.open_on(node)):
            continue
        failed = [p.partner(node) for p in inquiry.probes if node in p.nodes and p.outcome is ProbeOutcome.BAD]
        record = world.book.nodes.get(node)
        new = NewIncident(
            id=new_id(world.now),
            kind=IncidentKind.PAIR,
            node=node,
            instance_id=record.instance_id if record is not None else "",
            boot_id=record.boot_id if record is not None else "",
            severity=Severity.DEGRADED,
            remedy=Remedy.REBOOT,
            check=probe_orders.PAIR_CHECK,
            headline=f"{probe_orders.PAIR_CHECK}: failed with {', '.join(failed)}; {incident.headline}"[:300],
            fault_at=incident.fault_at,
            job=incident.job,
        )
        run = incident.run
        detection = Detection(job=run.job if run is not None else None)
        found.append(open_incident(new, IncidentState.OPEN, world.now, detection))
    return found


def _all(world: World) -> Iterable[Incident]:
    return world.book.incidents.values()


def _end(world: World, view: ClusterView, incident: Incident, inquiry: Inquiry) -> Changed:
    if not _answered(world, view, incident, inquiry):
        return [], []
    if inquiry.one_cause and not _over(world, incident):
        return [], []  # stays open for as long as an operator may want to see it
    if cannot_tell(world, view, incident, inquiry) and not world.book.attempts(incident.id, notify_cannot_tell()):
        return [], []  # an operator is notified first
    undecided = inquiry.of(SuspectVerdict.UNDECIDED)
    parts = {
        "failed": inquiry.of(SuspectVerdict.BAD),
        "cleared": inquiry.of(SuspectVerdict.CLEARED),
        "not known": undecided,
    }
    said = "; ".join(f"{word}: {','.join(nodes)}" for word, nodes in parts.items() if nodes)
    return one(close(incident, world.now, f"pair probe: {said}"))


def _answered(world: World, view: ClusterView, incident: Incident, inquiry: Inquiry) -> bool:
    """Nothing more is to be learned, or the time for it is over."""
    if not inquiry.of(SuspectVerdict.UNDECIDED) or _over(world, incident):
        return True
    possible = [
        *probe_orders.partners(world, inquiry.probes, incident.suspects),
        *probe_orders.possible(view, incident.suspects),
    ]
    return exhausted(incident.suspects, list(dict.fromkeys(possible)), inquiry.probes)


def _over(world: World, incident: Incident) -> bool:
    since = incident.state_since or incident.opened_at
    return world.now - since > timedelta(seconds=world.policy.suspects.window_s)


def cannot_tell(world: World, view: ClusterView, incident: Incident, inquiry: Inquiry) -> str | None:
    """Notification about nodes that failed while too few others could be probed to find the side at fault. None: there are none, or it may
    still be found."""
    failed = [p for p in inquiry.probes if p.outcome is ProbeOutcome.BAD]
    open_ = {n for n in inquiry.of(SuspectVerdict.UNDECIDED) if any(n in p.nodes for p in failed)}
    if not open_ or not _answered(world, view, incident, inquiry):
        return None
    pairs = ", ".join(f"{p.nodes[0]} with {p.nodes[1]}" for p in failed if open_ & set(p.nodes))
    return (
        f"pair probes failed: {pairs}. Too few other nodes could be asked, so that Holdfast does not know which side is at fault, or "
        f"reports "
        "wrongly. No node is taken out for it. Check the network of these nodes; drain one that you distrust"
    )


def job_of(view: ClusterView, incident: Incident) -> Job | None:
    """The job that it is about, while Slurm shows that very run of it."""
    run = incident.run
    job = view.jobs.get(run.job_id) if run is not None else None
    return job if job is not None and job.run == run else None
