"""Stores the figures of incidents once these are closed, and again where something happens to one later.

Outside the control loop and outside the write lock: the events of an incident that was open for weeks take a second to read. Until an
incident is stored, each question computes it from its events (:mod:`holdfast.store.figures`), so that an answer never waits for this. After
an upgrade, or a change of the rules, all incidents on record are computed once: a year of 1,000 nodes takes a minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from holdfast import unexpected
from holdfast.model.errors import LeaderFencedOff, OutsideError
from holdfast.ports import Clock

log = logging.getLogger(__name__)

PART = "figures"
"""Part of the process (:mod:`holdfast.unexpected`)."""
BATCH = 50
"""Incidents at a time; some hundredths of a second of a core."""
NEXT_BATCH_S = 0.2
"""Between two batches, so that the API's requests come in between."""
EVERY_S = 10.0
LATE = timedelta(days=31)  # rule undeclared-window: of what is stored; no decision looks back by it
"""How long after its end an incident is looked at again; the metrics follow one for 30 days (:mod:`holdfast.metrics.totals`)."""


class FiguresStore(Protocol):
    """What this needs of the store."""

    def keep_figures(self, closed_since: datetime | None, limit: int, fence: int) -> int:
        """Compute and store the figures of closed incidents that have none, or outdated ones; how many there were, ``limit`` at most.

        ``closed_since`` None: whenever they were closed. Raises LeaderFencedOff, OutsideError."""
        ...


@dataclass
class FiguresKeeper:
    """One for each controller process; :meth:`run` is its task. Only the leader writes."""

    store: FiguresStore
    clock: Clock
    fence: Callable[[], int | None]
    """Fence of this process's lease; None: it does not lead."""
    _all_done: bool = False
    """The whole record was gone through since this process leads."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            more = False
            try:
                more = await asyncio.to_thread(self.keep_some)
            except (OutsideError, LeaderFencedOff) as error:
                log.debug("event=figures_not_kept error=%r", str(error))
            except Exception as error:  # noqa: BLE001 - questions compute what is missing
                unexpected.failed(PART, error)
            else:
                unexpected.passed(PART)
            await asyncio.sleep(NEXT_BATCH_S if more else EVERY_S)

    def keep_some(self) -> bool:
        """One batch. True: there may be more. Raises LeaderFencedOff, OutsideError."""
        fence = self.fence()
        if fence is None:
            self._all_done = False
            return False
        since = self.clock.now() - LATE if self._all_done else None
        more = self.store.keep_figures(since, BATCH, fence) == BATCH
        self._all_done = self._all_done or not more
        return more
