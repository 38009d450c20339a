"""A step that expired before anything took it never started: it is planned again, and the incident continues as without the outage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.actor.actor import STALE_S
from holdfast.controller.keeping.expiring import LATE, MOST_UNFETCHED, UNFETCHED, expired
from holdfast.model.actions.action import Intent, IntentState, SendOrder, Verb
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.policies.policy import Mode
from holdfast_checks.result import Remedy
from support.simulated import Site

_S = IncidentState


def _order(site: Site, verb: Verb) -> Intent | None:
    return next(
        (
            i
            for i in site.store.intents()
            if isinstance(i.action, SendOrder) and i.action.verb is verb and not i.settled
        ),
        None,
    )


def _planned(site: Site, verb: Verb) -> Intent:
    """Run until an order of this kind is planned, and not fetched yet."""
    for _ in range(600):
        for _ in range(20):
            change = site.turn()
            if (found := _order(site, verb)) is not None:
                return found
            acted = site.act()
            if not acted and change is not None and change.empty:
                break
            site.agents.obey()
        site.clock.advance(1)
        site.world_moves()
    raise AssertionError(site.story())


def _controller_is_away(site: Site, seconds: float) -> None:
    """No process hands out orders, and none receives heartbeats."""
    _nobody_answers(site, cut=True)
    site.clock.advance(seconds)
    _nobody_answers(site, cut=False)
    site.start_controller()


def _nobody_answers(site: Site, *, cut: bool) -> None:
    for machine in site.machines.values():
        machine.cut_off = cut


def _paused(site: Site, seconds: float) -> None:
    site.operate("pause")
    site.run(seconds, step_s=5)
    site.operate("resume")


OUTAGES: dict[str, Callable[[Site, float], None]] = {"controller away": _controller_is_away, "paused": _paused}


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize(
    ("remedy", "verb"),
    [
        (Remedy.RESET_GPU, Verb.EVIDENCE),
        (Remedy.RESET_GPU, Verb.RESET_GPU),
        (Remedy.RESET_GPU, Verb.VALIDATE),
        (Remedy.RESET_GPU, Verb.CHECK),
    ],
)
def test_an_order_that_no_agent_fetched_before_an_outage_is_given_again(
    outage: str, remedy: Remedy, verb: Verb
) -> None:
    site = Site(2)
    site.fault("n1", remedy=remedy)
    order = _planned(site, verb)
    assert order.state is IntentState.PLANNED
    assert isinstance(order.action, SendOrder)
    OUTAGES[outage](site, order.action.expires_s + 60)
    site.run(400)
    incident = site.incident("n1")
    assert (incident.state, incident.repair_attempt) == (_S.CLOSED, 0), site.story()
    done = [i for i in site.store.intents() if i.step == order.step and i.state is IntentState.DONE]
    assert len(done) == 1, "it was carried out once, later"


def test_an_agent_that_reports_and_fetches_no_orders_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(2)
    monkeypatch.setattr(site.agents, "obey", lambda: None)
    site.fault("n1", remedy=Remedy.RESET_GPU)
    site.run(3000, step_s=5)
    resets = [i for i in site.store.intents() if isinstance(i.action, SendOrder) and i.action.verb is Verb.RESET_GPU]
    assert [i.outcome for i in resets] == [UNFETCHED.text] * MOST_UNFETCHED + [LATE.text]
    assert site.incident("n1").rung != "reset_gpu"


def test_an_order_that_an_agent_has_fetched_fails_when_no_answer_comes() -> None:
    site = Site(2)
    site.fault("n1", remedy=Remedy.RESET_GPU)
    order = _planned(site, Verb.RESET_GPU)
    assert isinstance(order.action, SendOrder)
    site.store.take_orders("n1", order.action.instance_id, order.action.boot_id, site.clock.now(), observes=False)
    site.clock.advance(order.action.expires_s + 11)
    world = site.loop.observer.world()
    assert expired(world, world.book.intents[order.key]) is LATE


def test_an_order_planned_before_observe_mode_is_no_attempt() -> None:
    site = Site(2)
    site.fault("n1", remedy=Remedy.RESET_GPU)
    order = _planned(site, Verb.VALIDATE)
    act = site.policy
    site.policy = replace(act, mode=Mode.OBSERVE)
    site.start_controller()
    site.run(60)
    assert site.incident("n1").state is _S.VALIDATING
    site.policy = act
    site.start_controller()
    site.run(400)
    assert (site.incident("n1").state, site.incident("n1").repair_attempt) == (_S.CLOSED, 0), site.story()
    assert order.key in {i.key for i in site.store.intents()}


def test_a_launch_that_no_actor_took_in_time_is_planned_anew_without_a_page() -> None:
    site = Site(2)
    site.fault("n1")
    for _ in range(60):
        site.turn()
        if any(i.kind == "Launch" for i in site.store.intents()):
            break
        site.act()
        site.agents.obey()
        site.clock.advance(1)
        site.world_moves()
    until_s = site.clock.elapsed_s + STALE_S + 60
    while site.clock.elapsed_s < until_s:  # no actor
        site.clock.advance(5)
        site.world_moves()
        site.turn()
    site.run(400)
    launches = [i for i in site.store.intents() if i.kind == "Launch"]
    assert [(i.state, i.is_attempt) for i in launches] == [(IntentState.FAILED, False), (IntentState.DONE, True)]
    assert launches[0].key != launches[1].key
    assert not [s for s in site.notices.sent if "no machine yet" in s]
    assert (site.incident("n1").state, site.incident("n1").repair_attempt) == (_S.CLOSED, 0), site.story()
