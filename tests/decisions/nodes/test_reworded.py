"""No decision reads a text: with every text in the store reworded between the cycles, each step is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.actions.action import IntentState, Requeue
from holdfast.model.agents.answers import REFUSED, Refusal
from holdfast.model.agents.report import OrderOutcome
from holdfast.model.book import Brake, BrakeKind, Change
from holdfast.model.incidents.incident import IncidentState
from holdfast_checks.result import Remedy
from support.simulated import Machine, Site
from support.simulated.provider import FULL
from support.simulated.reworded import Reword, RewordedSite, another_sentence, decided, plain_words
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

Make = Callable[..., Site]
IN_PLACE = replace(FULL, launch_first=False, replace_in_place=True)


def _running(site: Site, count: int, size: int = 1, comment: str = "holdfast") -> list[SimJob]:
    jobs = [site.slurm.submit(size, comment=comment, exclusive=True) for _ in range(count)]
    site.run(2)
    assert {j.state for j in jobs} == {"RUNNING"}
    return jobs


def _without_the_actor(site: Site, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> None:
    """The actor is away for this long: steps planned meanwhile are not started."""
    site.act = lambda: False  # type: ignore[method-assign]
    meanwhile()
    site.run(seconds)
    del site.act


def _kinds(site: Site, state: IntentState) -> list[str]:
    return [i.kind for i in site.store.intents(limit=10_000) if i.state is state]


def a_brake_holds_and_jobs_that_failed_are_recovered(make: Make) -> Site:
    site = make(16)
    jobs = _running(site, 12)
    for n in range(8):
        site.fault(f"n{n + 1}")
    site.run(5)
    assert list(site.book.brakes) == [BrakeKind.DRAINS]
    site.slurm.finish(jobs[0], "FAILED")
    site.run(20)
    assert (jobs[0].restarts, jobs[1].restarts) == (1, 0)
    site.operate("release_brake", "drains")
    site.run(60)
    assert jobs[1].restarts == 1
    return site


def stops_are_counted_and_recoveries_of_failed_jobs_are_not(make: Make) -> Site:
    brake = replace(POLICY.brake, stopped_jobs_60min=2, drains_10min=20, drains_60min=20)
    site = make(16, policy=replace(POLICY, brake=brake))
    jobs = _running(site, 8)
    for n, (job, failed) in enumerate(zip(jobs, (True, False, True, False, True), strict=False)):
        if failed:
            site.slurm.finish(job, "FAILED")
        site.fault(f"n{n + 1}")
        site.run(20)
    assert [j.restarts for j in jobs[:5]] == [1] * 5
    assert not site.book.brakes, "two stops in an hour are allowed, and no more were"
    for n in (5, 6):
        site.fault(f"n{n + 1}")
        site.run(20)
    assert list(site.book.brakes) == [BrakeKind.JOB_STOPS]
    return site


def a_brake_trips_before_the_actor_begins(make: Make) -> Site:
    site = make(8)
    failed, stopped = _running(site, 2)

    def faults() -> None:
        site.slurm.finish(failed, "FAILED")
        site.fault("n1")
        site.fault("n2")
        site.run(1)
        lease = site.store.lease()
        assert lease is not None
        tripped = Brake(BrakeKind.DRAINS, site.clock.now() + timedelta(seconds=1), "drill")
        site.store.commit(Change(brakes=(tripped,)), lease.fence)

    _without_the_actor(site, 3, faults)
    site.run(20)
    asked = {i.action.job.job_id: i.state for i in site.store.intents() if isinstance(i.action, Requeue)}
    assert (failed.restarts, stopped.restarts) == (1, 0)
    assert asked[failed.job_id] is IntentState.DONE
    assert asked[stopped.job_id] is not IntentState.DONE
    site.operate("release_brake", "drains")
    site.run(60)
    assert stopped.restarts == 1
    return site


def a_dead_node_is_heard_again_before_its_down(make: Make) -> Site:
    site = make(4, can=replace(FULL, status=False))
    (job,) = _running(site, 1, size=2)
    detail = {"fenced": True}
    site.agents.state(site.machine("n1"), "checkpoint.register", job.job_id, 0, path="/ckpt", detail=detail)
    site.run(2)
    site.machine("n1").powered = False

    def comes_back() -> None:
        site.run(60)
        assert site.incident("n1").dead
        site.machine("n1").powered = True

    _without_the_actor(site, 5, comes_back)
    site.run(60)
    assert "SetDown" not in _kinds(site, IntentState.DONE)
    assert site.incident("n1").state is IncidentState.CLOSED
    return site


def a_dead_node_is_set_down(make: Make) -> Site:
    site = make(4)
    jobs = _running(site, 1, size=2)
    site.machine("n1").powered = False
    site.run(400, step_s=5)
    assert jobs[0].restarts == 1
    return site


def an_operator_ends_an_incident_before_its_steps_begin(make: Make) -> Site:
    site = make(4)
    _running(site, 1)

    def faults() -> None:
        for n, verb in ((1, "acknowledge"), (2, "close")):
            site.fault(f"n{n}")
            site.run(2)
            site.operate(verb, site.incident(f"n{n}").id)

    _without_the_actor(site, 2, faults)
    site.run(20)
    assert _kinds(site, IntentState.REFUSED).count("Drain") == 2
    return site


def an_agent_does_not_know_an_order(make: Make) -> Site:
    site = make(2)

    def old(_machine: Machine, order: Any) -> OrderOutcome:
        word = {REFUSED: Refusal.UNSUPPORTED_VERB.value}
        return OrderOutcome(order.key, False, "refused: unsupported verb 'run_checks'", site.clock.now(), word)

    site.agents.probes.check = old  # type: ignore[method-assign, assignment]
    site.fault("n1")
    site.run(400, step_s=2)
    assert site.incident("n1").state is IncidentState.CLOSED
    return site


def a_deep_check_fails(make: Make) -> Site:
    site = make(2, can=IN_PLACE)
    site.fault("n1", remedy=Remedy.REBOOT)
    site.machine("n1").deep_ok = False
    site.run(900, step_s=2)
    assert site.incident("n1").repair_attempt
    return site


def most_nodes_have_one_cause(make: Make) -> Site:
    site = make(8)
    (job,) = _running(site, 1, size=4)
    for name in ("n1", "n2", "n3"):
        site.machine(name).path_broken = True
    site.slurm.finish(job, "FAILED")
    site.run(90)
    assert not site.slurm.drained
    assert len(site.notices.sent) == 1
    return site


def one_node_is_convicted(make: Make) -> Site:
    site = make(6, spares=("n6",))
    (job,) = _running(site, 1, size=4)
    site.machine("n3").path_broken = True
    site.slurm.finish(job, "FAILED")
    site.run(60)
    assert (job.restarts, job.excluded) == (1, ("n3",))
    return site


def the_ladder_climbs_to_a_human(make: Make) -> Site:
    site = make(2, can=IN_PLACE)
    site.provider.same_hardware = True
    site.fault("n1")
    site.run(900)
    assert site.incident("n1").state is IncidentState.AWAITING_HUMAN
    return site


def nothing_is_done_while_paused(make: Make) -> Site:
    site = make(4)
    _running(site, 2)
    site.operate("pause")
    site.fault("n1")
    site.run(20)
    assert not site.slurm.drained
    site.operate("resume")
    site.run(400, step_s=5)
    assert site.incident("n1").state is IncidentState.CLOSED
    return site


SCENARIOS = (
    a_brake_holds_and_jobs_that_failed_are_recovered,
    stops_are_counted_and_recoveries_of_failed_jobs_are_not,
    a_brake_trips_before_the_actor_begins,
    a_dead_node_is_heard_again_before_its_down,
    a_dead_node_is_set_down,
    an_operator_ends_an_incident_before_its_steps_begin,
    an_agent_does_not_know_an_order,
    a_deep_check_fails,
    most_nodes_have_one_cause,
    one_node_is_convicted,
    the_ladder_climbs_to_a_human,
    nothing_is_done_while_paused,
)


@pytest.mark.parametrize("words", [another_sentence, pytest.param(plain_words, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_the_same_is_decided_whatever_the_words(scenario: Callable[[Make], Site], words: Reword) -> None:
    def reworded(nodes: int, **options: Any) -> Site:
        return RewordedSite(nodes, words=words, **options)

    told, other = decided(scenario(Site)), decided(scenario(reworded))
    for what, mine in told.items():
        assert other[what] == mine, what
