"""A silent fabric under a job: with a job that reports no step it is a hang; alone it is a notice to an operator; where too little
is known it is nothing.

The controller's real loop and actor over simulated Slurm and agents; the clock is simulated, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.common.node_incidents import HUNG
from holdfast.decisions.probing.suspects import UNEXPLAINED
from holdfast.model.actions.action import IntentState, Notify, SendOrder, Verb
from holdfast.model.incidents.incident import Incident, IncidentState
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob


def site_of(nodes: int = 4, **changed: Any) -> Site:
    return Site(nodes, policy=replace(POLICY, hangs=replace(POLICY.hangs, **changed)))


def started(site: Site, nodes: int = 3, **changed: object) -> SimJob:
    job = site.slurm.submit(nodes, **{"comment": "holdfast", "exclusive": True, **changed})
    site.run(2)
    assert job.state == "RUNNING"
    return job


def carries(site: Site, job: SimJob) -> None:
    """Bytes on all of its nodes, now."""
    for node in job.nodes:
        site.machine(node).fabric_moved_s = site.clock.elapsed_s


def tells(site: Site, job: SimJob, step: int, phase: str = "") -> None:
    detail = {"phase": phase} if phase else {}
    site.agents.state(site.machine(job.nodes[0]), "progress", job.job_id, job.restarts, step=step, detail=detail)


def steps(site: Site, job: SimJob, count: int = 10, every_s: float = 10, first: int = 0) -> None:
    """Plain ones: without a phase."""
    for step in range(first, first + count):
        tells(site, job, step)
        carries(site, job)
        site.run(every_s)


def runs(site: Site, job: SimJob, seconds: float = 200) -> None:
    """It reports nothing, and uses the fabric."""
    for _ in range(int(seconds // 10)):
        carries(site, job)
        site.run(10)


def hung(site: Site) -> list[Incident]:
    return [i for i in site.store.incidents() if i.check in (HUNG, UNEXPLAINED)]


def said(site: Site) -> list[str]:
    return [text for text in site.notices.sent if "silent since" in text]


def about(site: Site) -> set[int]:
    """The jobs that hang."""
    return {int(i.job.rpartition("/")[2].partition("@")[0]) for i in hung(site)}


def stacks_of(site: Site) -> list[str]:
    return sorted(
        i.action.node
        for i in site.store.intents()
        if isinstance(i.action, SendOrder) and i.action.verb is Verb.STACKS and i.state is IntentState.DONE
    )


# No step and no traffic


def test_a_job_without_phases_hangs_after_ten_minutes_instead_of_thirty() -> None:
    site = site_of()
    job = started(site)
    steps(site, job)
    site.run(580, step_s=10)
    assert hung(site) == []
    site.run(60, step_s=10)
    (incident,) = hung(site)
    assert "after step 9, the fabric of its 3 nodes has been silent since" in incident.headline
    site.run(60)
    assert (job.restarts, site.notices.sent) == (1, [])


def bytes_on_one_node(site: Site, job: SimJob) -> None:
    site.machine(job.nodes[1]).fabric_moved_s = site.clock.elapsed_s


def no_device_on_one_node(site: Site, job: SimJob) -> None:
    """Or counters that cannot be read, appeared, disappeared, or were reset: the agent knows nothing about those."""
    site.machine(job.nodes[2]).fabric_moved_s = None


def a_phase_that_may_last(site: Site, job: SimJob) -> None:
    tells(site, job, 10, "evaluating")


def the_agent_of_one_node_falls_silent(site: Site, job: SimJob) -> None:
    site.machine(job.nodes[1]).agent_up = False


def a_steps_word(site: Site, job: SimJob) -> None:
    tells(site, job, 11)


def nothing_on_one_node_since_the_start(site: Site, job: SimJob) -> None:
    site.machine(job.nodes[1]).fabric_moved_s = 3.0


@pytest.mark.parametrize(
    "then",
    [
        bytes_on_one_node,
        no_device_on_one_node,
        a_phase_that_may_last,
        the_agent_of_one_node_falls_silent,
        a_steps_word,
        nothing_on_one_node_since_the_start,
    ],
)
def test_where_not_all_of_it_agrees_nothing_happens_early(then: Callable[[Site, SimJob], None]) -> None:
    site = site_of()
    job = started(site)
    steps(site, job)
    site.run(300, step_s=10)
    then(site, job)
    site.run(500, step_s=10)
    about_the_job = [
        each for each in site.notices.sent if each != "n2 does not report"
    ]  # of the node, after five minutes
    assert (hung(site), job.restarts, about_the_job) == ([], 0, [])


@pytest.mark.parametrize("phase", ["init", "heal", "checkpoint"])
def test_a_phase_keeps_its_own_time(phase: str) -> None:
    site = site_of()
    job = started(site)
    steps(site, job)
    tells(site, job, 10, phase)
    site.run(1700, step_s=10)
    assert hung(site) == []


def test_without_the_signal_it_takes_half_an_hour() -> None:
    site = site_of(silent_s=0.0)
    job = started(site)
    steps(site, job)
    site.run(1700, step_s=10)
    assert hung(site) == []
    site.run(200, step_s=10)
    assert "fabric" not in hung(site)[0].headline


def test_silence_never_makes_the_wait_longer() -> None:
    site = site_of()
    job = started(site)
    steps(site, job)
    for _ in range(160):  # it continues to chatter, without a step
        carries(site, job)
        site.run(10, step_s=10)
    site.run(250, step_s=10)
    assert len(hung(site)) == 1


def test_who_paused_for_long_before_may_do_so_again() -> None:
    site = site_of()
    job = started(site)
    steps(site, job, count=3, every_s=300)
    site.run(1000, step_s=10)
    assert hung(site) == [], "five of its longest pauses are 25 minutes"
    site.run(600, step_s=10)
    assert len(hung(site)) == 1


def test_one_node_alone_has_no_fabric_to_fall_silent() -> None:
    site = site_of()
    job = started(site, 1)
    steps(site, job)
    site.run(1000, step_s=10)
    assert hung(site) == []


def test_bytes_that_may_be_another_jobs_say_nothing() -> None:
    site = site_of()
    job, other = started(site), started(site, 1)
    other.nodes = job.nodes[:1]
    runs(site, job)
    site.run(1000, step_s=10)
    assert hung(site) == []
    site.slurm.finish(other, "COMPLETED")
    site.run(30)
    assert len(hung(site)) == 1


def test_a_restarted_controller_listens_first() -> None:
    site = site_of()
    job = started(site)
    steps(site, job)
    site.run(550, step_s=10)
    site.start_controller()
    site.run(560, step_s=10)
    assert hung(site) == []
    site.run(120, step_s=10)
    assert len(hung(site)) == 1


# Silence alone


def test_of_a_job_that_never_told_of_anything_a_human_is_told_and_nothing_is_done() -> None:
    site = site_of()
    job = started(site)
    runs(site, job)
    site.run(560, step_s=10)
    assert hung(site) == []
    site.run(100, step_s=5)
    (incident,) = hung(site)
    assert "has never reported progress, the fabric of its 3 nodes has been silent since" in incident.headline
    assert stacks_of(site) == ["n1", "n2", "n3"]
    assert len(said(site)) == 1
    (told,) = [i for i in site.store.intents() if isinstance(i.action, Notify)]
    assert "no reason to restart a job" in told.reason
    site.run(4000, step_s=20)
    assert (job.state, job.restarts, len(said(site)), len(hung(site))) == ("RUNNING", 0, 1, 1)
    assert incident.state is IncidentState.WATCHING


def test_traffic_ends_its_incident_and_it_is_told_of_once() -> None:
    site = site_of()
    job = started(site)
    runs(site, job)
    site.run(700, step_s=10)
    runs(site, job, 30)
    (incident,) = hung(site)
    assert (incident.state, incident.note) == (IncidentState.CLOSED, "its fabric carries traffic again")
    site.run(1500, step_s=10)
    assert (len(hung(site)), len(said(site)), job.restarts) == (1, 1, 0)


def test_a_job_that_has_not_used_the_fabric_is_not_silent() -> None:
    site = site_of()
    for node in ("n1", "n2", "n3"):  # the job before it has
        site.machine(node).fabric_moved_s = 0.0
    job = started(site)
    site.run(1500, step_s=10)
    assert (job.nodes, hung(site)) == (("n1", "n2", "n3"), [])


def test_bytes_of_the_job_before_are_not_its_own() -> None:
    site = site_of()
    first = started(site)
    runs(site, first, 1000)
    site.slurm.finish(first, "COMPLETED")
    second = started(site)
    assert second.nodes == first.nodes
    carries(site, second)  # what an agent's reading of half a minute ago may still show
    site.run(2000, step_s=10)
    assert hung(site) == []


def test_groups_of_elastic_jobs_have_a_rule_of_their_own() -> None:
    site = site_of(6)
    words: dict[str, Any] = {"comment": "holdfast elastic=2:2", "array_job_id": 100}
    jobs = [started(site, array_task_id=index, **words) for index in range(2)]
    for _ in range(20):
        for job in jobs:
            carries(site, job)
        site.run(10)
    site.run(1000, step_s=10)
    assert hung(site) == []


def test_those_that_only_fell_silent_leave_half_of_the_hour_to_those_that_told() -> None:
    site = Site(14, policy=replace(POLICY, suspects=replace(POLICY.suspects, jobs_per_hour=4)))
    mute = [started(site, 2) for _ in range(5)]
    telling = [started(site, 2) for _ in range(2)]
    for step in range(100):
        for job in (*(mute if step < 20 else ()), *telling):
            carries(site, job)
        for job in telling:
            tells(site, job, step)
        site.run(10, step_s=10)
    assert len(about(site)) == 2
    site.run(700, step_s=10)
    assert len(about(site)) == 4
    assert {job.job_id for job in telling} <= about(site)


# Whatever happens


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["run", "bytes", "unknown", "restart", "agent"]), st.integers(1, 120)), max_size=10
    )
)
def test_silence_alone_never_restarts_a_job(moves: list[tuple[str, int]]) -> None:
    site = site_of()
    job = started(site)
    runs(site, job, 100)

    def one(number: int) -> Any:
        return site.machine(job.nodes[number % 3])

    doing: dict[str, Callable[[int], None]] = {
        "run": lambda n: site.run(n * 10, step_s=10),
        "bytes": lambda n: setattr(one(n), "fabric_moved_s", site.clock.elapsed_s),
        "unknown": lambda n: setattr(one(n), "fabric_moved_s", None),
        "restart": lambda _n: site.start_controller(),
        "agent": lambda n: setattr(one(n), "agent_up", bool(n % 2)),
    }
    for kind, number in moves:
        doing[kind](number)
    for node in job.nodes:
        site.machine(node).agent_up = True
    site.run(1500, step_s=10)
    assert job.restarts == 0
    assert len(said(site)) <= 1
