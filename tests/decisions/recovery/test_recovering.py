"""Which jobs are affected, on what evidence they are stopped, and how they come back to work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.incidents.incident import IncidentKind, IncidentState, RecoveryPhase
from holdfast.model.machine import ProviderCan
from holdfast_checks.result import Severity
from support.simulated import Site
from support.simulated.provider import FULL, NOTHING
from support.simulated.slurm import SimJob

_P = RecoveryPhase


def _training(site: Site, nodes: int = 2, **changed: Any) -> SimJob:
    job = site.slurm.submit(nodes, **{"comment": "holdfast", "exclusive": True, **changed})
    site.run(2)
    assert job.state == "RUNNING"
    return job


def _verbs(site: Site) -> list[str]:
    return [verb for verb, _ in site.slurm.calls]


def test_a_fault_is_healed_and_nothing_is_left() -> None:
    site = Site(4, spares=("n4",))
    job = _training(site)
    site.fault("n1")
    site.react()
    site.run(3)
    assert (job.state, job.nodes, job.restarts) == ("RUNNING", ("n2", "n4"), 1)
    site.run(300, step_s=5)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert site.slurm.reservations["holdfast-spares"].nodes == ("n1",)
    assert set(site.slurm.reservations) == {"holdfast-spares"}
    assert not site.slurm.nodes["n1"].drain
    assert site.provider.candidates() == set()
    assert site.notices.sent == []


def test_the_spare_goes_to_the_job_on_a_full_cluster() -> None:
    site = Site(4, spares=("n4",))
    job = _training(site)
    others = [site.slurm.submit(1, user="bob", uid=1001, exclusive=True) for _ in range(4)]
    site.fault("n1")
    site.run(4)
    assert (job.state, job.nodes) == ("RUNNING", ("n2", "n4"))
    assert [o.state for o in others] == ["RUNNING", "PENDING", "PENDING", "PENDING"]


@pytest.mark.parametrize(("minor", "hurt"), [(0, "first"), (1, "first"), (2, "second"), (7, None), (None, "both")])
def test_only_the_holder_of_the_gpu_is_hurt(minor: int | None, hurt: str | None) -> None:
    site = Site(1)
    first = _training(site, 1, exclusive=False, gpus=2)
    second = _training(site, 1, exclusive=False, gpus=2)
    site.fault("n1", minor=minor)
    site.run(3)
    assert first.restarts == (hurt in ("first", "both"))
    assert second.restarts == (hurt in ("second", "both"))


def test_a_second_gpus_fault_on_the_drained_node_hurts_its_job_as_well() -> None:
    site = Site(1)
    first = _training(site, 1, exclusive=False, gpus=2)
    second = _training(site, 1, exclusive=False, gpus=2)
    site.fault("n1", minor=0)
    site.run(3)
    assert (first.restarts, second.restarts) == (1, 0)
    site.fault("n1", minor=2)
    site.run(3)
    assert (first.restarts, second.restarts) == (1, 1)


def test_degraded_drains_and_stops_nobody() -> None:
    site = Site(2)
    job = _training(site, 1)
    site.fault(job.nodes[0], severity=Severity.DEGRADED)
    site.run(30)
    assert site.slurm.nodes[job.nodes[0]].drain
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert site.incident(job.nodes[0]).state is IncidentState.CONTAINED


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("no holdfast", 'its comment says "no holdfast"'),
        ("Holdfast", 'its comment says "Holdfast", which is not the word'),
    ],
)
def test_a_refusal_or_nearly_the_word_is_no_consent_and_its_owner_is_told(comment: str, words: str) -> None:
    site = Site(2)
    job = _training(site, 1, comment=comment)
    site.fault(job.nodes[0])
    site.run(3)
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert f"did not opt in ({words}" in job.admin_comment


def test_jobrequeue_is_no_consent_not_even_when_the_job_fails_by_itself() -> None:
    site = Site(3)
    job = _training(site, 2, comment="")
    site.fault("n1")
    site.run(20 * 60, step_s=10)
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert site.recovery(job.job_id).phase is _P.AWAITING_CONSENT
    assert "did not opt in" in job.admin_comment
    site.slurm.finish(job, "FAILED")  # its own bug, long after the fault
    site.run(60)
    assert (job.state, job.restarts) == ("FAILED", 0)
    assert site.recovery(job.job_id).phase is _P.GONE


@pytest.mark.parametrize("comment", ["holdfast", "x,holdfast", "holdfast please"])
def test_the_users_word_is_consent(comment: str) -> None:
    site = Site(2)
    job = _training(site, 1, comment=comment)
    site.fault(job.nodes[0])
    site.run(3)
    assert job.restarts == 1


def test_a_registered_checkpoint_is_consent_but_not_another_uids() -> None:
    site = Site(2)
    mine, others = _training(site, 1, comment=""), _training(site, 1, comment="")
    for job, uid in ((mine, 1000), (others, 1001)):
        machine = site.machine(job.nodes[0])
        site.agents.state(machine, "checkpoint.register", job.job_id, 0, uid=uid, path="/ckpt")
        site.fault(job.nodes[0])
    site.run(3)
    assert (mine.restarts, others.restarts) == (1, 0)


@pytest.mark.parametrize(
    ("changed", "word"),
    [({"requeue": False}, "cannot be requeued"), ({"batch": False}, "cannot be"), ({"required": ("n1",)}, "by name")],
)
def test_what_cannot_be_requeued_is_left_alone_and_told(changed: dict[str, Any], word: str) -> None:
    site = Site(2)
    job = _training(site, 1, **changed)
    site.fault("n1")
    site.run(30)
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert site.recovery(job.job_id).phase is _P.LEFT_ALONE
    assert word in job.admin_comment


def test_the_owner_is_told_also_when_slurm_was_away() -> None:
    site = Site(2)
    job = _training(site, 1, requeue=False)
    site.fault("n1")
    site.turn()
    site.slurm.away = True
    site.act()
    site.slurm.away = False
    site.run(5)
    assert "cannot be requeued" in job.admin_comment


@pytest.mark.parametrize(("shown", "restarts"), [(True, 1), (False, 0)])
def test_a_job_that_failed_first_is_requeued_only_if_the_fault_came_before(shown: bool, restarts: int) -> None:
    """A report may come late; a fault that appeared only afterwards did not end it."""
    site = Site(3)
    job = _training(site, 2)
    at = site.clock.now()
    site.slurm.finish(job, "FAILED")
    site.run(3)
    site.fault("n1", **({"fault_at": at} if shown else {}))
    site.run(3)
    assert (job.restarts, job.state) == (restarts, "RUNNING" if restarts else "FAILED")


def test_a_job_that_ended_long_before_is_not() -> None:
    site = Site(3)
    job = _training(site, 2)
    site.slurm.finish(job, "FAILED")
    site.run(320, step_s=10)
    site.fault("n1")
    site.run(3)
    assert (job.state, job.restarts) == ("FAILED", 0)


def _break(site: Site, job: SimJob, check: str) -> None:
    site.fault(job.nodes[0], check=check, code=check)
    site.run(5)


def _hang_a_kernel(site: Site, job: SimJob) -> None:
    """A fault that the program itself may have caused."""
    site.fault(job.nodes[0], code="109")
    site.run(5)


def test_three_failures_without_progress_are_the_end() -> None:
    site = Site(8)
    job = _training(site, 1)
    for n in range(3):
        site.registers(job)
        site.run(1)
        _break(site, job, f"gpu.fault{n}")
        site.run(601, step_s=10)
    assert job.held
    assert "3 failures" in job.admin_comment
    assert site.recovery(job.job_id).phase is _P.HELD


def _power_cycled(site: Site, job: SimJob) -> None:
    node = job.nodes[0]
    site.machine(node).powered = False
    site.run(400, step_s=2)
    site.provider.power_cycle(node)
    site.run(300, step_s=5)


@pytest.mark.slow
@pytest.mark.parametrize("can", [FULL, NOTHING])
def test_nodes_that_lose_power_are_no_failures_of_the_job(can: ProviderCan) -> None:
    site = Site(8, can=can)
    job = _training(site, 1)
    for deaths in range(1, 4):
        _power_cycled(site, job)
        assert (job.state, job.restarts, job.held) == ("RUNNING", deaths, False), site.story()
    _break(site, job, "gpu.fault")
    assert (job.state, job.restarts, job.held) == ("RUNNING", 4, False)


@pytest.mark.slow
def test_a_job_under_which_more_nodes_die_than_by_chance_is_held() -> None:
    site = Site(8, can=replace(NOTHING, status=True, power_off_confirmed=True))
    job = _training(site, 1)
    for deaths in range(1, 5):
        assert not job.held, deaths
        site.registers(job)
        site.run(1)
        site.machine(job.nodes[0]).powered = False
        site.run(900, step_s=5)
    assert job.held, site.story()
    assert "4 failures" in job.admin_comment


def test_a_job_that_advances_may_go_on() -> None:
    site = Site(8)
    job = _training(site, 1)
    for n in range(5):
        machine = site.machine(job.nodes[0])
        if n == 0:
            site.agents.state(machine, "checkpoint.register", job.job_id, 0, path="/ckpt")
        site.agents.state(machine, "checkpoint.saved", job.job_id, job.restarts, step=100 * (n + 1))
        site.run(1)
        _break(site, job, f"gpu.fault{n}")
        site.run(601, step_s=10)
    assert not job.held
    assert (job.state, job.restarts) == ("RUNNING", 5)


def test_a_job_that_breaks_two_nodes_is_held_and_the_node_is_released_unrepaired() -> None:
    site = Site(4)
    job = _training(site, 1)
    first = job.nodes[0]
    _hang_a_kernel(site, job)
    second = job.nodes[0]
    assert second != first
    _hang_a_kernel(site, job)
    site.run(200, step_s=5)
    assert job.held
    assert "the job is the suspect" in job.admin_comment
    about_the_node = next(i for i in site.store.incidents(node=second) if i.kind is IncidentKind.FAULT)
    assert about_the_node.state is IncidentState.CLOSED
    assert site.provider.terminated[f"i-000{second[1]}"] == 0
    assert not site.slurm.nodes[second].drain


def test_a_hold_that_slurm_did_not_take_is_tried_again() -> None:
    site = Site(4)
    job = _training(site, 1)
    _hang_a_kernel(site, job)
    site.fault(job.nodes[0], code="109")
    site.turn()
    site.slurm.away = True
    site.act()
    site.slurm.away = False
    assert not job.held
    site.run(5)
    assert job.held


def test_the_users_own_exclusions_are_kept_and_ours_taken_back() -> None:
    site = Site(5)
    job = _training(site, 1, excluded=("n5",))
    first = job.nodes[0]
    _break(site, job, "gpu.a")
    assert set(job.excluded) == {"n5", first}
    site.run(700, step_s=10)
    assert site.incident(first).state is IncidentState.CLOSED
    second = job.nodes[0]
    _break(site, job, "gpu.b")
    assert set(job.excluded) == {"n5", second}


@pytest.mark.parametrize("kind", ["Drain", "HoldNodes", "PromoteSpare", "Requeue", "Release", "DropHold"])
@pytest.mark.parametrize("moment", ["planned", "started", "acted", "finished"])
def test_the_actor_may_die_at_every_boundary(kind: str, moment: str) -> None:
    site = Site(4, spares=("n4",))
    job = _training(site)
    site.kill_at = (kind, moment)
    site.fault("n1")
    site.run(6)
    assert site.killed == 1
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert site.slurm.requeued == {(job.job_id, 0): 1}
    site.run(400, step_s=10)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert set(site.slurm.reservations) == {"holdfast-spares"}
    assert site.notices.sent == []


@pytest.mark.sampled
@pytest.mark.parametrize("what", ["slurm", "store", "provider", "controller"])
@pytest.mark.parametrize("after_s", [0, 1, 2, 45, 110])
def test_an_outage_of_a_minute_loses_and_doubles_nothing(what: str, after_s: int) -> None:
    site = Site(4, spares=("n4",))
    job = _training(site)
    site.fault("n1")
    site.run(after_s)
    if what == "controller":
        site.start_controller()
    else:
        setattr(getattr(site, what), "away", True)  # noqa: B010 - one of three twins
        site.run(60)
        setattr(getattr(site, what), "away", False)  # noqa: B010
    site.run(400, step_s=5)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert site.slurm.requeued == {(job.job_id, 0): 1}
    assert site.provider.terminated == {"i-0001": 1}
    assert len(site.provider.tokens) == 1
    assert site.incident("n1").state is IncidentState.CLOSED
    assert set(site.slurm.reservations) == {"holdfast-spares"}
