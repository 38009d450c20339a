"""Order hub: wakes the agents' long polls when orders for them were committed, and answers polls without orders without the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from holdfast.model.actions.action import Intent

RECHECK_S = 60.0
"""How often a node thought to have no orders is looked up again: another controller may have written some."""
REDELIVERY_S = 5.0
"""Minimum time before an order is handed out again: its outcome may be in flight, or the answer was lost."""
MAX_REMEMBERED = 20_000
"""Maximum number of boots and deliveries in memory; then the oldest are dropped."""


class OrderHub:
    """One event per node with a waiting poll. For one event loop; :meth:`notify` may be called from any thread."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: dict[str, asyncio.Event] = {}
        self._waiting: dict[str, int] = {}
        self._generation: dict[str, int] = {}
        self._empty: dict[str, tuple[int, float]] = {}
        self._handed_s: dict[tuple[str, str], float] = {}
        self._closed = False

    def notify(self, node: str) -> None:
        """Wake the waiting polls of this node: orders for it were committed."""
        loop = self._loop
        if loop is None or loop is _running():
            self._notify(node)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._notify, node)

    def close(self) -> None:
        """Answer every waiting poll now (the server is stopping)."""
        self._closed = True
        for event in self._events.values():
            event.set()

    @property
    def closed(self) -> bool:
        return self._closed

    def waiting(self) -> int:
        """Number of waiting polls."""
        return sum(self._waiting.values())

    def generation(self, node: str) -> int:
        """Counter that grows with every :meth:`notify`; read it before the look-up whose answer goes to :meth:`found_none`."""
        return self._generation.get(node, 0)

    def may_have_orders(self, node: str, boot: str) -> bool:
        """False: this boot of the agent had none a short while ago, and none were committed since."""
        generation, since_s = self._empty.get(boot, (-1, 0.0))
        return generation != self.generation(node) or self._monotonic_s() - since_s > RECHECK_S

    def found_none(self, boot: str, generation: int) -> None:
        """Record that this boot of the agent had no orders; ``generation`` was read before the look-up."""
        now_s = self._monotonic_s()
        if len(self._empty) > MAX_REMEMBERED:
            self._empty = {k: v for k, v in self._empty.items() if now_s - v[1] < RECHECK_S}
        self._empty[boot] = (generation, now_s)

    def fresh(
        self, boot: str, orders: Iterable[Intent], fits: Callable[[Intent], bool] = lambda _: True
    ) -> tuple[Intent, ...]:
        """Orders that were not handed to this boot of the agent a moment ago; they count as handed out now. ``fits``: whether there is room
        for it in the answer; what does not fit is for the next one."""
        now_s = self._monotonic_s()
        if len(self._handed_s) > MAX_REMEMBERED:
            self._handed_s = {k: t for k, t in self._handed_s.items() if now_s - t < REDELIVERY_S}
        due = (o for o in orders if now_s - self._handed_s.get((boot, o.key), -REDELIVERY_S) >= REDELIVERY_S)
        new = tuple(o for o in due if fits(o))
        for order in new:
            self._handed_s[(boot, order.key)] = now_s
        return new

    async def wait(self, node: str, generation: int, timeout_s: float) -> None:
        """Wait until :meth:`notify` after ``generation`` was read, :meth:`close`, or the timeout."""
        self._loop = asyncio.get_running_loop()
        if self._closed or generation != self.generation(node):
            return
        event = self._events.setdefault(node, asyncio.Event())
        self._waiting[node] = self._waiting.get(node, 0) + 1
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting[node] -= 1
            if not self._waiting[node]:
                del self._waiting[node]
                if self._events.get(node) is event:
                    del self._events[node]

    def _notify(self, node: str) -> None:
        self._generation[node] = self.generation(node) + 1
        event = self._events.pop(node, None)
        if event is not None:
            event.set()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
