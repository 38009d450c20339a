"""Planned steps that no actor takes, because it is dead, hangs, is of another release, or acts for another controller."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from holdfast.controller.timing.lanes import SLURM, WORKERS, lane
from holdfast.decisions.brakes.overtaking import overtakes
from holdfast.model.actions.action import Intent, IntentState, SendOrder, UnknownAction
from holdfast.model.book import Book, World
from holdfast.model.policies.policy import Mode

log = logging.getLogger(__name__)

UNTAKEN_S = 30.0
"""An actor polls twice a second; a step that was ready for this long has no actor."""
STARTED_S = 600.0
"""The same for a step in Slurm that was started and has not ended: its actor died in the middle, or hangs."""
SAY_EVERY_S = 60.0
GAP_S = 15.0
"""A longer gap between two checks means that this controller did not lead or the store was away, so that no actor could take a step."""


def heads(book: Book) -> tuple[Intent, ...]:
    """The first step of each queue, which an actor takes at its next poll."""
    due = sorted(
        (i for i in book.intents.values() if not i.settled and not isinstance(i.action, SendOrder | UnknownAction)),
        key=lambda i: (i.planned_at, i.order, i.key),
    )
    first: dict[tuple[str, str], Intent] = {}
    for intent in due:
        first.setdefault((intent.incident_id, lane(intent.action)), intent)
    return tuple(first.values())


def takeable(world: World) -> tuple[Intent, ...]:
    """Steps that wait only for an actor, including steps started in Slurm, which end within seconds unless a brake holds them."""
    book = world.book
    if book.paused is not None or world.policy.mode is Mode.OBSERVE:
        return ()
    first = heads(book)
    begun = [i for i in first if i.state is not IntentState.PLANNED]
    left = (i for i in begun if lane(i.action) == SLURM and not overtakes(book, i))
    at_work = Counter(lane(i.action) for i in begun)
    free = (i for i in first if i.state is IntentState.PLANNED and at_work[lane(i.action)] < WORKERS)
    return (*left, *free)


class UntakenWatch:
    """Tracks how long current steps have waited for an actor. Read by the API's threads, written by the loop."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[str, IntentState], float] = {}
        self._looked_s: float | None = None
        self._say_at_s = 0.0
        self._problem: str | None = None
        self.waits_s = 0.0
        """Longest wait of a planned step that is not taken; 0: none waits."""

    def problem(self) -> str | None:
        """One line: which step is not taken, and what to do. None: steps are taken, or none is due."""
        return self._problem

    def forget(self) -> None:
        """Reset while this controller does not lead: another controller's steps do not count."""
        self._since_s, self._looked_s, self._problem, self.waits_s = {}, None, None, 0.0

    def look(self, world: World, now_s: float) -> None:
        """Update once per cycle. ``now_s``: of a monotonic clock."""
        if self._looked_s is not None and now_s - self._looked_s > GAP_S:
            self._since_s = {}
        self._looked_s = now_s
        waiting = takeable(world)
        self._since_s = {(i.key, i.state): self._since_s.get((i.key, i.state), now_s) for i in waiting}
        self.waits_s = max((now_s - self._since(i) for i in waiting if i.state is IntentState.PLANNED), default=0.0)
        before, self._problem = self._problem, self._judge(waiting, now_s)
        if before is not None and self._problem is None:
            log.info("event=steps_taken_again")
        if self._problem is None:
            self._say_at_s = now_s
        elif now_s >= self._say_at_s:
            self._say_at_s = now_s + SAY_EVERY_S
            log.error("event=steps_untaken problem=%r", self._problem)

    def _since(self, intent: Intent) -> float:
        return self._since_s[intent.key, intent.state]

    def _judge(self, waiting: Iterable[Intent], now_s: float) -> str | None:
        late = [
            i for i in waiting if now_s - self._since(i) > (UNTAKEN_S if i.state is IntentState.PLANNED else STARTED_S)
        ]
        if not late:
            return None
        oldest = min(late, key=self._since)
        how = "has not started" if oldest.state is IntentState.PLANNED else "was started and has not ended"
        what = f"{oldest.kind} {oldest.action.target.node or ''}".strip()
        waits = f"{what} of incident {oldest.incident_id} {how} for {now_s - self._since(oldest):.0f} s"
        return f"no actor takes steps ({waits}): restart holdfast-actor with this release"
