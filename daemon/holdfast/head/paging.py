"""Periodic task of each head-node daemon: write a heartbeat for the other daemon, and page where a page is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
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
    """The controller's task, in its event loop; the notifier runs in a thread. One that hangs delays no heartbeat."""

    vitals: Callable[[], Vitals]
    state: StateWriter
    pager: Pager
    who: str
    wait_s: float = LOOK_S
    """How long the next heartbeat waits for the notifier."""
    _sending: asyncio.Task[None] | None = field(default=None, init=False)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - the next look shows whether it lasts
                unexpected.failed(PAGING, error)
            else:
                unexpected.passed(PAGING)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Run once. The heartbeat comes from the event loop: without it the actor pages."""
        seen = self.vitals()
        if loop_late(seen.turned_s, seen.now_s, seen.loop_late_s) is None:
            self.state.beat(seen.trouble or "")
        parts = parts_of(seen)
        settled = any(p.name is PartName.LOOP and p.condition is Condition.GOOD for p in parts)
        if self._sending is None or self._sending.done():
            look = partial(self.pager.look, pages_of(parts, self.who), settled=settled)
            self._sending = asyncio.create_task(asyncio.to_thread(look))
        done, _ = await asyncio.wait((self._sending,), timeout=self.wait_s)
        for each in done:
            each.result()


@dataclass
class ActorPaging:
    """The actor's task, in a thread."""

    controller: StateReader
    problem: Callable[[], str]
    """What the actor itself cannot do at present."""
    pager: Pager
    who: str

    def run(self, stop: Stop) -> None:
        """Run until stopped."""
        while not stop.wait(LOOK_S):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - the next look shows whether it lasts
                unexpected.failed(PAGING, error)
            else:
                unexpected.passed(PAGING)

    def look(self) -> None:
        """Run once."""
        self.pager.look(pages_of_actor(self.controller.look(), self.problem(), self.who))
