"""An actor that takes no step says why; with a controller of the previous release it works as before."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdfast.actor.idle import SAY_EVERY_S, SETTLES_S, Idle, IdleWatch, idle
from holdfast.controller.lease_holder import beside, claim
from holdfast.controller.wakeup import Alone
from holdfast.ports import Lease
from support.simulated.site import Site
from support.store_nouns import NOW, later

OURS, OTHER = "head/0123456789ab", "head/ba9876543210"


def test_beside_an_older_release_is_the_bare_name(tmp_path: Path) -> None:
    lock = tmp_path / "controller.lock"
    assert beside(lock, "head") is None, "none has run here"
    lock.touch()
    assert beside(lock, "head") == "head", "the older release leaves the file empty"
    held = Alone(lock)
    new = claim(held, "head").id
    assert beside(lock, "head") == new
    lock.write_text("boot\nnonsense\n")
    assert beside(lock, "head") is None
    lock.open("w").close()
    assert beside(lock, "head") == "head", "the older release again: it empties the file"
    held.release()


@pytest.mark.parametrize(
    ("lease", "controller", "why"),
    [
        (Lease(OURS, 3, later(5)), OURS, None),
        (Lease("head", 3, later(5)), "head", None),
        (Lease(OURS, 3, later(-1)), OURS, Idle.NO_LEASE),
        (None, OURS, Idle.NO_LEASE),
        (Lease(OTHER, 3, later(5)), OURS, Idle.ANOTHER_LEADS),
        (Lease("head", 3, later(5)), OURS, Idle.OLDER_LEADS),
        (Lease("head2", 3, later(5)), "head", Idle.OLDER_LEADS),
        (Lease(OURS, 3, later(5)), None, Idle.NO_CONTROLLER),
        (Lease(OURS, 3, later(5)), "head", Idle.NOT_NAMED),
        (None, None, Idle.NO_CONTROLLER),
    ],
)
def test_why_there_is_no_one_to_act_for(lease: Lease | None, controller: str | None, why: Idle | None) -> None:
    assert idle(lease, controller, NOW) is why


def test_it_is_said_after_a_while_and_then_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    watch = IdleWatch()
    caplog.set_level(logging.INFO)
    lease = Lease("head", 3, later(5))
    for second in range(int(SETTLES_S + 2 * SAY_EVERY_S) + 5):
        watch.look(Idle.OLDER_LEADS, lease, OURS, float(second))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert all("event=no_steps why=older_leads" in line and "restart holdfast-controller" in line for line in said)
    watch.look(None, lease, OURS, 500.0)
    watch.look(Idle.NO_LEASE, None, OURS, 501.0)
    assert len(caplog.records) == 3, "it had served in between"


def test_the_actor_says_that_no_controller_leads(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(2)
    site.actor.holder = lambda: "head/000000000000"
    for _ in range(40):
        site.clock.advance(1)
        site.act()
    said = [r.getMessage() for r in caplog.records if "event=no_steps" in r.getMessage()]
    assert len(said) == 1
