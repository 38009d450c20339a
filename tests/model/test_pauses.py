"""Pauses that double."""

from __future__ import annotations

import pytest

from holdfast.model.pauses import doubling_s


@pytest.mark.parametrize(
    ("failures", "pause_s"), [(0, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 30.0), (8, 30.0), (10**6, 30.0)]
)
def test_a_pause_doubles_up_to_the_longest(failures: int, pause_s: float) -> None:
    assert doubling_s(0.5, failures, 30.0) == pause_s
