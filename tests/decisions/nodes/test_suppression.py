"""A suppression: an operator knows already, so findings lead to nothing for a while, and count again after it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.errors import Rejected
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.operators.suppression import LONGEST, Suppression, check_suppression
from holdfast.ports import Operation
from support.simulated import Site


def _suppress(site: Site, minutes: float, **pattern: str) -> None:
    now = site.clock.now()
    wanted = Suppression("0" * 12, now + timedelta(minutes=minutes), "ops", "known", now, **pattern)
    site.store.operate(Operation("suppress", "ops", wanted.id, "known", wanted), now)


@pytest.mark.parametrize("pattern", [{"node": "n1"}, {"node": "n?"}, {"check": "gpu.*", "node": "n1"}])
def test_what_is_suppressed_touches_nothing(pattern: dict[str, str]) -> None:
    site = Site(3)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    _suppress(site, 60, **pattern)
    site.fault("n1", sticky=True)
    site.run(30)
    assert not site.book.incidents
    assert (job.state, job.restarts, site.slurm.nodes["n1"].drain) == ("RUNNING", 0, False)


@pytest.mark.parametrize("pattern", [{"node": "n2"}, {"node": "n1", "check": "net.*"}, {"component": "GPU-elsewhere"}])
def test_anything_else_counts(pattern: dict[str, str]) -> None:
    site = Site(3)
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    _suppress(site, 60, **pattern)
    site.fault("n1")
    site.run(3)
    assert site.slurm.nodes["n1"].drain


def test_a_state_counts_when_the_suppression_is_over_an_event_of_that_time_does_not() -> None:
    site = Site(3)
    site.run(2)
    _suppress(site, 1, node="n?")
    site.fault("n1", sticky=True)
    site.fault("n2", sticky=False)
    site.run(30)
    assert not site.book.incidents
    site.run(45)
    assert site.incident("n1").state is not IncidentState.WATCHING
    assert not site.book.open_on("n2")


def test_what_was_open_before_goes_on() -> None:
    site = Site(3)
    site.run(2)
    site.fault("n1")
    site.run(2)
    _suppress(site, 600, node="n1")
    site.run(500, step_s=2)
    assert site.incident("n1").state is IncidentState.CLOSED


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"node": "*"}, "needs a node"),
        ({"minutes": -1.0}, "in the future"),
        ({"minutes": LONGEST / timedelta(minutes=1) + 1}, "90 days"),
    ],
)
def test_nonsense_is_refused(changed: dict[str, object], why: str) -> None:
    site = Site(1)
    now = site.clock.now()
    minutes = changed.get("minutes", 5.0)
    assert isinstance(minutes, float)
    wanted = Suppression("0" * 12, now + timedelta(minutes=minutes), "o", "r", now, node=str(changed.get("node", "n1")))
    with pytest.raises(Rejected, match=why):
        check_suppression(wanted)
