"""An operator resumes a node, or takes it over, while its incident is under way: the incident ends at once."""

from __future__ import annotations

from dataclasses import replace

from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from support.simulated import Site
from support.simulated.site import POLICY

_S = IncidentState


def _dies(site: Site, name: str = "n1") -> None:
    machine = site.machine(name)
    machine.cut_off, machine.unreachable_by = True, set(site.slurm.nodes)


def _lives(site: Site, name: str = "n1") -> None:
    machine = site.machine(name)
    machine.cut_off, machine.unreachable_by = False, set()


def _fenced_job_on_a_dead_node(site: Site) -> int:
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    assert job.nodes == ("n1", "n2")
    site.agents.state(site.machine("n2"), "checkpoint.register", job.job_id, 0, path="/ckpt", detail={"fenced": True})
    site.run(1)
    _dies(site)
    return job.job_id


def test_a_job_on_a_dead_node_that_was_put_back_during_its_repair_is_not_hurt() -> None:
    site = Site(3)
    site.provider.capacity = False
    _dies(site)
    site.run(1000, step_s=5)
    assert (site.incident("n1").state, site.incident("n1").dead) == (_S.REPAIRING, True)
    _lives(site)
    site.slurm.operator_resumes("n1")
    job = site.slurm.submit(3, comment="holdfast", exclusive=True)
    site.run(60)
    assert site.incident("n1").state is _S.CLOSED
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert site.store.recoveries(job_id=job.job_id) == ()


def test_a_new_fault_of_a_node_that_was_put_back_is_a_new_incident_though_a_machine_is_still_to_be_ended() -> None:
    site = Site(3)
    site.fault("n1")
    site.run(5)
    while site.incident("n1").state is not _S.VALIDATING:
        site.run(1)
    first = site.incident("n1")
    site.policy = replace(POLICY, repair=replace(POLICY.repair, terminations_per_hour=0))
    site.start_controller()
    site.slurm.operator_resumes("n1")
    site.run(5)
    assert site.store.incident(first.id) is not None
    assert site.incident("n1").state is _S.CLOSED
    assert len(site.provider.candidates()) == 1, "the cap holds its end back"
    site.fault("n1", code="63")
    site.run(3)
    assert site.incident("n1").id != first.id
    assert site.slurm.nodes["n1"].drain


def test_a_machine_launched_in_vain_is_ended_hours_after_its_incident() -> None:
    site = Site(2)
    site.fault("n1")
    site.run(20)
    site.slurm.operator_resumes("n1")
    site.provider.away = True
    site.run(2 * 3600, step_s=60)
    assert site.incident("n1").state is _S.CLOSED
    assert len(site.provider.candidates()) == 1
    site.provider.away = False
    site.run(400, step_s=10)
    assert site.provider.live() == {"i-0001", "i-0002"}


def test_the_cap_of_a_day_counts_what_was_terminated_hours_ago() -> None:
    site = Site(
        2, policy=replace(POLICY, repair=replace(POLICY.repair, terminations_per_day=1, budget_cluster_share=1.0))
    )
    site.fault("n1")
    site.run(400, step_s=5)
    assert site.incident("n1").state is _S.CLOSED
    site.run(3 * 3600, step_s=60)
    site.fault("n2")
    site.run(400, step_s=5)
    assert sum(site.provider.terminated.values()) == 1
    assert "budget 'ended' is spent: 1 machine within a day, at most 1" in site.incident("n2").note


def test_a_dead_node_that_an_operator_drains_is_theirs_to_set_down_and_its_job_waits() -> None:
    site = Site(4)
    number = _fenced_job_on_a_dead_node(site)
    job = site.slurm.jobs[number]
    site.slurm.operator_drains("n1")
    site.run(60)
    assert site.incident("n1").dead
    waiting = site.recovery(number)
    assert (waiting.phase, waiting.hold) == (RecoveryPhase.WAITING, None)
    assert "ops took it out" in waiting.note
    assert ("set_down", "n1") not in site.slurm.calls
    assert (job.state, job.restarts) == ("RUNNING", 0), "it may still train there: Slurm's own DOWN decides"
    site.run(400, step_s=10)
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_a_drain_by_hand_in_the_moment_of_the_down_sends_the_job_back_to_waiting() -> None:
    site = Site(4)
    number = _fenced_job_on_a_dead_node(site)

    def step_in(intent: object, moment: str) -> None:
        if getattr(intent, "kind", "") == "SetDown" and moment == "started":
            site.slurm.operator_drains("n1")

    site.at_boundary = step_in
    site.run(60)
    assert site.recovery(number).phase is RecoveryPhase.WAITING
    assert site.slurm.reservations == {}, "what was held for it is released"
    assert site.slurm.nodes["n1"].reason == "psu"
