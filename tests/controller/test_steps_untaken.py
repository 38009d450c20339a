"""The controller notices that planned steps are not taken: an actor that is dead, hangs, or is of another release."""

from __future__ import annotations

import logging

import pytest

from holdfast.controller.keeping.steps_untaken import STARTED_S, UNTAKEN_S, UntakenWatch
from holdfast.model.book import Brake, BrakeKind, Change
from holdfast.model.policies.policy import Mode
from support.simulated.site import Site


def _look(site: Site, watch: UntakenWatch, seconds: int) -> None:
    """The loop turns once a second, and no actor polls."""
    for _ in range(seconds):
        site.clock.advance(1)
        site.world_moves()
        site.turn()
        assert site.loop.world is not None
        watch.look(site.loop.world, site.clock.monotonic_s())


@pytest.fixture
def faulty() -> Site:
    """A fault, and its first steps planned."""
    site = Site(3)
    site.fault("n1")
    site.turn()
    assert site.store.due_intents()
    return site


def test_a_dead_actor_is_noticed_and_its_return_too(faulty: Site, caplog: pytest.LogCaptureFixture) -> None:
    watch = UntakenWatch()
    _look(faulty, watch, int(UNTAKEN_S))
    assert watch.problem() is None
    _look(faulty, watch, 3)
    problem = watch.problem()
    assert problem is not None
    assert "no actor takes steps" in problem
    assert "Drain n1" in problem
    assert "restart holdfast-actor with this release" in problem
    assert watch.waits_s >= UNTAKEN_S
    _look(faulty, watch, 100)
    said = [r for r in caplog.records if "event=steps_untaken" in r.getMessage()]
    assert [r.levelno for r in said] == [logging.ERROR] * 2, "at once, and once a minute"
    faulty.react()
    _look(faulty, watch, 1)
    assert watch.problem() is None
    assert watch.waits_s == 0


def test_an_actor_that_works_is_never_accused() -> None:
    site = Site(4, spares=("n4",))
    watch = UntakenWatch()
    site.slurm.submit(2)
    site.fault("n1")
    for _ in range(400):
        site.run(1)
        assert site.loop.world is not None
        watch.look(site.loop.world, site.clock.monotonic_s())
        assert watch.waits_s < UNTAKEN_S


def test_what_is_held_back_is_not_untaken(faulty: Site) -> None:
    watch = UntakenWatch()
    faulty.operate("pause")
    _look(faulty, watch, 100)
    assert watch.problem() is None
    faulty.operate("resume")
    _look(faulty, watch, 5)
    assert watch.problem() is None, "the time of the pause does not count"
    _look(faulty, watch, int(UNTAKEN_S))
    assert watch.problem() is not None


def test_observe_mode_has_no_steps(faulty: Site) -> None:
    from dataclasses import replace  # noqa: PLC0415

    watch = UntakenWatch()
    faulty.loop.observer.policy = replace(faulty.policy, mode=Mode.OBSERVE)
    _look(faulty, watch, 100)
    assert watch.problem() is None


def test_after_a_gap_time_begins_again(faulty: Site) -> None:
    """The controller did not lead, or could not reach its store: the actor could take nothing either."""
    watch = UntakenWatch()
    _look(faulty, watch, 5)
    faulty.clock.advance(300)
    _look(faulty, watch, 2)
    assert watch.problem() is None
    watch.forget()
    assert watch.waits_s == 0


def test_a_step_that_its_actor_left_in_the_middle_is_noticed(faulty: Site) -> None:
    """What waits behind it in its lane would wait for ever."""
    head = faulty.store.due_intents()[0]
    lease = faulty.loop.lease
    assert lease is not None
    for intent in faulty.store.due_intents():
        faulty.store.start_intent(intent.key, lease.fence, faulty.clock.now())
    watch = UntakenWatch()
    _look(faulty, watch, int(STARTED_S) - 5)
    assert watch.problem() is None
    _look(faulty, watch, 10)
    assert head.kind in (watch.problem() or "")


@pytest.mark.parametrize(("node_set", "nodes", "told"), [("", "", False), ("a", "n1", False), ("b", "n2", True)])
def test_only_a_brake_that_holds_the_step_leaves_it_out(faulty: Site, node_set: str, nodes: str, told: bool) -> None:
    """A brake of any other set hid a dead actor for as long as it held."""
    lease = faulty.loop.lease
    assert lease is not None
    for intent in faulty.store.due_intents():
        faulty.store.start_intent(intent.key, lease.fence, faulty.clock.now())
    brake = Brake(BrakeKind.DRAINS, faulty.clock.now(), "many", None, node_set, nodes)
    faulty.store.commit(Change(brakes=(brake,)), lease.fence)
    watch = UntakenWatch()
    _look(faulty, watch, int(STARTED_S) + 5)
    assert (watch.problem() is not None) is told
