"""Whose request is answered next of those without a token that is known here. They wait, and are not refused: who polls ``/healthz`` is
answered during a flood from elsewhere.

What waits is bounded by the connections that are not known (:mod:`holdfast.api.transport.connections`): each has one request here at
most, and takes it away when it is closed."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

from holdfast.api.transport.connections import Connection
from holdfast.bucket import Bucket

log = logging.getLogger(__name__)

CROWD = 100
"""This many waiting requests are a flood, and worth a line in the log."""
SAID_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class StrangerBounds:
    """Answers to strangers: a burst at once, then a rate per second. One takes 0.3 ms of a core."""

    burst: float = 100
    per_s: float = 400
    address_burst: float = 100
    address_per_s: float = 100
    """Of one address. A proxy, and loopback, stand for many: there only the bound in all holds."""
    most_addresses: int = 10_000
    """That are remembered; the bound in all holds for the others."""


Waiter = asyncio.Future[bool]


class StrangerTurns:
    """Who waits, and who is next: one of each address in turn, in the order in which they came. Pure: every moment is handed in."""

    def __init__(self, bounds: StrangerBounds) -> None:
        self._bounds = bounds
        self._all = Bucket(bounds.burst, bounds.per_s)
        self._waiting: OrderedDict[str, OrderedDict[Waiter, None]] = OrderedDict()
        """By address; the first one is next."""
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self.count = 0

    def add(self, address: str, waiter: Waiter, *, many_behind: bool) -> None:
        """``many_behind``: the address stands for many clients."""
        self._waiting.setdefault(address, OrderedDict())[waiter] = None
        self.count += 1
        if many_behind:
            return
        if address not in self._buckets:
            self._buckets[address] = Bucket(self._bounds.address_burst, self._bounds.address_per_s)
            if len(self._buckets) > self._bounds.most_addresses:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(address)

    def drop(self, address: str, waiter: Waiter) -> None:
        """It waits no longer."""
        here = self._waiting.get(address, OrderedDict())
        if waiter in here:
            del here[waiter]
            self.count -= 1
            if not here:
                del self._waiting[address]

    def next(self, now_s: float) -> tuple[Waiter | None, float]:
        """Who is answered now, and no longer waits; else in how many seconds to ask again."""
        wait_s = self._all.wait_s(now_s)
        if wait_s > 0:
            return None, wait_s
        wait_s = math.inf
        for address in list(self._waiting):
            bucket = self._buckets.get(address)
            if bucket is None or bucket.take(now_s):
                self._all.spend(now_s, 1.0)
                self._waiting.move_to_end(address)
                waiter = next(iter(self._waiting[address]))
                self.drop(address, waiter)
                return waiter, 0.0
            wait_s = min(wait_s, bucket.wait_s(now_s))
        return None, wait_s


class Strangers:
    """For one event loop: in each of its turns at most one of them continues."""

    def __init__(self, bounds: StrangerBounds = StrangerBounds()) -> None:
        self._turns = StrangerTurns(bounds)
        self._runs = False
        self._said_s = -math.inf

    @property
    def waiting(self) -> int:
        return self._turns.count

    @property
    def crowded(self) -> bool:
        """Whether they are a flood."""
        return self._turns.count >= CROWD

    async def turn(self, address: str, connection: Connection, *, many_behind: bool) -> bool:
        """Wait for it. False: the connection was closed meanwhile."""
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        self._turns.add(address, waiter, many_behind=many_behind)
        connection.gone = partial(_go, waiter, on=False)
        if not self._runs:
            self._runs = True
            loop.call_soon(self._next, loop)
        self._say(loop.time(), connection)
        try:
            return await waiter
        finally:
            self._turns.drop(address, waiter)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        waiter, wait_s = self._turns.next(loop.time())
        if waiter is not None:
            _go(waiter, on=True)
        self._runs = self._turns.count > 0
        if self._runs:
            loop.call_later(wait_s, self._next, loop) if wait_s else loop.call_soon(self._next, loop)

    def _say(self, now_s: float, connection: Connection) -> None:
        if self.crowded and now_s - self._said_s >= SAID_EVERY_S:
            self._said_s = now_s
            log.warning(
                "event=strangers_wait waiting=%d newest_address=%s: more requests without a known token than are answered",
                self._turns.count,
                connection.address or "-",
            )


def _go(waiter: Waiter, *, on: bool) -> None:
    if not waiter.done():
        waiter.set_result(on)
