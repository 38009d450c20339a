"""The stages of a turn have names: in what a failing one raises, in the log where one is slow, and in the metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from holdfast.controller.timing.stage_times import StageTimes
from holdfast.decisions import turn as turns
from holdfast.decisions.turn import STAGES, TurnStage, turn
from holdfast.model.book import Change, World
from support.simulated.site import Site


def _world() -> World:
    site = Site(2)
    site.run(10)
    world = site.loop.world
    assert world is not None
    return world


def test_each_stage_is_run_once_by_its_name() -> None:
    seen: list[str] = []

    def around(name: str, run: Callable[[], Change]) -> Change:
        seen.append(name)
        return run()

    turn(_world(), lambda _: "inc", 1, around=around)
    assert tuple(seen) == STAGES
    assert len(set(STAGES)) == len(STAGES) == 23


def test_what_a_stage_raises_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: World) -> Change:
        raise ValueError("a record that cannot be")

    world = _world()
    monkeypatch.setattr(turns, "stages", lambda *_: (TurnStage("hangs", fails),))
    with pytest.raises(ValueError, match="cannot be") as raised:
        turn(world, lambda _: "inc", 1)
    assert raised.value.__notes__ == ["in the stage hangs of a turn"]


def test_time_is_summed_and_a_slow_stage_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    now = iter([0.0, 0.25, 10.0, 12.5, 20.0, 20.5])
    times = StageTimes(lambda: next(now))
    caplog.set_level(logging.WARNING)
    times.around("hangs", Change)
    times.around("decide", Change)
    with pytest.raises(KeyError):
        times.around("hangs", lambda: {"": Change()}["none"])  # also of one that fails
    assert (times.seen()["hangs"], times.seen()["decide"], times.seen()["identity"]) == (0.75, 2.5, 0.0)
    assert caplog.messages == ["event=slow_stage stage=decide took_s=2.5"]


def test_the_loop_measures_its_turns() -> None:
    site = Site(2)
    site.run(10)
    assert set(site.loop.stages.seen()) == set(STAGES)
