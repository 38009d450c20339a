"""Attribution: whether a run ended because of a fault of its node. Pure (ADR 26).

Only for an end within ``jobs.attribution_before_s`` of the fault, and never before its first sign; only for a kind of fault that ends jobs;
and only if the evidence supports it, or there is none."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.common import gpu_link
from holdfast.decisions.job_ends.why_died import BACK, CLOCKS, NearFault, speaks_against
from holdfast.decisions.planned import notices
from holdfast.model.book import World
from holdfast.model.incidents.incident import ABOUT_JOBS, Incident, IncidentKind, IncidentState
from holdfast.model.jobs.job_ends import JobEnd, Reading
from holdfast.model.slurm.cluster import Job
from holdfast_checks.result import Remedy, Severity

EARLY = timedelta(seconds=10)
"""A machine may go so much before its time (two clocks)."""
_ENDS_NO_JOB = frozenset(
    {
        *("gpu.thermal", "gpu.temperature", "gpu.power", "gpu.pcie", "gpu.pcie_replay", "gpu.persistence"),
        *(
            "gpu.ecc_corrected",
            "gpu.ecc_mode",
            "gpu.nvlink_errors",
            "gpu.mix",
            "gpu.slurm",
            "gpu.mig",
            "gpu.retired_pages",
        ),
        *("ib.counters", "efa.counters", "kernel.pcie", "host.load", "host.time", "host.services", "host.modules"),
        *("host.credential", "host.manifest", "cloud.rebalance", "cloud.maintenance", "cloud.metadata"),
    }
)
"""Checks of what slows a job or threatens it, and cannot end it."""


def may_end_jobs(incident: Incident) -> bool:
    """Whether the fault is of a kind that ends jobs."""
    if incident.dead or incident.kind is IncidentKind.PAIR:
        return True
    if incident.only_ordered or incident.kind in ABOUT_JOBS or incident.kind is IncidentKind.SLURM_DRAIN:
        return False
    if incident.check in _ENDS_NO_JOB:  # rule kind-not-check: what a check looks at decides what it can end
        return False
    return incident.severity is Severity.FATAL or incident.remedy is Remedy.RESTART_JOB


def fault_near(world: World, incident: Incident, end: JobEnd) -> NearFault:
    """The incident as far as it matters to how this run ended."""
    first, until = incident.fault_at, incident.fault_at + timedelta(seconds=world.policy.job.attribution_before_s)
    planned = incident.goes_at is not None and notices.planned(world, incident)
    if planned and incident.goes_at is not None:  # of a machine that goes only its going may end a job
        first = incident.goes_at - EARLY
        until = incident.goes_at + timedelta(seconds=world.policy.job.attribution_before_s)
    return NearFault(
        incident.id,
        incident.node,
        incident.headline,
        first,
        until,
        kills=planned or may_end_jobs(incident),
        dead=incident.dead,
        proved=incident.kind is IncidentKind.PAIR and incident.run == end.run,
        over_at=over_at(incident) or _last_event(world, incident),
        of_gpus=incident.gpu_minors is not None,
    )


def over_at(incident: Incident) -> datetime | None:
    """Time when the node was no longer at fault: its machine was validated, or the incident closed. None: it still is, as far as is known.
    A node out of service takes no job: a run that started after its machine was validated started once it served again, a moment before the
    incident closed."""
    proved = incident.validated_at
    return proved if proved is not None and incident.fault_at <= proved else incident.closed_at


def _last_event(world: World, incident: Incident) -> datetime | None:
    """When the fault of a node that serves on last hit a job: an event that costs the jobs of its moment and leaves nothing behind (a
    contained memory error). None: a state lasts, or it is of another kind."""
    if incident.state is not IncidentState.WATCHING or incident.remedy is not Remedy.RESTART_JOB:
        return None
    mine = [f for f in world.book.findings.values() if f.incident_id == incident.id]
    if not mine or any(f.sticky and f.cleared_at is None for f in mine):
        return None
    return max(f.last_fault_at or f.fault_at for f in mine) + BACK + CLOCKS


def faults_of(world: World, job: Job | None, end: JobEnd) -> list[NearFault]:
    """Faults near the end on nodes that the run had. ``job``: the job, if Slurm still shows which GPUs it held."""
    found = (i for i in world.book.incidents.values() if i.node in end.nodes)
    mine = (i for i in found if job is None or gpu_link.may_have_hit(world, i, job))
    return [fault_near(world, i, end) for i in sorted(mine, key=lambda i: (i.fault_at, i.id))]


def ended_by(world: World, incident: Incident, job: Job, end: JobEnd) -> bool:
    """Whether the failed run counts as a victim of this fault: it does if the cause of its end is unknown. Not while its output is still
    being read."""
    if end.reading is Reading.PENDING or incident.node not in end.nodes:
        return False
    said = speaks_against(end, fault_near(world, incident, end))
    return said is not False and gpu_link.may_have_hit(world, incident, job)
