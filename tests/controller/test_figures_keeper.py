"""The keeper of the figures: all that is on record once, then what was closed or has news since; by the leader alone."""

from __future__ import annotations

from datetime import datetime

import pytest

from holdfast.controller.keeping.figures_keeper import BATCH, LATE, FiguresKeeper
from support.simulated.clock import SimClock


class CountingStore:
    """A number of incidents without figures; what it was asked."""

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.asked: list[tuple[datetime | None, int]] = []

    def keep_figures(self, closed_since: datetime | None, limit: int, fence: int) -> int:
        self.asked.append((closed_since, fence))
        done = min(self.missing, limit)
        self.missing -= done
        return done


@pytest.mark.parametrize(("missing", "turns"), [(0, 1), (BATCH - 1, 1), (BATCH, 2), (2 * BATCH + 1, 3)])
def test_the_whole_record_is_gone_through_in_batches_then_what_is_new(missing: int, turns: int) -> None:
    store, clock = CountingStore(missing), SimClock()
    keeper = FiguresKeeper(store, clock, lambda: 7)
    while keeper.keep_some():
        pass
    assert store.asked == [(None, 7)] * turns
    keeper.keep_some()
    assert store.asked[-1] == (clock.now() - LATE, 7)


def test_who_does_not_lead_stores_nothing_and_begins_again_as_the_leader() -> None:
    store, leads = CountingStore(0), [7, None, 8]
    keeper = FiguresKeeper(store, SimClock(), lambda: leads.pop(0))
    for _ in range(3):
        assert not keeper.keep_some()
    assert store.asked == [(None, 7), (None, 8)]
