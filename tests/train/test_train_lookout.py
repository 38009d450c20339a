"""A group evicted while its loop hangs ends on its own; a loop that sends its own requests is left alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast_train.errors import Refused
from holdfast_train.failure.lookout import Lookout

EVICTED = Refused("Holdfast's rendezvous job-1: 0~9.0 cannot come back: evicted (gpu.xid 79)", 85)


class World:
    """The service's answer, and how the process was ended."""

    def __init__(self) -> None:
        self.answer: Refused | None = None
        self.asked, self.ended = threading.Event(), threading.Event()
        self.status: int | None = None

    def refusal(self) -> Refused | None:
        self.asked.set()
        return self.answer

    def end(self, status: int) -> None:
        self.status = status
        self.ended.set()


@contextmanager
def looking(world: World) -> Iterator[Lookout]:
    lookout = Lookout(world.refusal, world.end, look_s=0.05)
    try:
        yield lookout
    finally:
        lookout.stop()


def test_a_loop_that_hangs_is_ended_once_its_group_is_evicted(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    with looking(world) as lookout:
        lookout.busy()
        assert world.asked.wait(10)
        assert not world.ended.is_set()
        world.answer = EVICTED
        assert world.ended.wait(10)
    assert world.status == 85
    assert capsys.readouterr().err == f"holdfast_train: {EVICTED}\n"


@pytest.mark.parametrize("answer", [None, Refused("the token is not this job's"), Refused("the training is done", 0)])
def test_nothing_but_an_eviction_ends_it(answer: Refused | None) -> None:
    world = World()
    world.answer = answer
    with looking(world) as lookout:
        lookout.busy()
        for _ in range(3):
            world.asked.clear()
            assert world.asked.wait(10)
        assert not world.ended.is_set()


def test_a_loop_that_has_come_back_speaks_for_itself() -> None:
    world = World()
    world.answer = EVICTED
    with looking(world) as lookout:
        for _ in range(20):
            lookout.busy()
            lookout.asking()
        assert not world.ended.wait(0.3)
        assert not world.asked.is_set()
