"""A store that takes no write, and a lease that ran out: the controller does not claim to lead, shows the problem, and is restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.controller import loop as loop_module
from holdfast.controller.loop import LEASE_TTL_S, ControlLoop
from holdfast.controller.timing.cycles import MOST_FAILED_CYCLES, SHOWN_AFTER
from holdfast.model.errors import LeaderFencedOff, Stale, Unavailable
from support.simulated import Site

FULL = "the store does not answer: database or disk is full"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles follow each other at once."""
    monkeypatch.setattr(loop_module, "TICK_S", 0.001)


def cycles(loop: ControlLoop, number: int) -> None:
    """Let the real loop end this many cycles."""
    ended = 0

    def counted(plain: Callable[..., None]) -> Callable[..., None]:
        def call(*given: object) -> None:
            nonlocal ended
            plain(*given)
            ended += 1
            loop.stopping = ended >= number

        return call

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop.cycles, "passed", counted(loop.cycles.passed))
        patched.setattr(loop.cycles, "ended", counted(loop.cycles.ended))
        loop.wake = asyncio.Event()
        asyncio.run(loop.run())
    loop.stopping = False


class Refusing:
    """The store's writes, while they fail; reads continue."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.error: Exception | None = error
        for name in ("take_lease", "commit", "operate", "finish_intent"):
            monkeypatch.setattr(site.store, name, self._refusing(getattr(site.store, name)))

    def _refusing(self, plain: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object) -> object:
            if self.error is not None:
                raise self.error
            return plain(*given)

        return call


def test_it_leads_only_while_its_lease_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(2)
    assert site.loop.leads
    Refusing(site, monkeypatch, Unavailable(FULL))
    cycles(site.loop, 1)
    assert site.loop.leads, "the lease has not run out yet"
    assert site.loop.shown_leader == site.loop.holder
    site.clock.advance(LEASE_TTL_S)
    assert not site.loop.leads
    cycles(site.loop, 1)
    assert not site.loop.leads
    assert site.loop.shown_leader is None, "it does not say of itself that another one leads"


def test_the_lease_counts_from_before_the_call_that_took_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's answer may come late: by then part of the lease is over."""
    site = Site(2)
    plain = site.store.take_lease

    def slow(*given: object) -> object:
        taken = plain(*given)  # type: ignore[arg-type]
        site.clock.advance(LEASE_TTL_S - 1)
        return taken

    monkeypatch.setattr(site.store, "take_lease", slow)
    cycles(site.loop, 1)
    site.clock.advance(1)
    assert not site.loop.leads


def test_who_is_fenced_off_does_not_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(2)

    def fenced(*_: object) -> None:
        raise LeaderFencedOff("another one leads")

    site.fault("n1")
    monkeypatch.setattr(site.store, "commit", fenced)
    cycles(site.loop, 1)
    assert not site.loop.leads


def test_a_store_that_takes_no_write_is_trouble_and_over_when_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(2)
    cycles(site.loop, 1)
    committed_s = site.loop.committed_s
    assert committed_s == site.clock.monotonic_s()
    writes = Refusing(site, monkeypatch, Unavailable(FULL))
    cycles(site.loop, 1)
    assert site.loop.trouble is None, "one failed cycle is none: the next comes within a second"
    cycles(site.loop, SHOWN_AFTER)
    assert FULL in (site.loop.trouble or "")
    assert site.loop.committed_s == committed_s
    writes.error = None
    site.clock.advance(3)
    cycles(site.loop, 1)
    assert site.loop.trouble is None
    assert site.loop.committed_s == site.clock.monotonic_s()


def test_an_operators_change_in_between_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(2)
    Refusing(site, monkeypatch, Stale("an operator changed incident x"))
    cycles(site.loop, 1)
    assert site.loop.trouble is None


def test_the_watchdog_is_not_fed_after_many_failed_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    site, fed = Site(2), list[int]()
    site.loop.beat = lambda: fed.append(1)
    writes = Refusing(site, monkeypatch, Unavailable(FULL))
    cycles(site.loop, MOST_FAILED_CYCLES + 5)
    assert len(fed) == MOST_FAILED_CYCLES - 1
    writes.error = None
    fed.clear()
    cycles(site.loop, 2)
    assert len(fed) == 2
