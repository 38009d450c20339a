"""A group that falls silent in the middle of a step, as after a power loss: the others continue when the controller orders it."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torchft.coordination", reason="the extra 'train' is not installed")

from bench.kit.rooms import Rooms

from holdfast.practice.elastic import steps
from holdfast_train.failure.breaking import CollectiveGuard
from support.watched_job import M, start_group, write_tokens

pytestmark = pytest.mark.slow

COLLECTIVE_TIMEOUT_S = 60


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    made = Rooms(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.mark.soak
@pytest.mark.timeout(500)
def test_a_silent_group_holds_nobody_up_once_it_is_evicted(rooms: Rooms) -> None:
    write_tokens(rooms.folder, random.Random(5))
    opened = rooms.ask(do="open", room="job-1", rules={"min_groups": 2, "max_groups": 3, "heartbeat_timeout_s": 60})
    patience = {"HOLDFAST_COLLECTIVE_TIMEOUT_S": str(COLLECTIVE_TIMEOUT_S)}
    groups = [start_group(rooms, opened, group, f"{group + 10}.0", **patience) for group in range(3)]
    try:
        until(lambda: any(a.present == 3 and a.step > 5 for a in steps.read(rooms.folder)))
        groups[2].send_signal(signal.SIGSTOP)  # its sockets stay open, its heartbeats stop: it looks like a slow one
        time.sleep(2)
        before = max(a.step for a in steps.read(rooms.folder))
        evicted_s = time.time()
        rooms.ask(do="evict", room="job-1", member="2~12.0", reason="node n3: no power")
        until(lambda: any(a.step > before + 3 and a.present == 2 for a in steps.read(rooms.folder)))
        attempts = steps.read(rooms.folder)
        first = min(a.at_s for a in attempts if a.at_s > evicted_s)
        assert first - evicted_s < COLLECTIVE_TIMEOUT_S / 4
        assert steps.problems(attempts, M) == []
    finally:
        for process in groups:
            process.kill()
            process.wait()


def until(what: object, limit_s: float = 240) -> None:
    end_s = time.monotonic() + limit_s
    while not what():  # type: ignore[operator]
        assert time.monotonic() < end_s
        time.sleep(0.05)


class Broken:
    """What a guard aborted."""

    def __init__(self, left: int | None) -> None:
        self.times, self.left = threading.Semaphore(0), left
        self.guard = CollectiveGuard(lambda: self.left, self.times.release)


@pytest.mark.parametrize("left", [None, 3, 4])
def test_nobody_is_gone_or_nobody_says_so(left: int | None) -> None:
    broken = Broken(left)
    broken.guard.begin(3)
    assert not broken.times.acquire(timeout=0.7)
    broken.guard.end()
    broken.guard.stop()


def test_it_is_broken_off_once_and_the_next_one_is_watched_again() -> None:
    broken = Broken(2)
    for _ in range(2):
        broken.guard.begin(3)
        assert broken.times.acquire(timeout=10)
        broken.guard.end()
    assert not broken.times.acquire(timeout=0.5)
    broken.guard.stop()


def test_a_collective_that_takes_its_usual_time_is_nobodys_business() -> None:
    asked = threading.Semaphore(0)

    def left() -> int:
        asked.release()
        return 1

    guard = CollectiveGuard(left, lambda: None)
    for _ in range(20):
        guard.begin(3)
        guard.end()
    assert not asked.acquire(timeout=0.5)
    guard.stop()
