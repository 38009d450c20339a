"""A node found dead reports again with a finding of its agent: the incident is then about that finding, and one notification is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.model.incidents.incident import IncidentKind, IncidentState, RecoveryPhase
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site

_S = IncidentState


def dies(site: Site, name: str) -> None:
    machine = site.machine(name)
    machine.cut_off, machine.unreachable_by = True, set(site.slurm.nodes) - {name}
    site.run(60)
    assert site.incident(name).state in (_S.OPEN, _S.CONTAINED)


def reports_again(site: Site, name: str, severity: Severity, remedy: Remedy) -> None:
    """The finding comes with the first report after the silence."""
    site.fault(name, severity=severity, remedy=remedy, sticky=True)
    machine = site.machine(name)
    machine.cut_off, machine.unreachable_by = False, set()
    site.run(60)


def told(site: Site, name: str) -> list[str]:
    events = site.store.events(incident_id=site.incident(name).id)
    return [event.text for event in events if "reported again" in event.text]


def test_with_a_warning_alone_before_anything_was_done_it_serves_on() -> None:
    site = Site(4)
    site.operate("pause")
    dies(site, "n4")
    reports_again(site, "n4", Severity.WARNING, Remedy.NONE)
    assert site.incident("n4").state is _S.WATCHING
    assert len(told(site, "n4")) == 1, site.story()
    site.operate("resume")
    site.run(60)
    assert not site.slurm.nodes["n4"].drain
    assert site.incident("n4").state is _S.WATCHING


@pytest.mark.parametrize("severity", [Severity.DEGRADED, Severity.FATAL])
def test_with_a_fault_before_anything_was_done_it_is_drained_for_that(severity: Severity) -> None:
    site = Site(4)
    site.operate("pause")
    dies(site, "n4")
    reports_again(site, "n4", severity, Remedy.HUMAN)
    incident = site.incident("n4")
    assert (incident.state, incident.dead, incident.check) == (_S.OPEN, False, "gpu.xid")
    assert len(told(site, "n4")) == 1, site.story()
    site.operate("resume")
    site.run(60)
    assert site.slurm.nodes["n4"].drain
    assert len(told(site, "n4")) == 1, site.story()


@pytest.mark.parametrize("job", [False, True])
def test_with_a_fault_once_drained_it_is_repaired_for_that_and_not_returned(job: bool) -> None:
    site = Site(6)
    name = site.slurm.submit(2, exclusive=True).nodes[0] if job else "n4"
    site.run(2)
    dies(site, name)
    reports_again(site, name, Severity.FATAL, Remedy.REPLACE)
    site.run(120)
    incident = site.incident(name)
    assert incident.kind is IncidentKind.FAULT
    assert len(told(site, name)) == 1, site.story()
    if job:
        assert incident.state is _S.CONTAINED, "the job did not opt in: it runs on, and no other comes there"
        assert site.slurm.nodes[name].drain
    else:
        assert site.machine(name).instance_id == "i-0007"


@pytest.mark.parametrize("nodes", [1, 2])
def test_with_nothing_found_the_job_that_trained_on_is_not_stopped(nodes: int) -> None:
    """It waited for the node to be fenced, and its user had opted in."""
    site = Site(6)
    job = site.slurm.submit(nodes, comment="holdfast", exclusive=True)
    site.run(2)
    dies(site, "n1")
    assert site.recovery(job.job_id).phase is RecoveryPhase.WAITING
    machine = site.machine("n1")
    machine.cut_off, machine.unreachable_by = False, set()
    site.run(200)
    assert (job.state, job.restarts, site.slurm.nodes["n1"].drain) == ("RUNNING", 0, False), site.story()
    assert site.incident("n1").state is _S.CLOSED
    assert site.recovery(job.job_id).phase is RecoveryPhase.GONE


def test_the_job_is_recovered_if_it_fails_while_its_node_is_validated() -> None:
    site = Site(6)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(2)
    dies(site, "n1")
    machine = site.machine("n1")
    machine.cut_off, machine.unreachable_by = False, set()
    site.run(20)
    assert site.incident("n1").state is _S.VALIDATING
    site.slurm.finish(job, "FAILED")
    site.run(60)
    assert (job.state, job.restarts) == ("RUNNING", 1), site.story()


def test_with_a_warning_once_drained_it_is_validated_and_returned() -> None:
    site = Site(4)
    dies(site, "n4")
    reports_again(site, "n4", Severity.WARNING, Remedy.NONE)
    site.run(120)
    assert site.incident("n4").state is _S.CLOSED
    assert not site.slurm.nodes["n4"].drain
    assert site.machine("n4").instance_id == "i-0004"


def convicted_while_paused(site: Site, bad: str) -> None:
    """Pair probes of a failed job's nodes convict one of them; an operator pauses Holdfast as the last answer comes in."""
    job = site.slurm.submit(4, comment="holdfast", exclusive=True)
    site.run(2)
    site.machine(bad).path_broken = True
    begin = site.agents.probes.begin

    def paused(machine: object, order: object) -> object:
        answers = begin(machine, order)  # type: ignore[arg-type]
        if sum(bad in pair for pair in site.agents.probes.pairs) == 3:
            site.operate("pause")
            site.agents.probes.begin = begin  # type: ignore[method-assign]
        return answers

    site.agents.probes.begin = paused  # type: ignore[method-assign, assignment]
    site.slurm.finish(job, "FAILED")
    site.run(60)
    assert site.incident(bad).kind is IncidentKind.PAIR, site.story()
    assert not site.slurm.nodes[bad].drain


def found_while_paused(site: Site, bad: str) -> None:
    """The deep check of a spare fails as an operator pauses Holdfast."""
    site.machine(bad).deep_ok = False
    check = site.agents.probes.check

    def paused(machine: object, order: object) -> object:
        site.operate("pause")
        site.agents.probes.check = check  # type: ignore[method-assign]
        return check(machine, order)  # type: ignore[arg-type]

    site.agents.probes.check = paused  # type: ignore[method-assign, assignment]
    site.run(86_400, step_s=30)
    assert site.incident(bad).severity is Severity.FATAL, site.story()
    assert not site.slurm.nodes[bad].drain


@pytest.mark.slow
@pytest.mark.parametrize("found", [convicted_while_paused, found_while_paused])
def test_what_a_probe_or_an_ordered_check_found_outlives_a_death_that_was_none(
    found: Callable[[Site, str], None],
) -> None:
    site = Site(6, spares=("n3",) if found is found_while_paused else ())
    found(site, "n3")
    before = site.incident("n3")
    dies(site, "n3")
    assert site.incident("n3").dead
    machine = site.machine("n3")
    machine.cut_off, machine.unreachable_by = False, set()
    site.run(60)
    incident = site.incident("n3")
    assert (incident.id, incident.kind, incident.fault, incident.open) == (before.id, before.kind, before.fault, True)
    site.operate("resume")
    site.run(20)
    assert site.slurm.nodes["n3"].drain
    site.run(900, step_s=5)
    assert {"Reboot", "Launch"} & set(site.kinds(incident.id)), site.story(incident.id)
