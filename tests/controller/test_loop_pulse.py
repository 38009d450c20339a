"""The control loop's pulse: one beat for each complete cycle, none from a stuck one, and no sign of life without a reading of Slurm."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast import unexpected
from holdfast.controller import loop as loop_module
from holdfast.controller.loop import ControlLoop
from holdfast.controller.quorum.quorum_watch import QuorumWatch
from support.simulated import Site

BRIEF_S = 5.0


@pytest.fixture(autouse=True)
def _nothing_failed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = unexpected.Unexpected()
    for name in ("failed", "passed", "standing", "counts"):
        monkeypatch.setattr(unexpected, name, getattr(fresh, name))


async def _until(loop: ControlLoop, done: Callable[[], bool]) -> None:
    running = asyncio.create_task(loop.run())
    try:
        async with asyncio.timeout(BRIEF_S):
            while not done() and not running.done():
                loop.wake.set()
                await asyncio.sleep(0.01)
    finally:
        loop.stopping = True
        loop.wake.set()
        await running


def test_each_complete_cycle_is_a_beat() -> None:
    loop, beats = Site(2).loop, list[float]()
    loop.beat = lambda: beats.append(loop.turned_at_s or -1.0)
    asyncio.run(_until(loop, lambda: len(beats) >= 3))
    assert len(beats) >= 3
    assert -1.0 not in beats


def test_a_cycle_that_hangs_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    site, beats = Site(2), list[int]()
    site.loop.beat = lambda: beats.append(1)
    stuck, go_on = threading.Event(), threading.Event()
    plain = site.loop.observer.world

    def hangs() -> object:
        stuck.set()
        go_on.wait(BRIEF_S)
        return plain()

    monkeypatch.setattr(site.loop.observer, "world", hangs)

    async def drill() -> None:
        running = asyncio.create_task(site.loop.run())
        await asyncio.to_thread(stuck.wait, BRIEF_S)
        before = len(beats)
        await asyncio.sleep(0.2)
        assert len(beats) == before == 0
        go_on.set()
        site.loop.stopping = True
        site.loop.wake.set()
        await running
        assert len(beats) == 1

    asyncio.run(drill())


def test_it_does_not_go_on_with_old_news_when_its_look_at_slurm_has_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(2)

    def breaks() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(site.loop.observer.slurm, "refresh", breaks)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(_until(site.loop, lambda: False))


def test_a_descriptor_that_is_missing_for_a_while_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever of the loop's tasks fails: the next attempt may not."""
    monkeypatch.setattr(loop_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(loop_module, "CALM_S", 0.05)
    monkeypatch.setattr(loop_module, "EVERY_S", 0.01)
    site, met, beats = Site(2), dict[str, int](), list[int]()
    loop = site.loop
    loop.beat = lambda: beats.append(1)

    def lacking(name: str) -> Callable[..., object]:
        def raises(*_args: object) -> object:
            met[name] = met.get(name, 0) + 1
            raise OSError(errno.EMFILE, "Too many open files")

        return raises

    monkeypatch.setattr(loop.observer.head, "refresh", lacking("head"))
    monkeypatch.setattr(loop.observer.slurm, "refresh", lacking("slurm"))
    loop.rooms = cast(QuorumWatch, SimpleNamespace(run=lacking("rooms"), look=lambda *_args: None))
    parts = ("head", "slurm", "rooms")
    asyncio.run(_until(loop, lambda: all(met.get(name, 0) >= 3 for name in parts)))
    assert all(met[name] >= 3 for name in parts)
    assert len(beats) >= 3
    assert set(unexpected.standing()) == {"slurm_reader", "head_reach", "rooms"}
    lines = [r for r in caplog.records if "event=unexpected_error " in r.getMessage()]
    assert len(lines) == 3, "each once, however often it is met"


def test_what_works_again_is_no_longer_shown_as_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(loop_module, "CALM_S", 0.05)
    site, answers = Site(2), [OSError(errno.EMFILE, "Too many open files")]
    plain = site.loop.observer.slurm.refresh

    def once() -> None:
        if answers:
            raise answers.pop()
        plain()

    monkeypatch.setattr(site.loop.observer.slurm, "refresh", once)
    asyncio.run(_until(site.loop, lambda: bool(unexpected.counts()) and not unexpected.standing()))
    assert (unexpected.standing(), unexpected.counts()) == ({}, {"slurm_reader": 1})
