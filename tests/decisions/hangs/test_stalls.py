"""Jobs that stop together are one event: one notification, no restarts, no node accused. A group of an elastic job that hangs alone is
evicted as usual.

The rule as a table; then the controller's real loop and actor over simulated Slurm and agents, with a simulated clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from decisions.hangs.test_hangs import groups, hung, orders, requeues, stands, tells, told_of
from holdfast.config.controller import read
from holdfast.decisions.common import mounts
from holdfast.decisions.hangs.shared_stalls import Pause, PauseMeaning, StallVerdict, judge
from holdfast.model.actions.action import Verb
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.policies.hangs import HangPolicy
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

_T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


def pause(number: int, at_s: float, quiet_s: float, patience_s: float = 300) -> Pause:
    """A job of a separate user."""
    return Pause(number, _T0 + timedelta(seconds=at_s), quiet_s, patience_s, number)


MINE = pause(1, 0, 310)


@pytest.mark.parametrize(
    ("quiet_s", "patience_s", "progress"),
    [
        (5, 300, PauseMeaning.MOVES),
        (60, 300, PauseMeaning.MOVES),
        (61, 300, PauseMeaning.UNCLEAR),
        (149, 300, PauseMeaning.UNCLEAR),
        (150, 300, PauseMeaning.STOPPED),
        (360, 1800, PauseMeaning.MOVES),
        (899, 1800, PauseMeaning.UNCLEAR),
    ],
)
def test_what_a_pause_says(quiet_s: float, patience_s: float, progress: PauseMeaning) -> None:
    assert pause(2, 0, quiet_s, patience_s).progress is progress


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([], StallVerdict.ALONE),
        ([pause(2, 305, 5)], StallVerdict.ALONE),
        ([pause(2, 20, 290)], StallVerdict.STALL),
        ([pause(2, 160, 150)], StallVerdict.STALL),
        ([pause(2, 200, 110)], StallVerdict.UNCLEAR),
        ([pause(2, 200, 110), pause(3, 20, 290)], StallVerdict.STALL),
        ([pause(2, -599, 909)], StallVerdict.STALL),
        ([pause(2, -601, 911)], StallVerdict.ALONE),  # it had stopped long before
        ([pause(2, -7200, 7510), pause(3, -7200, 7510)], StallVerdict.ALONE),
        ([pause(2, 10, 300, 7200)], StallVerdict.ALONE),  # its steps take longer than that
        ([pause(2, 0, 310, 1000)], StallVerdict.UNCLEAR),
        ([pause(1, 0, 310), pause(1, 0, 310)], StallVerdict.ALONE),  # groups of one elastic job
    ],
)
def test_who_stops_together(others: list[Pause], verdict: StallVerdict) -> None:
    assert judge(HangPolicy(), MINE, others, unanswered=False) is verdict
    assert judge(HangPolicy(), MINE, others, unanswered=True) is StallVerdict.STALL


@pytest.mark.parametrize(
    ("jobs", "verdict"),
    [(0, StallVerdict.ALONE), (2, StallVerdict.STALL), (3, StallVerdict.STALL), (4, StallVerdict.UNCLEAR)],
)
def test_how_many_jobs_it_takes(jobs: int, verdict: StallVerdict) -> None:
    others = [pause(2, 10, 300), pause(3, 20, 290), pause(4, 220, 90)]
    assert judge(HangPolicy(together_jobs=jobs), MINE, others, unanswered=False) is verdict


@pytest.mark.parametrize(
    ("uids", "needed", "verdict"),
    [
        ([1, 1], 3, StallVerdict.STALL),  # their own jobs count one by one: they delay no one else
        ([2, 2], 3, StallVerdict.ALONE),
        ([2, 2, 2, 2], 3, StallVerdict.ALONE),
        ([2, 3], 3, StallVerdict.STALL),
        ([1, 2, 2], 3, StallVerdict.STALL),
        ([2, 2], 2, StallVerdict.STALL),
    ],
)
def test_of_another_users_jobs_one_counts(uids: list[int], needed: int, verdict: StallVerdict) -> None:
    others = [replace(pause(2 + n, 10, 300), uid=uid) for n, uid in enumerate(uids)]
    assert judge(HangPolicy(together_jobs=needed), MINE, others, unanswered=False) is verdict


# The site


def site_of(nodes: int, **changed: Any) -> Site:
    return Site(nodes, policy=replace(POLICY, hangs=replace(HangPolicy(), **changed)))


def training(site: Site, count: int, nodes: int = 1, **changed: object) -> list[SimJob]:
    """This many jobs, each of another user, that make steps."""
    jobs = [
        site.slurm.submit(
            nodes, **{"comment": "holdfast", "exclusive": True, "user": f"u{n}", "uid": 2000 + n, **changed}
        )
        for n in range(count)
    ]
    site.run(2)
    assert all(job.state == "RUNNING" for job in jobs)
    step(site, jobs, 0, 10)
    return jobs


def step(site: Site, jobs: list[SimJob], first: int, count: int) -> None:
    for number in range(first, first + count):
        for job in jobs:
            tells(site, job, number, step_ms=900)
        site.run(2)


def stalled(site: Site) -> list[Incident]:
    return [i for i in site.book.incidents.values() if i.kind is IncidentKind.STALL]


def mount_hangs(site: Site, *nodes: str) -> None:
    for node in nodes:
        site.fault(
            node,
            check="host.mounts",
            code="hang",
            component="/scratch",
            severity=Severity.WARNING,
            remedy=Remedy.NONE,
            sticky=True,
            gpu_uuid=None,
            gpu_minor=None,
            evidence={"source": "fs1:/export"},
        )


@pytest.mark.parametrize("act", ["tell", "restart"])
def test_twelve_jobs_that_stop_together_are_one_event(act: str) -> None:
    site = site_of(12, act=act)
    jobs = training(site, 12)
    site.run(1200, step_s=5)
    (incident,) = stalled(site)
    assert hung(site) == []
    assert "12 jobs of 12 users on 12 nodes stopped making progress together since" in incident.headline
    assert (site.notices.sent, requeues(site)) == ([incident.headline], 0)
    body = site.notices.bodies[0][1]
    assert all(f"job {job.job_id} of {job.user} on {job.nodes[0]}" in body for job in jobs)
    assert "none is restarted, and no node is accused" in body
    assert (site.slurm.drained, site.agents.probes.pairs) == ([], [])


def test_it_ends_when_its_jobs_go_on_and_one_that_stays_behind_is_not_restarted() -> None:
    site = site_of(4, act="restart")
    jobs = training(site, 3)
    site.run(400, step_s=5)
    (incident,) = stalled(site)
    step(site, jobs[:2], 10, 100)
    assert stalled(site)[0].note == f"no progress yet: {jobs[2].job_id} of u2"
    site.run(20)
    assert stalled(site)[0].open
    step(site, jobs, 200, 5)
    (closed,) = stalled(site)
    assert (closed.id, closed.state) == (incident.id, IncidentState.CLOSED)
    assert (requeues(site), len(site.notices.sent)) == (0, 1)


def test_jobs_that_stop_one_after_another_join() -> None:
    site = site_of(4, act="restart")
    jobs = training(site, 3)
    step(site, jobs[1:], 10, 60)
    step(site, jobs[2:], 70, 60)
    site.run(600, step_s=5)
    (incident,) = stalled(site)
    assert set(incident.stalled) == {site.slurm.view().jobs[job.job_id].run.text for job in jobs}
    assert (requeues(site), len(site.notices.sent)) == (0, 1)
    assert [i for i in hung(site) if i.open] == []


def test_a_controller_that_starts_again_makes_it_no_second_event() -> None:
    site = site_of(4)
    training(site, 2)
    site.run(400, step_s=5)
    site.start_controller()
    site.run(700, step_s=5)
    assert [i.open for i in stalled(site)] == [True]
    assert (len(site.notices.sent), hung(site)) == (1, [])


def test_one_job_hangs_while_the_others_go_on() -> None:
    site = site_of(4, act="restart")
    jobs = training(site, 3)
    step(site, jobs[1:], 10, 175)
    assert (stalled(site), requeues(site), jobs[0].restarts) == ([], 1, 1)


def test_a_job_that_hung_long_before_is_no_part_of_it() -> None:
    site = site_of(4)
    jobs = training(site, 3)
    step(site, jobs[1:], 10, 460)
    (before,) = hung(site)
    site.run(400, step_s=5)
    (incident,) = stalled(site)
    assert len(incident.stalled) == 2
    assert before.job not in incident.stalled
    assert [i.id for i in hung(site) if i.open] == [before.id]


@pytest.mark.parametrize("act", ["tell", "restart"])
def test_a_job_whose_nodes_mount_hangs_is_told_with_the_mount_and_not_restarted(act: str) -> None:
    site = site_of(4, act=act)
    (job, other) = training(site, 2, 2)
    step(site, [other], 10, 30)
    mount_hangs(site, job.nodes[1])
    step(site, [other], 40, 160)
    (incident,) = stalled(site)
    assert incident.headline.endswith(f"; /scratch (fs1:/export) does not answer on {job.nodes[1]}")
    assert f"job {job.job_id} of u0 on 2 nodes makes no progress since" in incident.headline
    assert (requeues(site), hung(site)) == (0, [])
    assert [s for s in site.notices.sent if "job.stall" in s] == [incident.headline]


def test_a_job_that_dies_in_it_costs_no_node_a_probe() -> None:
    site = site_of(6)
    jobs = training(site, 3, 2)
    site.run(400, step_s=5)
    for job in jobs:
        site.slurm.finish(job, "FAILED")
    site.run(200, step_s=5)
    assert [i.open for i in stalled(site)] == [False]
    assert (site.agents.probes.pairs, hung(site), site.slurm.drained) == ([], [], [])


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_job_that_stops_long_after_is_told_of_and_restarted_only_once_the_others_go_on(goes_on: bool) -> None:
    site = site_of(4, act="restart")
    jobs = training(site, 2)
    site.run(900, step_s=5)
    (late,) = training(site, 1, user="eve", uid=3000)
    if goes_on:
        step(site, jobs, 20, 330)
    else:
        site.run(660, step_s=5)
    (incident,) = stalled(site)
    assert (incident.open, len(incident.stalled), late.restarts) == (not goes_on, 2, int(goes_on))
    assert len([i for i in hung(site) if "eve" in i.headline]) == 1


def test_one_users_jobs_that_stand_still_hold_up_no_one_elses_restart() -> None:
    site = site_of(6, act="restart")
    idle = [site.slurm.submit(1, user="mallory", uid=6666, gpus=0, comment="") for _ in range(2)]
    site.run(2)
    step(site, idle, 0, 4)
    site.run(400, step_s=5)
    assert [i.open for i in stalled(site)] == [True]
    site.run(600, step_s=5)
    jobs = training(site, 3)
    step(site, jobs[1:], 10, 175)
    assert [job.restarts for job in jobs] == [1, 0, 0]
    site.run(400, step_s=5)
    assert sorted(len(i.stalled) for i in stalled(site) if i.open) == [2, 2], (
        "their stall is reported in addition to hers"
    )


def test_a_stall_of_long_ago_holds_up_no_restart() -> None:
    site = site_of(6, act="restart")
    training(site, 2)
    site.run(900, step_s=5)
    assert [i.open for i in stalled(site)] == [True]
    site.run(3600, step_s=20)
    late, other = training(site, 2)
    step(site, [other], 10, 175)
    assert (late.restarts, [i.open for i in stalled(site)]) == (1, [True])
    world, began = site.loop.world, stalled(site)[0].fault_at
    assert world is not None
    assert [mounts.during_a_stall(world, began + timedelta(minutes=m)) for m in (-5, 30, 90)] == [True, True, False]


# Groups of elastic jobs


def test_by_default_the_one_group_that_hangs_is_evicted_while_the_others_advance() -> None:
    site = site_of(4)
    jobs = groups(site)
    for number in range(40):
        for job in jobs:
            tells(site, job, number, step_ms=900, quorum=1)
        site.run(2)
    stands(site, n2=["load (train.py:6)", "step (train.py:8)"])
    for number in range(40, 230):
        for job in (jobs[0], jobs[2]):
            tells(site, job, number, step_ms=900, quorum=2)
        site.run(2)
    assert [job.restarts for job in jobs] == [0, 1, 0]
    assert (stalled(site), told_of(site)) == ([], [])


def test_by_default_groups_that_all_hang_are_told_of() -> None:
    site = site_of(4)
    jobs = groups(site)
    for number in range(40):
        for job in jobs:
            tells(site, job, number, step_ms=900, quorum=1)
        site.run(2)
    site.run(900, step_s=5)
    assert ([job.restarts for job in jobs], requeues(site)) == ([0, 0, 0], 0)
    assert len(told_of(site)) >= 1


def test_a_group_hangs_while_other_jobs_stand_still_and_its_own_advances() -> None:
    site = site_of(8)
    jobs = groups(site)
    others = training(site, 3)  # two others of one stall with it, although the elastic job's user continues
    for number in range(30):
        for job in jobs:
            tells(site, job, number, step_ms=900, quorum=1)
        site.run(2)
    for number in range(30, 230):
        for job in (jobs[0], jobs[2]):
            tells(site, job, number, step_ms=900, quorum=2)
        site.run(2)
    assert [job.restarts for job in jobs] == [0, 1, 0]
    (incident,) = stalled(site)
    assert len(incident.stalled) == len(others)


@pytest.mark.parametrize("others_go_on", [True, False])
def test_one_job_of_one_other_user_is_no_common_cause_while_a_third_ones_goes_on(others_go_on: bool) -> None:
    """A tiny job that reported four steps and then stalls would block everyone's restarts."""
    site = site_of(8, act="restart")
    jobs = training(site, 3)
    tiny = site.slurm.submit(1, user="mallory", uid=6666, gpus=0, comment="")
    site.run(2)
    for number in range(10, 14):
        for job in (*jobs, tiny):
            tells(site, job, number, step_ms=900)
        site.run(2)
    for number in range(14, 200):
        for job in jobs:
            if number < 44 or (others_go_on and job is not jobs[0]):  # five minutes later the first one hangs
                tells(site, job, number, step_ms=900)
        site.run(10, step_s=5)
    assert [job.restarts for job in jobs] == [1 if others_go_on else 0, 0, 0]


# Settings


@pytest.mark.parametrize(
    ("table", "act", "group_act"),
    [
        ({}, "tell", "restart"),
        ({"act": "tell"}, "tell", "tell"),
        ({"act": "restart"}, "restart", "restart"),
        ({"act": "tell", "group_act": "restart"}, "tell", "restart"),
        ({"group_act": "tell"}, "tell", "tell"),
    ],
)
def test_a_file_that_sets_act_means_what_it_meant(table: dict[str, object], act: str, group_act: str) -> None:
    hangs = read({"hangs": table}, Path("c.toml")).policy.hangs
    assert (hangs.act, hangs.group_act, hangs.floor_s) == (act, group_act, 300)


def test_by_default_a_job_that_hangs_is_told_of_once_and_its_stacks_are_read() -> None:
    site = site_of(4)
    (job,) = training(site, 1, 3)
    site.run(295, step_s=5)
    assert hung(site) == []
    site.run(900, step_s=5)
    assert (requeues(site), len(told_of(site)), len(hung(site))) == (0, 1, 1)
    assert len(orders(site, Verb.STACKS)) == len(job.nodes)
