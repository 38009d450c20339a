"""The control loop's pulse: one beat for each complete cycle, none from one that is stuck, and no life without its look at Slurm."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from holdfast.controller.loop import ControlLoop
from support.simulated import Site

BRIEF_S = 5.0


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
