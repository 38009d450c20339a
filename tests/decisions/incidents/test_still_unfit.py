"""A node that was unfit before it was found dead is unfit when it reports again; hangs count whatever they are shown as by then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.incidents.correlate import as_found
from holdfast.decisions.recovery.restart_budget import refuses
from holdfast.model.incidents.incident import Fault, Incident, IncidentKind, IncidentState, Recovery, RecoveryPhase
from holdfast.model.incidents.transitions import NewIncident, open_incident
from holdfast.model.slurm.cluster import JobKey
from holdfast_checks.result import Remedy, Severity
from support.simulated import EPOCH, Site

_S = IncidentState


def convicted() -> tuple[Site, str]:
    """A job failed on four nodes, and pair probes have found one of them at fault."""
    site = Site(8)
    job = site.slurm.submit(4, comment="holdfast", exclusive=True)
    site.run(2)
    bad = job.nodes[1]
    site.machine(bad).path_broken = True
    site.slurm.finish(job, "FAILED")
    for _ in range(200):
        site.run(1)
        if any(i.kind is IncidentKind.PAIR for i in site.store.incidents(node=bad)):
            return site, bad
    raise AssertionError(site.story())


def of(site: Site, node: str) -> Incident:
    return next(i for i in site.store.incidents(node=node) if i.kind is IncidentKind.PAIR)


def test_a_convicted_node_that_is_heard_again_is_still_convicted() -> None:
    site, bad = convicted()
    world, before = site.loop.world, of(site, bad)
    assert world is not None
    dead = replace(
        before,
        dead=True,
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        check="node.dead",
        headline="node.dead: silent",
        before_death=before.fault,
    )
    assert as_found(world, dead) == replace(before, before_death=None)


def test_what_an_earlier_release_pronounced_dead_goes_to_an_operator() -> None:
    site, bad = convicted()
    world = site.loop.world
    assert world is not None
    dead = replace(of(site, bad), dead=True, severity=Severity.FATAL, remedy=Remedy.REPLACE, check="node.dead")
    found = as_found(world, dead)
    assert found is not None
    assert (found.dead, found.severity, found.remedy) == (False, Severity.DEGRADED, Remedy.HUMAN)
    silence = replace(dead, kind=IncidentKind.SILENCE)
    assert as_found(world, silence) is None


def test_the_fault_before_death_is_kept_when_it_is_pronounced(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(4)
    site.slurm.submit(1, exclusive=True)
    site.run(2)
    site.fault("n1", severity=Severity.DEGRADED, remedy=Remedy.REBOOT)
    site.run(10)
    before = site.incident("n1")
    site.machine("n1").powered = False
    for _ in range(90):
        site.run(1)
        if site.incident("n1").dead:
            break
    assert site.incident("n1").dead
    assert site.incident("n1").before_death == Fault(
        before.severity, before.remedy, before.check, before.headline, before.fault_at, before.gpu_minors
    )


def hang(number: int, node: str, check: str, kind: IncidentKind = IncidentKind.HANG) -> Incident:
    new = NewIncident(
        id=f"1kjmmb3pg00{number}",
        kind=kind,
        node=node,
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        check=check,
        headline="",
        fault_at=EPOCH,
    )
    return open_incident(new, _S.WATCHING, EPOCH)[0]


def recovered(number: int, incident: Incident) -> Recovery:
    return Recovery(
        JobKey("c", 7, EPOCH), number, incident.id, RecoveryPhase.RESUMED, "ann", 7, (incident.node,), (), "gpu", 8, EPOCH,
        checkpoint_step=number,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "checks", "suspect"),
    [  # a fault of hardware needs more nodes: test_held_jobs.py
        (IncidentKind.HANG, ("job.unexplained", "job.unexplained", "job.hung"), True),
        (IncidentKind.HANG, ("job.hung", "job.hung", "job.hung"), True),
        (IncidentKind.FAULT, ("gpu.xid", "gpu.xid", "gpu.xid"), False),
        (IncidentKind.FAULT, ("gpu.xid", "net.link", "gpu.xid"), False),
    ],
)
def test_hangs_of_one_job_on_other_nodes_make_it_the_suspect(
    kind: IncidentKind, checks: tuple[str, ...], suspect: bool
) -> None:
    site = Site(4)
    world = site.loop.world
    assert world is not None
    most = world.policy.job.suspect_nodes
    checks = checks[-most:] if most < len(checks) else (*(checks[0],) * (most - len(checks)), *checks)
    incidents = [hang(n, f"n{n}", check, kind) for n, check in enumerate(checks, 1)]
    runs = [recovered(n, incident) for n, incident in enumerate(incidents)]
    book = replace(
        world.book, incidents={i.id: i for i in incidents}, recoveries={str(n): r for n, r in enumerate(runs)}
    )
    refusal = refuses(replace(world, book=book, now=EPOCH + timedelta(seconds=60)), incidents[-1], runs[-1])
    assert (refusal is not None and refusal.suspect) is suspect
