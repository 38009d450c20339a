"""The brakes, pause and observe mode: what is withheld, and what continues all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.decisions.brakes.held_back import HeldBack, held_back
from holdfast.model.errors import Unavailable
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from holdfast.model.policies.policy import Mode
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob


def _running(site: Site, count: int, size: int = 1) -> list[SimJob]:
    jobs = [site.slurm.submit(size, comment="holdfast", exclusive=True) for _ in range(count)]
    site.run(2)
    assert {j.state for j in jobs} == {"RUNNING"}
    return jobs


def _eight_of_sixteen(site: Site) -> None:
    for n in range(8):
        site.fault(f"n{n + 1}")
    site.run(3)


@pytest.mark.parametrize("jobs", [1, 2])
def test_large_jobs_side_by_side_on_a_faulty_node_trip_nothing(jobs: int) -> None:
    """Together they hold over half of the GPUs; the fault is one."""
    site = Site(20)
    both = [site.slurm.submit(11, gpus=8 // jobs, comment="holdfast") for _ in range(jobs)]
    site.run(3)
    assert len({job.nodes for job in both}) == 1
    site.fault(both[0].nodes[0], minor=None)
    site.run(60)
    assert site.book.brakes == {}
    assert [job.restarts for job in both] == [1] * jobs


def _drained(site: Site) -> set[str]:
    return {n.name for n in site.slurm.nodes.values() if n.drain}


def test_eight_of_sixteen_at_once_stop_no_healthy_job() -> None:
    site = Site(16)
    jobs = _running(site, 16)
    _eight_of_sixteen(site)
    site.run(120, step_s=5)
    assert all(j.state == "RUNNING" and j.restarts == 0 for j in jobs)
    assert _drained(site) == set()
    assert "drains" in site.book.brakes
    for n in range(8):
        incident = site.incident(f"n{n + 1}")
        assert incident.state is IncidentState.OPEN
        assert "brake 'drains' holds: 8 nodes are suspect" in incident.note


def test_one_after_another_at_most_the_limit_is_drained() -> None:
    site = Site(16)
    jobs = _running(site, 16)
    for n in range(8):
        site.fault(f"n{n + 1}")
        site.run(1)
    assert _drained(site) == {"n1", "n2", "n3"}
    assert [j.restarts for j in jobs[3:]] == [0] * 13


def test_a_job_that_failed_is_recovered_away_from_every_suspect_drained_or_not() -> None:
    site = Site(16)
    jobs = _running(site, 9)
    _eight_of_sixteen(site)
    failed = jobs[0]
    site.slurm.finish(failed, "FAILED")
    site.run(5)
    assert (failed.state, failed.restarts) == ("RUNNING", 1)
    assert not set(failed.nodes) & {f"n{n + 1}" for n in range(8)}
    assert set(failed.excluded) == {f"n{n + 1}" for n in range(8)}
    assert [j.restarts for j in jobs[1:]] == [0] * 8


def test_with_too_few_nodes_left_it_waits_with_the_reason() -> None:
    site = Site(16)
    failed = _running(site, 1, size=9)[0]
    _eight_of_sixteen(site)
    site.slurm.finish(failed, "FAILED")
    site.run(5)
    assert (failed.state, failed.restarts) == ("PENDING", 1)
    assert site.recovery(failed.job_id).note.startswith("no node fits (BadConstraints): Holdfast keeps it off")


def test_a_released_brake_lets_the_suspects_go_and_is_not_tripped_by_the_same_again() -> None:
    site = Site(16)
    _running(site, 16)
    _eight_of_sixteen(site)
    site.operate("release_brake", "drains")
    site.run(5)
    assert [b for b in site.book.brakes.values() if b.kind == "drains" and b.released_at is None] == []
    assert len(_drained(site)) == 8


def test_too_many_stopped_jobs_trip_their_own_brake() -> None:
    site = Site(12)
    jobs = _running(site, 12)
    site.policy = replace(POLICY, brake=replace(POLICY.brake, stopped_jobs_60min=2, drains_10min=20, drains_60min=20))
    site.start_controller()
    site.run(2)
    for name in ("n1", "n2", "n3"):
        site.fault(name, minor=None)
    site.run(3)
    held = [j for j in jobs if set(j.nodes) & {"n1", "n2", "n3"}]
    assert [j.restarts for j in held] == [0] * 3
    assert "running jobs of 3 nodes" in site.book.brakes["job_stops"].reason
    assert {site.recovery(j.job_id).phase for j in held} == {RecoveryPhase.WAITING}


@pytest.mark.parametrize("small", [7, 9, 30])
def test_one_users_many_small_jobs_on_a_node_trip_nothing(small: int) -> None:
    site = Site(20)
    others = [site.slurm.submit(1, comment="holdfast", exclusive=True) for _ in range(10)]
    site.run(3)
    mine = [site.slurm.submit(1, user="mallory", uid=6666, gpus=0, comment="holdfast") for _ in range(small)]
    site.run(3)
    bad = [mine[0].nodes[0], others[5].nodes[0]]
    site.fault(bad[0], minor=None)
    site.run(60)
    site.fault(bad[1])
    site.run(60)
    assert site.book.brakes == {}
    assert others[5].restarts == 1
    assert [node for _, node, _ in site.slurm.drained] == bad


def test_a_job_on_most_gpus_and_a_small_one_beside_it_trip_nothing() -> None:
    site = Site(20)
    large = site.slurm.submit(14, comment="holdfast", exclusive=True)
    site.run(3)
    small = site.slurm.submit(1, user="mallory", uid=6666, gpus=1, comment="holdfast")
    site.run(3)
    site.fault(small.nodes[0], minor=None)
    site.run(30)
    site.fault(large.nodes[0])
    site.run(60)
    assert (site.book.brakes, large.restarts) == ({}, 1)


def test_pause_withholds_and_resume_goes_on() -> None:
    site = Site(3)
    job = _running(site, 1)[0]
    site.operate("pause")
    site.fault("n1")
    site.run(10)
    assert (_drained(site), job.restarts) == (set(), 0)
    assert "paused by ops" in site.incident("n1").note
    site.operate("resume")
    site.run(4)
    assert ("n1" in _drained(site), job.restarts, job.state) == (True, 1, "RUNNING")


def test_a_pause_also_stops_what_was_planned_before_it() -> None:
    site = Site(3)
    job = _running(site, 1)[0]
    site.fault("n1")
    site.turn()
    site.operate("pause")
    site.run(20)
    assert (_drained(site), job.restarts) == (set(), 0)
    site.operate("resume")
    site.run(4)
    assert job.restarts == 1


@pytest.mark.parametrize("apart_s", [0.0, 0.01])
def test_a_brake_that_trips_between_plan_and_step_still_holds_the_step(apart_s: float) -> None:
    site = Site(16)
    jobs = _running(site, 16)
    site.fault("n1")
    site.turn()
    for n in range(1, 8):
        site.fault(f"n{n + 1}")
    site.clock.advance(apart_s)
    site.turn()
    site.run(5)
    assert _drained(site) == set()
    assert [j.restarts for j in jobs] == [0] * 16


def test_observe_mode_records_and_does_nothing() -> None:
    site = Site(3, policy=replace(POLICY, mode=Mode.OBSERVE))
    job = _running(site, 1, size=2)[0]
    site.fault("n1")
    site.run(60)
    assert [call for call in site.slurm.calls if call[0] != "create_reservation"] == []
    assert (_drained(site), job.restarts) == (set(), 0)
    withheld = {i.kind for i in site.store.intents() if i.state.value == "withheld"}
    assert {"Drain", "Requeue", "HoldNodes"} <= withheld
    assert "observe mode" in site.incident("n1").note


def test_an_old_view_of_slurm_freezes_decisions() -> None:
    site = Site(3)
    job = _running(site, 1)[0]
    site.slurm.away = True
    site.run(20)
    site.fault("n1")
    site.run(5)
    assert {i.kind for i in site.store.intents()} == set()
    site.slurm.away = False
    site.run(4)
    assert (job.restarts, job.state) == (1, "RUNNING")


def test_a_stop_that_the_brake_overtook_is_decided_anew_when_the_job_fails_by_itself() -> None:
    site = Site(16)
    job = _running(site, 1)[0]
    site.fault("n1")
    site.world_moves()
    site.turn()  # the requeue is planned, the actor has not started it
    site.clock.advance(0.01)
    for n in range(1, 8):
        site.fault(f"n{n + 1}")
    site.turn()
    assert "drains" in site.book.brakes
    site.run(5)
    assert (job.state, job.restarts) == ("RUNNING", 0)
    site.slurm.finish(job, "FAILED")
    site.run(10)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert not set(job.nodes) & {f"n{n + 1}" for n in range(8)}


def test_the_page_of_a_brake_that_was_not_delivered_is_sent_again_while_it_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(16)
    _running(site, 16)
    delivers, tried = site.notices.notify, list[str]()

    def fails(subject: str, body: str) -> None:
        tried.append(subject)
        raise Unavailable("SMTP 550")

    monkeypatch.setattr(site.notices, "notify", fails)
    _eight_of_sixteen(site)
    assert [text for text in tried if text.startswith("brake 'drains' holds")]
    monkeypatch.setattr(site.notices, "notify", delivers)
    site.run(1200, step_s=5)
    assert len([text for text in site.notices.sent if text.startswith("brake 'drains' holds")]) == 1


def _held(site: Site) -> HeldBack:
    return held_back(site.book, site.book.brakes["drains"])


def test_what_a_brake_holds_back_is_counted_now_and_not_when_it_tripped() -> None:
    site = Site(60)
    jobs = _running(site, 60)
    for n in range(1, 6):
        site.fault(f"n{n}")
    site.run(3)
    assert _held(site).text == "5 nodes to drain and 5 running jobs to stop"
    for n in range(6, 31):
        site.fault(f"n{n}")
    site.run(3)
    assert "5 nodes are suspect" in site.book.brakes["drains"].reason
    assert _held(site).text == "30 nodes to drain and 30 running jobs to stop"
    assert _drained(site) == set()
    for kind in [k for k, b in site.book.brakes.items() if b.released_at is None]:
        site.operate("release_brake", kind)
    site.run(30)
    assert _drained(site) == {f"n{n}" for n in range(1, 31)}, "those that were shown"
    assert _held(site).nodes == frozenset()
    stopped = sum(job.restarts for job in jobs)
    for n in range(31, 41):
        site.fault(f"n{n}")
    site.run(30)
    assert len(_drained(site)) == 30, "what comes later trips it again"
    assert sum(job.restarts for job in jobs) == stopped
    assert _held(site).nodes == {f"n{n}" for n in range(31, 41)}


@pytest.mark.parametrize("why", ["paused", "slurmctld away"])
@pytest.mark.parametrize("waited_s", [60, 700, 4000])
def test_what_has_waited_for_long_is_not_drained_all_at_once(why: str, waited_s: int) -> None:
    site = Site(16)
    if why == "paused":
        site.operate("pause")
    site.slurm.away = why != "paused"
    for number in range(1, 6):
        site.fault(f"n{number}", remedy=Remedy.HUMAN)
    site.run(waited_s, step_s=10)
    site.operate("resume")
    site.slurm.away = False
    site.run(20)
    assert (site.slurm.drained, set(site.book.brakes)) == ([], {"drains"})
    site.operate("release_brake", "drains")
    site.run(20)
    assert len(site.slurm.drained) == 5, "an operator has looked"


def test_running_jobs_that_wait_to_be_stopped_for_long_are_not_stopped_all_at_once() -> None:
    """Warnings drain no node; each job holds its own node."""
    site = Site(20, policy=replace(POLICY, brake=replace(POLICY.brake, drains_10min=99, drains_60min=99)))
    jobs = [site.slurm.submit(1, comment="holdfast", exclusive=True) for _ in range(12)]
    site.run(2)
    site.operate("pause")
    for job in jobs:
        site.fault(job.nodes[0])
    site.run(4000, step_s=10)
    site.operate("resume")
    site.run(20)
    assert "job_stops" in site.book.brakes
    assert site.slurm.requeued.total() == 0
