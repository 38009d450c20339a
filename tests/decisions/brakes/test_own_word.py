"""What a user's jobs report about themselves does not block repairs for others, and has its own limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.decisions.common.node_incidents import HUNG
from holdfast.model.incidents.incident import IncidentKind
from support.simulated import Site
from support.simulated.slurm import SimJob

_UID = 4242


def _tells(site: Site, job: SimJob, step: int, **more: Any) -> None:
    detail = {"phase": "step", "step_ms": 900, **more}
    machine = site.machine(job.nodes[0])
    site.agents.state(machine, "progress", job.job_id, job.restarts, step=step, uid=job.uid, detail=detail)


def _hangs(site: Site, *jobs: SimJob) -> None:
    """Five steps, then silence of a minute and a half."""
    for step in range(5):
        for job in jobs:
            _tells(site, job, step)
        site.run(2)
    site.run(90, step_s=2)


def _jobs(site: Site, count: int, **changed: Any) -> list[SimJob]:
    mine = {"comment": "holdfast", "uid": _UID, "user": "mallory", "gpus": 0, **changed}
    jobs = [site.slurm.submit(1, **mine) for _ in range(count)]
    site.run(2)
    assert {j.state for j in jobs} == {"RUNNING"}
    return jobs


def _heals(site: Site) -> None:
    victim = site.slurm.submit(2, comment="holdfast", exclusive=True, required=("n30", "n31"))
    site.run(5)
    site.fault("n30")
    site.run(30)
    assert site.slurm.nodes["n30"].drain, "a fatal fault of hardware is healed"
    assert victim.state in ("RUNNING", "PENDING")


def _pages(site: Site) -> list[str]:
    return [each for each in map(str, site.notices.sent) if "not restarted" in each]


def _many(site: Site, inquiries: int = 100) -> Site:
    """Any number of hangs may be examined, so that the limit on stops is the one that holds."""
    many = replace(site.policy.suspects, jobs_per_hour=inquiries, jobs_per_hour_per_user=inquiries)
    site.policy = replace(site.policy, suspects=many)
    site.start_controller()
    return site


def test_nine_jobs_that_only_pause_stop_no_healing() -> None:
    site = _many(Site(40))
    jobs = _jobs(site, 9)
    _hangs(site, *jobs)
    assert site.book.brakes == {}
    assert sorted(j.restarts for j in jobs) == [0] * 6 + [1] * 3
    (page,) = _pages(site)
    assert "3 jobs of this user" in page
    _heals(site)
    site.run(3600, step_s=20)
    assert len(_pages(site)) <= 2, "once while it holds"


def test_a_stop_above_the_limit_waits_alone_and_goes_on_when_the_hour_is_over() -> None:
    site = _many(Site(40))
    jobs = _jobs(site, 4)
    _hangs(site, *jobs)
    waits = next(j for j in jobs if not j.restarts)
    assert "at most 3: this one waits" in site.recovery(waits.job_id).note
    site.run(3700, step_s=20)
    assert waits.restarts == 1


def test_the_limit_of_one_user_is_not_anothers() -> None:
    site = _many(Site(40))
    mine = _jobs(site, 6)
    others = _jobs(site, 2, uid=4243, user="alice")
    _hangs(site, *mine, *others)
    assert [j.restarts for j in others] == [1, 1]
    assert sum(j.restarts for j in mine) == 3


def test_of_all_users_together_no_more_than_the_limit_in_all() -> None:
    site = _many(Site(40))
    jobs = [job for uid in range(4) for job in _jobs(site, 3, uid=5000 + uid, user=f"u{uid}")]
    _hangs(site, *jobs)
    assert (sum(j.restarts for j in jobs), site.book.brakes) == (8, {})
    assert len(_pages(site)) == 1
    _heals(site)


def test_two_jobs_on_most_of_the_gpus_stop_no_healing() -> None:
    site = Site(40)
    jobs = [site.slurm.submit(14, comment="holdfast", exclusive=True, uid=_UID, user="mallory") for _ in range(2)]
    site.run(2)
    _hangs(site, *jobs)
    assert ([j.restarts for j in jobs], site.book.brakes) == ([1, 1], {})
    _heals(site)


def test_one_job_that_hangs_again_and_again_reaches_the_limit_of_its_user() -> None:
    site = Site(40)
    (job,) = _jobs(site, 1)
    machine = site.machine(job.nodes[0])
    for turn in range(6):
        site.agents.state(
            machine, "checkpoint.register", job.job_id, job.restarts, path="/ckpt", uid=_UID, detail={"fenced": True}
        )
        site.agents.state(machine, "checkpoint.saved", job.job_id, job.restarts, step=100 * turn + 1, uid=_UID)
        _hangs(site, job)
        machine = site.machine(job.nodes[0])
    assert (job.restarts, site.book.brakes) == (3, {})
    assert sum(i.check == HUNG for i in site.store.incidents()) >= 3
    _heals(site)


def test_a_brake_that_holds_still_holds_stops_on_a_jobs_own_word() -> None:
    site = Site(16)
    (job,) = _jobs(site, 1, required=("n16",))
    for n in range(8):
        site.fault(f"n{n + 1}")
    site.run(3)
    assert "drains" in site.book.brakes
    _hangs(site, job)
    assert job.restarts == 0


def _hung(site: Site) -> list[str]:
    return [i.headline for i in site.store.incidents() if i.kind is IncidentKind.HANG]


def test_jobs_of_one_user_do_not_use_up_the_hour_of_everyones_hangs() -> None:
    site = Site(40)
    mine = _jobs(site, 12, comment="")
    _hangs(site, *mine)
    assert len(_hung(site)) == 4
    victim = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(2)
    _hangs(site, victim)
    assert any(f"job {victim.job_id} " in headline for headline in _hung(site))
    assert victim.restarts == 1


def test_failed_jobs_of_one_user_do_not_use_up_everyones_inquiries() -> None:
    site = Site(40)
    mine = [site.slurm.submit(2, comment="holdfast", uid=_UID, user="mallory", gpus=0) for _ in range(12)]
    site.run(2)
    for job in mine:
        site.slurm.finish(job, "FAILED")
    site.run(15)
    assert len(site.store.incidents()) == 4
    victim = site.slurm.submit(2, comment="holdfast")
    site.run(2)
    site.slurm.finish(victim, "FAILED")
    site.run(15)
    assert len(site.store.incidents()) == 5


def test_a_run_that_pauses_again_and_again_pages_once() -> None:
    site = Site(4)
    (job,) = _jobs(site, 1, comment="")
    for turn, pause_s in enumerate((70, 500)):
        for step in range(5):
            _tells(site, job, 10 * turn + step)
            site.run(2)
        site.run(pause_s, step_s=2)
    assert len(_hung(site)) == 2
    assert len(site.notices.sent) == 1
