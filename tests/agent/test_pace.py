"""How often an agent beats: its own setting wins, the controller's interval otherwise, and it keeps the interval that it reports."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.agent.sending.pace import UNTOLD_S, HeartbeatPace
from holdfast.agent.timing.schedule import Schedule
from support.agent_bench import FakeController, Folder, running


def beat(pace: HeartbeatPace, answer: dict[str, Any]) -> float:
    """One heartbeat and its answer; returns the reported interval."""
    said_s = pace.said_s
    pace.answered({"interval_s": said_s}, answer)
    return said_s


def test_the_controllers_interval_is_taken_over() -> None:
    changes: list[float] = []
    pace = HeartbeatPace(None, lambda: changes.append(pace.every_s))
    assert (pace.said_s, pace.every_s) == (UNTOLD_S, UNTOLD_S)
    beat(pace, {"leader": True, "interval_s": 4.0})
    assert (pace.said_s, pace.every_s, changes) == (4.0, 4.0, [4.0])


def test_a_longer_interval_counts_only_once_the_controller_has_heard_of_it() -> None:
    pace = HeartbeatPace(None)
    beat(pace, {"leader": True, "interval_s": 4.0})
    beat(pace, {"leader": True, "interval_s": 9.0})
    assert (pace.said_s, pace.every_s) == (9.0, 4.0), "the controller believes 4 s until a heartbeat says 9"
    beat(pace, {"leader": False})
    assert pace.every_s == 4.0, "the leader has not received it"
    beat(pace, {"leader": True, "interval_s": 9.0})
    assert (pace.said_s, pace.every_s) == (9.0, 9.0)


def test_a_setting_of_its_own_wins() -> None:
    pace = HeartbeatPace(7.0)
    assert beat(pace, {"leader": True, "interval_s": 4.0}) == 7.0
    assert (pace.said_s, pace.every_s) == (7.0, 7.0)


@pytest.mark.parametrize(
    "answer",
    [
        {"leader": True},
        {"leader": False, "interval_s": 20.0},
        {"interval_s": 20.0},
        {"leader": True, "interval_s": 0.01},
        {"leader": True, "interval_s": 3600},
        {"leader": True, "interval_s": "4"},
        {"leader": True, "interval_s": True},
        {"leader": True, "interval_s": None},
        {"leader": True, "interval_s": float("nan")},
    ],
)
def test_an_older_controller_a_standby_and_nonsense_change_nothing(answer: dict[str, Any]) -> None:
    pace = HeartbeatPace(None)
    beat(pace, {"leader": True, "interval_s": 4.0})
    beat(pace, answer)
    beat(pace, answer)
    assert (pace.said_s, pace.every_s) == (4.0, 4.0)


def test_a_task_with_another_interval_comes_no_later_than_it_would_have() -> None:
    schedule = Schedule({"heartbeat": 10.0}, 0.0)
    assert schedule.due(0.0) == ("heartbeat",)
    schedule.every("heartbeat", 4.0, 1.0)
    assert schedule.next_s() == 4.0
    assert schedule.due(4.0) == ("heartbeat",)
    assert schedule.next_s() == 8.0
    schedule.every("heartbeat", 10.0, 6.0)
    assert schedule.next_s() == 8.0


@pytest.mark.slow
def test_an_agent_beats_as_its_controller_says(folder: Folder, controller: FakeController) -> None:
    controller.heartbeat_answer = {"leader": True, "interval_s": 1.0}
    folder.config.write_text(folder.config.read_text().replace("heartbeat_s = 0.2\n", ""))
    with running(folder):
        controller.wait(lambda: len(controller.heartbeats) > 2)
    said = [beat["interval_s"] for beat in controller.heartbeats]
    assert said[0] == UNTOLD_S
    assert set(said[1:]) == {1.0}
