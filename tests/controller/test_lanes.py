"""The actor's lanes: what waits for a provider delays nothing in Slurm."""

from __future__ import annotations

from concurrent.futures import wait
from datetime import datetime
from threading import Event

from holdfast.controller.keeping.steps_untaken import takeable
from holdfast.controller.timing.lanes import LANES, PROVIDER, SLURM, WORKERS, pools
from holdfast.model.actions.action import Drain, Intent, IntentState, Launch
from holdfast.model.book import Change
from support.simulated.site import Site
from support.store_nouns import intent

BROKEN = 12
"""More machines than one lane has workers."""
PATIENCE_S = 60.0


def _launch(number: int, at: datetime, state: IntentState = IntentState.PLANNED) -> Intent:
    key, action = f"inc{number}/Launch/n{number}/1", Launch(f"n{number}", f"t{number}")
    return intent(key, action, incident_id=f"inc{number}", planned_at=at, state=state)


def test_launches_that_hang_delay_no_drain() -> None:
    """With one pool for all, twelve slow launches of a provider delayed a drain by 19 s."""
    site = Site(4)
    assert site.loop.lease is not None
    now, fence = site.clock.now(), site.loop.lease.fence
    begun, answer = Event(), Event()

    def slow(node: str, *, incident: str, token: str) -> None:
        begun.set()
        assert answer.wait(PATIENCE_S)
        raise AssertionError("the bench is over")

    site.provider.launch = slow  # type: ignore[assignment, method-assign]
    site.store.commit(Change(intents=tuple(_launch(n, now) for n in range(BROKEN))), fence)
    with pools() as workers:
        site.actor._hand_out(workers)
        assert begun.wait(PATIENCE_S)
        drain = intent(
            "inc99/Drain/n3/1", Drain("n3", "holdfast[0a1b2c3d4e5f]: bad"), incident_id="inc99", planned_at=now
        )
        site.store.commit(Change(intents=(drain,)), fence)
        site.actor._hand_out(workers)
        done = wait([site.actor._busy["inc99", SLURM]], timeout=PATIENCE_S / 4).done
        hung = [future for (_, lane), future in site.actor._busy.items() if lane == PROVIDER]
        assert not any(future.done() for future in hung)
        answer.set()
    assert done
    assert site.slurm.node("n3").draining


def test_each_lane_has_workers_of_its_own() -> None:
    with pools(1) as workers:
        assert set(workers) == set(LANES)
        held = Event()
        workers[PROVIDER].submit(held.wait, PATIENCE_S)
        assert workers[SLURM].submit(lambda: "done").result(PATIENCE_S) == "done"
        held.set()


def test_a_full_lane_of_the_provider_hides_no_drain_that_is_not_taken() -> None:
    site = Site(4)
    assert site.loop.lease is not None
    now = site.clock.now()
    launches = tuple(_launch(n, now, IntentState.STARTED) for n in range(WORKERS))
    waits = _launch(WORKERS, now)
    drain = intent("inc99/Drain/n3/1", incident_id="inc99", planned_at=now)
    site.store.commit(Change(intents=(*launches, waits, drain)), site.loop.lease.fence)
    assert takeable(site.loop.observer.world()) == (drain,)
