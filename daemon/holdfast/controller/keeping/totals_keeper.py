"""Keeps the totals of the record of events: read once, counted on from there, and kept in the store.

The store is read on from the number of the last event that was counted, a page at a time, so that a scrape costs nothing there and a start
does not read the record again. What was counted is a note in the store: events that are pruned later were counted before, so the totals
never go down, and a controller that takes over continues with the same ones. Only the leader counts."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast import unexpected
from holdfast.metrics.tally import Tally
from holdfast.metrics.totals import Totals
from holdfast.model.errors import LeaderFencedOff, OutsideError, Stale
from holdfast.ports import Clock, Store

log = logging.getLogger(__name__)

NOTE = "metrics.totals"
CLUSTER_NOTE = "metrics.cluster"
"""The cluster's name, for the label of a standby, which does not read Slurm."""
PART = "totals"
"""Part of the process (:mod:`holdfast.unexpected`)."""
PAGE = 2_000
"""Events of one query; a hundredth of a second of a core."""
NEXT_PAGE_S = 0.02
"""Between two pages of a long record, so that the API's requests come in between."""
READ_EVERY_S = 5.0
"""Less than any scrape interval in use."""
SAVE_EVERY_S = 600.0
"""What a crash makes the next controller count again. Pruning starts 10 minutes after a start and removes events of at least a day ago."""


@dataclass
class TotalsKeeper:
    """One for each controller process; :meth:`run` is its task."""

    store: Store
    clock: Clock
    fence: Callable[[], int | None]
    """Fence of this process's lease; None: it does not lead."""
    provider: str = ""
    slurms_name: Callable[[], str] = lambda: ""
    """The cluster's name as Slurm shows it; empty: not read."""
    cluster: str = ""
    """The same, also where another controller has read it."""
    shown: Tally | None = None
    """Copy of the newest totals, never changed; None: this controller does not lead, or has not read the record yet."""
    _totals: Totals | None = None
    _before: str | None = None
    """The note as this process read or wrote it last."""
    _saved_cursor: int = 0
    _saved_at_s: float = field(default=float("-inf"))

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            more = False
            try:
                more = await asyncio.to_thread(self.read_on)
            except OutsideError as error:
                log.debug("event=totals_unread error=%r", str(error))
            except Exception as error:  # noqa: BLE001 - metrics are missing then, nothing else
                self._forget()
                unexpected.failed(PART, error)
            else:
                unexpected.passed(PART)
            await asyncio.sleep(NEXT_PAGE_S if more else READ_EVERY_S)

    def read_on(self) -> bool:
        """Count the next page of events. True: there may be more. Raises OutsideError."""
        fence = self.fence()
        self._name(leads=fence is not None)
        if fence is None:
            self._forget()
            return False
        totals = self._totals = self._totals or self._loaded()
        events = self.store.events(after_id=totals.cursor, limit=PAGE)
        for event in events:
            totals.add(event)
        if len(events) == PAGE:
            return True
        if events or self.shown is None:
            self.shown = totals.tally.copy()
        self._save(totals, fence)
        return False

    def _name(self, *, leads: bool) -> None:
        read = self.slurms_name() if leads else ""
        if read and read != self.cluster:
            self.store.set_note(CLUSTER_NOTE, read)
        self.cluster = read or self.cluster or self.store.note(CLUSTER_NOTE) or ""

    def _forget(self) -> None:
        """Another controller counts on."""
        self._totals = self.shown = None

    def _loaded(self) -> Totals:
        self._before = self.store.note(NOTE)
        totals = _read(self._before, self.provider)
        self._saved_cursor, self._saved_at_s = totals.cursor, self.clock.monotonic_s()
        if not totals.cursor:
            self._saved_at_s = float("-inf")
        for number in totals.followed:
            totals.remind(number, self.store.events(incident_id=number))
        return totals

    def _save(self, totals: Totals, fence: int) -> None:
        due = self.clock.monotonic_s() - self._saved_at_s >= SAVE_EVERY_S
        if not due or totals.cursor == self._saved_cursor:
            return
        text = json.dumps(totals.dump(), separators=(",", ":"))
        try:
            self.store.record_once(NOTE, self._before, text, (), fence)
        except (Stale, LeaderFencedOff):
            self._forget()  # another controller has counted meanwhile: read its totals
            return
        self._before, self._saved_cursor, self._saved_at_s = text, totals.cursor, self.clock.monotonic_s()


def _read(note: str | None, provider: str) -> Totals:
    """The totals of a note; new ones where there is none, or none that this release can read."""
    if note is None:
        return Totals(provider)
    try:
        return Totals.read(json.loads(note), provider)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        effect = "counters start again from the events that the store has"
        log.warning("event=note_unreadable note=%s effect=%r error=%r", NOTE, effect, str(error))
        return Totals(provider)
