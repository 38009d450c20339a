"""The interval of heartbeats by the size of the fleet."""

from __future__ import annotations

import pytest

from holdfast.controller.observing.observe import COLD_START_S
from holdfast.controller.timing import pace


@pytest.mark.parametrize(
    ("nodes", "interval_s"), [(0, 4), (1, 4), (1000, 4), (1001, 5), (2000, 8), (2500, 10), (4096, 10), (100_000, 10)]
)
def test_small_fleets_beat_often_and_large_ones_as_before(nodes: int, interval_s: float) -> None:
    assert pace.interval_s(nodes) == interval_s
    assert nodes > 2500 or nodes / pace.interval_s(nodes) <= pace.BEATS_PER_S


def test_each_agent_has_three_heartbeats_before_its_silence_means_anything() -> None:
    assert 3 * pace.LONGEST_S <= COLD_START_S
