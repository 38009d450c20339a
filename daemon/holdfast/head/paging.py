"""What each daemon of the head node does every few seconds for the other and for people: a sign of life, and a page where one is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event as Stop

from holdfast import unexpected
from holdfast.decisions.parts import Vitals, loop_late, parts_of
from holdfast.head.pager import Pager, pages_of, pages_of_actor
from holdfast.head.process_state import StateReader, StateWriter
from holdfast.model.parts import Condition, PartName

LOOK_S = 5.0
PAGING = "paging"
"""Part of the process (:mod:`holdfast.unexpected`)."""


@dataclass
class ControllerPaging:
    """In the controller's event loop; what may hang, the notifier, in a thread."""

    vitals: Callable[[], Vitals]
    state: StateWriter
    pager: Pager
    who: str

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - the next look shows whether it lasts
                unexpected.failed(PAGING, error)
            else:
                unexpected.passed(PAGING)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Once. The sign of life is the loop's: without it the actor pages."""
        seen = self.vitals()
        if loop_late(seen.turned_s, seen.now_s, seen.loop_late_s) is None:
            self.state.beat(seen.trouble or "")
        parts = parts_of(seen)
        settled = any(p.name is PartName.LOOP and p.condition is Condition.GOOD for p in parts)
        await asyncio.to_thread(partial(self.pager.look, pages_of(parts, self.who), settled=settled))


@dataclass
class ActorPaging:
    """In a thread of the actor."""

    controller: StateReader
    problem: Callable[[], str]
    """What the actor itself cannot do at present."""
    pager: Pager
    who: str

    def run(self, stop: Stop) -> None:
        """Until stopped."""
        while not stop.wait(LOOK_S):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - the next look shows whether it lasts
                unexpected.failed(PAGING, error)
            else:
                unexpected.passed(PAGING)

    def look(self) -> None:
        """Once."""
        self.pager.look(pages_of_actor(self.controller.look(), self.problem(), self.who))
