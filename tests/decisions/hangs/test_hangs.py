"""A job that has stopped reporting steps: its stacks are read and it is requeued; a job that only pauses is not called hung.

The controller's real loop and actor over simulated Slurm and agents; the clock is simulated, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config.controller import read
from holdfast.controller.observing.agents import AgentRegistry, Hello
from holdfast.decisions.common.node_incidents import HUNG
from holdfast.decisions.hangs.progress_stall import quiet
from holdfast.decisions.probing.suspects import UNEXPLAINED
from holdfast.model.actions.action import AdoptSpare, HoldJob, IntentState, Requeue, SendOrder, Verb
from holdfast.model.errors import ConfigError
from holdfast.model.incidents.incident import Incident, IncidentState, RecoveryPhase
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import Job
from holdfast_checks.result import Remedy, Severity
from support.simulated import Machine, Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

_S = IncidentState
WAIT = ["all_reduce (torch/distributed/distributed_c10d.py:3252)", "step (train.py:9)", "train (train.py:12)"]
STUCK = ["load (train.py:6)", "step (train.py:8)", "train (train.py:12)"]


def policy(**changed: Any) -> Policy:
    return replace(POLICY, hangs=replace(POLICY.hangs, **changed))


def job_of(site: Site, job: SimJob) -> Job:
    return site.slurm.view().jobs[job.job_id]


def started(site: Site, nodes: int = 3, **changed: object) -> SimJob:
    job = site.slurm.submit(nodes, **{"comment": "holdfast", "exclusive": True, **changed})
    site.run(2)
    assert job.state == "RUNNING"
    return job


def tells(site: Site, job: SimJob, step: int, phase: str = "step", *, node: int = 0, **more: int) -> None:
    detail: dict[str, str | int] = {"phase": phase, **more} if phase else dict(more)
    machine = site.machine(job.nodes[node])
    site.agents.state(machine, "progress", job.job_id, job.restarts, uid=job.uid, step=step, detail=detail)


def steps(site: Site, job: SimJob, count: int = 10, every_s: float = 2, step_ms: int = 900) -> None:
    for step in range(count):
        tells(site, job, step, step_ms=step_ms)
        site.run(every_s)


def training(site: Site, nodes: int = 3, **changed: object) -> SimJob:
    job = started(site, nodes, **changed)
    tells(site, job, 0, "init")
    site.run(5)
    steps(site, job)
    return job


def stands(site: Site, **odd: list[str]) -> None:
    """Each node has one rank, which waits in a collective; the named ones are at another place."""

    def stacks(machine: Machine, _job_id: int) -> dict[str, Any]:
        frames = odd.get(machine.node, WAIT)
        return {"ranks": [{"pid": 7, "rank": int(machine.node[1:]), "frames": frames}]}

    site.agents.stacks = stacks


def hung(site: Site) -> list[Incident]:
    return [i for i in reversed(site.store.incidents()) if i.check in (HUNG, UNEXPLAINED)]


def orders(site: Site, verb: Verb) -> list[str]:
    return [
        i.action.node
        for i in site.store.intents()
        if isinstance(i.action, SendOrder) and i.action.verb is verb and i.state is not IntentState.WITHHELD
    ]


def requeues(site: Site) -> int:
    return sum(site.slurm.requeued.values())


def test_a_hang_is_seen_its_stacks_are_grouped_and_the_job_starts_again() -> None:
    site = Site(4)
    job = training(site)
    stands(site, n2=STUCK)
    site.run(58)
    assert hung(site) == []
    site.run(9)
    (incident,) = hung(site)
    assert incident.fault_at < incident.opened_at
    assert "has reported no progress since" in incident.headline
    assert "after step 9" in incident.headline
    assert sorted(orders(site, Verb.STACKS)) == ["n1", "n2", "n3"]
    assert (job.restarts, requeues(site)) == (1, 1)
    story = site.story(incident.id)
    assert "rank 1 on n1, rank 3 on n3: all_reduce from step (train.py:9); rank 2 on n2: load (train.py:6)" in story
    assert "odd: rank 2 on n2" in story
    said = [e for e in site.store.events(incident_id=incident.id) if e.detail.get("odd")]
    assert [e.detail["nodes"] for e in said] == [["n2"]]
    site.run(30)
    assert job.state == "RUNNING"
    assert job.restarts == 1
    assert site.notices.sent == [], "no page for what is repaired"


def test_the_node_that_stands_out_is_probed_and_the_job_comes_back_to_it_if_it_is_good() -> None:
    site = Site(3)
    job = training(site)
    stands(site, n2=STUCK)
    site.run(70)
    assert site.agents.probes.pairs
    assert {n for pair in site.agents.probes.pairs for n in pair} >= {"n2"}
    site.run(60)
    assert (job.state, job.nodes, job.restarts) == ("RUNNING", ("n1", "n2", "n3"), 1)
    assert hung(site)[0].note == "pair probe: cleared: n2"
    assert site.slurm.drained == []


def test_a_node_that_fails_the_probe_is_taken_out_and_the_job_runs_without_it() -> None:
    site = Site(6)
    job = training(site)
    site.machine("n2").path_broken = True
    stands(site, n2=STUCK)
    site.run(140)
    assert [node for _, node, _ in site.slurm.drained] == ["n2"]
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert "n2" not in job.nodes


def test_with_a_spare_nobody_waits_for_the_probe_and_the_good_node_joins_the_pool() -> None:
    site = Site(5, spares=("n4", "n5"))
    job = training(site)
    stands(site, n2=STUCK)
    site.run(68)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert "n2" not in job.nodes
    site.run(60)
    assert hung(site)[0].note == "pair probe: cleared: n2"
    assert "n2" in site.slurm.reservations[POLICY.spare_reservation].nodes
    assert len([i for i in site.store.intents() if isinstance(i.action, AdoptSpare)]) == 1


def test_where_nobody_stands_out_the_job_starts_again_on_its_nodes() -> None:
    site = Site(3)
    job = training(site)
    stands(site)
    site.run(80)
    assert (job.state, job.nodes, job.restarts) == ("RUNNING", ("n1", "n2", "n3"), 1)
    assert "no rank stands out" in site.story(hung(site)[0].id)


def test_a_job_of_one_node_can_hang_too() -> None:
    site = Site(3)
    job = training(site, 1)
    stands(site)
    site.run(80)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert hung(site)[0].note == "the run is over"


def test_a_slow_job_has_more_patience() -> None:
    site = Site(4)
    job = started(site)
    steps(site, job, count=3, every_s=40, step_ms=40_000)
    site.run(155)
    assert hung(site) == []
    site.run(15)
    assert len(hung(site)) == 1
    assert requeues(site) == 1


# Jobs that are not called hung …


def test_a_job_that_never_tells_of_progress_never_hangs() -> None:
    site = Site(4)
    started(site)
    site.run(4000, step_s=20)
    assert (hung(site), requeues(site)) == ([], 0)


@pytest.mark.slow
def test_one_step_alone_says_nothing_of_how_long_a_step_takes() -> None:
    site = Site(4)
    job = started(site)
    tells(site, job, 0)
    site.run(4000, step_s=20)
    assert (hung(site), requeues(site)) == ([], 0)


@pytest.mark.parametrize("phase", ["checkpoint", "waiting", "leaving", "evaluation"])
def test_a_phase_without_steps_may_last(phase: str) -> None:
    site = Site(4)
    job = training(site)
    tells(site, job, 9, phase)
    site.run(3000, step_s=10)
    tells(site, job, 9)  # as long as that took, the next step has its whole time from here
    site.run(50)
    assert (hung(site), requeues(site)) == ([], 0)
    site.run(20)
    assert requeues(site) == 1


@pytest.mark.parametrize("phase", ["init", "heal"])
def test_a_start_has_a_bound_of_its_own(phase: str) -> None:
    site = Site(4)
    job = started(site)
    tells(site, job, 0, phase)
    site.run(1790, step_s=5)
    assert hung(site) == []
    site.run(30, step_s=5)
    (incident,) = hung(site)
    assert f"in phase {phase}" in incident.headline
    assert requeues(site) == 1


@pytest.mark.slow
def test_a_job_that_tells_of_no_phases_may_pause_for_half_an_hour() -> None:
    site = Site(4)
    job = started(site)
    steps(site, job)
    assert hung(site) == []
    other = started(site, 1)
    for step in range(10):
        tells(site, other, step, "")
        site.run(2)
    site.run(1700, step_s=10)
    assert [i.job.partition("@")[0] for i in hung(site)] == [f"sim/{job.job_id}"]
    site.run(200, step_s=10)
    assert {i.job.partition("@")[0] for i in hung(site)} == {f"sim/{job.job_id}", f"sim/{other.job_id}"}


def test_the_same_step_told_again_is_no_progress() -> None:
    site = Site(4)
    job = training(site)
    for _ in range(40):
        tells(site, job, 9)
        site.run(2)
    assert requeues(site) == 1


def test_a_silent_agent_makes_no_hang() -> None:
    site = Site(4)
    job = training(site)
    site.machine(job.nodes[0]).agent_up = False
    site.run(300, step_s=2)
    assert hung(site) == []
    site.machine(job.nodes[0]).agent_up = True
    site.run(50)
    assert hung(site) == [], "reports made meanwhile may still be in flight"
    assert requeues(site) == 0


def test_a_restarted_controller_listens_first() -> None:
    site = Site(4)
    job = training(site)
    site.run(50)
    site.start_controller()
    site.run(55)
    assert hung(site) == []
    site.run(20)
    assert (job.restarts, requeues(site)) == (1, 1)


def test_a_restart_of_the_controller_within_a_hang_does_nothing_twice() -> None:
    site = Site(4)
    job = training(site)
    stands(site, n2=STUCK)
    for _ in range(70):
        site.run(1)
        if orders(site, Verb.STACKS):
            break
    site.start_controller()
    site.run(120)
    assert (job.state, job.restarts, requeues(site)) == ("RUNNING", 1, 1)
    assert len(orders(site, Verb.STACKS)) == 3
    assert len(hung(site)) == 1


def test_a_jump_of_the_clock_hangs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(4)
    job = started(site)
    steps(site, job, count=3, every_s=200, step_ms=200_000)
    now = site.clock.now
    monkeypatch.setattr(site.clock, "now", lambda: now() + timedelta(hours=2))
    site.run(700, step_s=2)
    assert hung(site) == [], "five steps of 200 s have not passed since the jump"
    site.run(400, step_s=2)
    assert len(hung(site)) == 1


def test_a_fault_on_one_of_its_nodes_explains_it() -> None:
    site = Site(4)
    job = training(site)
    site.fault("n2", code="31", remedy=Remedy.NONE, severity=Severity.WARNING)
    site.run(120)
    assert [i.check for i in site.store.incidents()] == ["gpu.xid"]
    assert job.restarts == 0


def test_what_a_job_said_may_still_wait_for_its_agents_next_heartbeat() -> None:
    site = Site(3)
    job = training(site)
    site.run(55)
    world = site.loop.world
    assert world is not None

    def hangs(heard_before_s: float) -> bool:
        late = timedelta(seconds=heard_before_s)
        (mine,) = world.agents[job.nodes[0]]
        agents = {**world.agents, job.nodes[0]: (replace(mine, last_heard=mine.last_heard - late),)}
        later = replace(world, agents=agents, now=world.now + timedelta(seconds=8))
        found = quiet(later, job_of(site, job))
        assert found is not None
        return found.hangs(later.now)

    assert (hangs(-8.0), hangs(9.0)) == (True, False)


def test_a_job_whose_words_wait_on_a_node_is_not_taken_for_hung() -> None:
    site = Site(3)
    job = training(site)
    site.run(55)
    world = site.loop.world
    assert world is not None

    def hangs(wait_s: float) -> bool:
        (mine,) = world.agents[job.nodes[0]]
        later = world.now + timedelta(seconds=8)
        mine = replace(mine, last_heard=later, words_until=later - timedelta(seconds=wait_s))
        found = quiet(replace(world, agents={**world.agents, job.nodes[0]: (mine,)}, now=later), job_of(site, job))
        assert found is not None
        return found.hangs(later)

    assert (hangs(0.0), hangs(30.0)) == (True, False)


def test_how_long_words_wait_is_as_of_the_last_heartbeat() -> None:
    agents, at = AgentRegistry(), datetime(2026, 3, 1, 12, tzinfo=UTC)
    beat = Hello("n1", "i-1", "boot-1", interval_s=10.0)
    agents.heard(beat, at, 0.0)
    assert agents.views()["n1"][0].heard_until == at
    agents.heard(replace(beat, words_wait_s=40.0), at + timedelta(seconds=10), 10.0)
    agents.heard(Hello("n1", "i-1", "boot-1"), at + timedelta(seconds=15), 15.0)  # a report
    assert agents.views()["n1"][0].heard_until == at - timedelta(seconds=30)
    agents.heard(replace(beat, words_wait_s=0.0), at + timedelta(seconds=20), 20.0)
    assert agents.views()["n1"][0].heard_until == at + timedelta(seconds=20)


def test_a_job_that_goes_on_was_not_hung() -> None:
    site = Site(4, policy=policy(act="tell"))
    job = training(site)
    site.run(80)
    tells(site, job, 10)
    site.run(5)
    (incident,) = hung(site)
    assert (incident.state, incident.note) == (_S.CLOSED, "the job reports progress again")
    site.slurm.finish(job, "COMPLETED")
    site.run(60)
    assert site.agents.probes.pairs == []


def test_a_job_that_goes_on_before_its_stop_is_left_alone() -> None:
    site = Site(4)
    job = training(site)
    site.slurm.away = False

    def goes_on(intent: object, moment: str) -> None:
        if isinstance(getattr(intent, "action", None), Requeue) and moment == "started":
            site.slurm.away = True

    site.at_boundary = goes_on
    site.run(64, step_s=1)
    site.at_boundary = lambda _intent, _moment: None
    site.slurm.away = False
    assert job.state == "RUNNING"
    tells(site, job, 10)
    site.run(30)
    assert hung(site)[0].state is _S.CLOSED
    assert site.recovery(job.job_id).phase in (RecoveryPhase.GONE, RecoveryPhase.RESUMED, RecoveryPhase.RUNNING)


# What is done about it, by policy


def told_of(site: Site) -> list[str]:
    """Messages about a hang, one by one or several in one."""
    return [text for text, body in site.notices.bodies if "no progress" in text or "has reported no progress" in body]


@pytest.mark.slow
def test_tell_leaves_it_to_a_human_and_the_probe_waits_for_its_end() -> None:
    site = Site(4, policy=policy(act="tell"))
    job = training(site)
    stands(site)
    site.machine("n2").path_broken = True
    site.run(200, step_s=2)
    (incident,) = hung(site)
    assert (incident.check, incident.state, len(told_of(site))) == (HUNG, _S.WATCHING, 1)
    site.run(4000, step_s=20)
    assert (job.state, job.restarts, site.agents.probes.pairs, len(told_of(site))) == ("RUNNING", 0, [], 1)
    site.slurm.finish(job, "CANCELLED")
    site.run(60)
    assert [node for _, node, _ in site.slurm.drained] == ["n2"]
    assert len(told_of(site)) == 1


def test_a_job_that_did_not_opt_in_is_told_of_and_runs_on() -> None:
    site = Site(4)
    job = training(site, comment="")
    site.run(200, step_s=2)
    assert (job.state, job.restarts, len(told_of(site))) == ("RUNNING", 0, 1)
    assert sorted(orders(site, Verb.STACKS)) == ["n1", "n2", "n3"]


def test_observe_mode_records_and_does_nothing() -> None:
    site = Site(4, policy=replace(POLICY, mode=Mode.OBSERVE))
    job = training(site)
    site.run(200, step_s=2)
    assert (orders(site, Verb.STACKS), requeues(site), job.restarts) == ([], 0, 0)
    withheld = {i.kind for i in site.store.intents() if i.state is IntentState.WITHHELD}
    assert {"SendOrder", "Requeue"} <= withheld


def test_its_own_limit_counts_it_and_no_brake() -> None:
    site = Site(4, policy=replace(POLICY, brake=replace(POLICY.brake, stopped_jobs_60min=0, hang_stops_60min=0)))
    job = training(site)
    site.run(100)
    assert (job.restarts, requeues(site), site.book.brakes) == (0, 0, {})
    assert site.recovery(job.job_id).phase is RecoveryPhase.WAITING


def test_without_an_agents_answer_the_job_starts_again_all_the_same() -> None:
    site = Site(4)
    job = training(site)
    take = site.agents._take
    site.agents._take = lambda machine, order: (  # type: ignore[method-assign]
        None if isinstance(order.action, SendOrder) and order.action.verb is Verb.STACKS else take(machine, order)
    )
    site.run(62)
    assert requeues(site) == 0
    site.run(30)
    assert (job.restarts, requeues(site)) == (1, 1)
    assert "no stack could be read" in site.story(hung(site)[0].id)


def test_a_job_that_hangs_again_and_again_is_held() -> None:
    site = Site(4)
    job = training(site)
    for restart in range(3):
        site.registers(job)
        site.run(100)
        if restart < 2:
            assert job.restarts == restart + 1
            tells(site, job, 0, "init")
            steps(site, job)
    holds = [i for i in site.store.intents() if isinstance(i.action, HoldJob)]
    assert len(holds) == 1
    assert "3 failures with no checkpoint" in holds[0].reason
    assert job.held


# Elastic jobs


def groups(site: Site, count: int = 3, least: int | None = None) -> list[SimJob]:
    made = []
    for index in range(count):
        base = index < (least or count)
        comment = f"holdfast elastic={least or count}:{count}" + ("" if base else " of=100")
        words = {"comment": comment, "array_job_id": 100 if base else 200, "array_task_id": index}
        made.append(started(site, 1, **words))
    return made


def all_step(site: Site, jobs: list[SimJob], first: int, count: int, quorum: int = 1) -> None:
    for step in range(first, first + count):
        for job in jobs:
            tells(site, job, step, step_ms=900, quorum=quorum)
        site.run(2)


def test_of_an_elastic_job_only_the_group_that_hangs_is_stopped() -> None:
    site = Site(4)
    jobs = groups(site)
    all_step(site, jobs, 0, 40)
    stands(site, n2=STUCK)
    for _ in range(15):  # the others' collective has timed out on it: they wait for their rendezvous
        for job in (jobs[0], jobs[2]):
            tells(site, job, 39, "waiting")
        site.run(2)
    site.run(45)
    assert [job.restarts for job in jobs] == [0, 1, 0]
    assert [i.odd for i in hung(site)] == [("n2",)]
    assert jobs[1].nodes == ("n4",), "off the node that it hung on, until that is probed"


def test_of_groups_that_wait_for_each_other_the_odd_one_is_stopped() -> None:
    site = Site(4)
    jobs = groups(site)
    all_step(site, jobs, 0, 40)
    stands(site, n2=STUCK)
    site.run(75)
    assert [job.restarts for job in jobs] == [0, 1, 0]
    tells(site, jobs[0], 40)
    site.run(5)  # the report of the next one may be in flight
    tells(site, jobs[2], 40)
    site.run(50)
    assert [job.restarts for job in jobs] == [0, 1, 0]


def test_who_waited_for_a_group_that_hung_may_hang_itself_later() -> None:
    site = Site(8, policy=replace(POLICY, suspects=replace(POLICY.suspects, jobs_per_hour=1)))
    jobs = groups(site)
    all_step(site, jobs, 0, 40)
    for round_, odd in enumerate((1, 0, 2), 1):
        stands(site, **{jobs[odd].nodes[0]: STUCK})
        site.run(75)
        assert jobs[odd].restarts == 1, f"round {round_}: one job, whatever number of its groups is looked into"
        site.run(30)
        all_step(site, jobs, 40 * round_, 40, quorum=1 + round_)
    assert [job.restarts for job in jobs] == [1, 1, 1]
    other = training(site, 1)
    site.run(200)
    assert other.restarts == 0, "the one job of this hour was looked into"


def test_a_warm_spare_is_not_waited_for_and_the_node_of_the_odd_group_is_kept_off_it_and_probed() -> None:
    site = Site(6)
    jobs = groups(site)
    spare = started(site, 1, comment="holdfast elastic=3:3 of=100", array_job_id=200, array_task_id=3)
    all_step(site, jobs[:1], 0, 1)
    tells(site, spare, 0, "init")
    all_step(site, jobs, 1, 40)
    stands(site, n2=STUCK)
    site.run(75)
    assert [job.restarts for job in (*jobs, spare)] == [0, 1, 0, 0]
    assert [i.odd for i in hung(site)] == [(), ("n2",), ()]
    assert jobs[1].state == "RUNNING"
    assert jobs[1].nodes != ("n2",)
    assert {n for pair in site.agents.probes.pairs for n in pair} >= {"n2"}


def test_groups_of_which_none_stands_out_get_time_and_then_start_again() -> None:
    site = Site(8)
    jobs = groups(site)
    all_step(site, jobs, 0, 40)
    stands(site)
    site.run(110)
    assert [job.restarts for job in jobs] == [0, 0, 0]
    site.run(60)
    assert [job.restarts for job in jobs] == [1, 1, 1]


def test_the_survivor_of_two_waits_for_the_one_that_was_lost() -> None:
    site = Site(8)
    jobs = groups(site, 2)
    all_step(site, jobs, 0, 40)
    site.slurm.finish(jobs[1], "CANCELLED")
    site.run(400, step_s=2)
    assert (hung(site), jobs[0].restarts) == ([], 0), "below the least size no group steps"


def test_groups_that_wait_for_a_lost_one_are_given_time() -> None:
    site = Site(8)
    jobs = groups(site, 3, least=2)
    all_step(site, jobs, 0, 40)
    site.run(30)
    site.slurm.finish(jobs[2], "CANCELLED")
    site.run(45)
    assert hung(site) == []
    all_step(site, jobs[:2], 40, 30)
    assert (hung(site), [job.restarts for job in jobs[:2]]) == ([], [0, 0])


@pytest.mark.parametrize(("key", "value"), [("act", "reboot"), ("floor_s", -1), ("flor_s", 5)])
def test_a_setting_that_makes_no_sense_is_refused_in_one_line(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        read({"hangs": {key: value}}, Path("c.toml"))
    assert "hangs" in str(refused.value)
    assert "\n" not in str(refused.value)


# Whatever happens


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["run", "restart", "phase", "save", "silent"]), st.integers(1, 200)), max_size=8)
)
def test_who_never_told_of_a_step_is_never_stopped(moves: list[tuple[str, int]]) -> None:
    site = Site(3)
    job = started(site, 2)
    site.agents.state(site.machine(job.nodes[0]), "checkpoint.register", job.job_id, 0, path="/ckpt")
    doing: dict[str, Callable[[int], None]] = {
        "run": lambda n: site.run(n, step_s=5),
        "restart": lambda _n: site.start_controller(),
        "phase": lambda n: tells(site, job, n, ("waiting", "checkpoint", "leaving")[n % 3]),
        "save": lambda n: site.agents.state(site.machine(job.nodes[0]), "checkpoint.saved", job.job_id, 0, step=n),
        "silent": lambda n: setattr(site.machine(job.nodes[0]), "agent_up", bool(n % 2)),
    }
    for kind, number in moves:
        doing[kind](number)
    site.machine(job.nodes[0]).agent_up = True
    site.run(2500, step_s=25)
    assert (hung(site), job.restarts) == ([], 0)


def test_a_job_that_was_suspended_for_long_has_its_patience_again_once_it_is_resumed() -> None:
    site = Site(5)
    stands(site, n1=STUCK)
    job = training(site)
    site.slurm.operator_suspends(job)
    site.run(600, step_s=2)
    assert site.store.incidents() == ()
    site.slurm.operator_suspends(job, on=False)
    site.run(60)
    assert site.store.incidents() == ()
    steps(site, job)
    site.run(30)
    assert (job.state, job.restarts, site.store.incidents()) == ("RUNNING", 0, ())
