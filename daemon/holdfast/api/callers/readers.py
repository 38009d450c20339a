"""How much one token may ask for, whatever its role: requests, the time of the processor that their answers take, and answers at a time.

Far above what people, their programs and Prometheus need. What is refused is answered 429 with ``Retry-After``, which the command line
obeys."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from anyio import CapacityLimiter

from holdfast.api.callers.auth import Principal
from holdfast.api.errors import ApiError
from holdfast.bucket import Bucket

T = TypeVar("T")

log = logging.getLogger(__name__)

_SAID_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class ReaderBounds:
    """Of one token, where nothing else is said."""

    requests: float = 600
    """At once; then ``requests_per_s`` for ever."""
    requests_per_s: float = 20
    work_s: float = 20
    """Seconds of a core for the making of answers, at once; then ``work_per_s`` in each second."""
    work_per_s: float = 0.2
    at_once: int = 2
    """Answers that are being made."""
    waiting: int = 16
    """Requests that wait for their turn."""
    at_once_in_all: int = 3
    """Of all tokens together; of the threads that read (:attr:`ApiSettings.read_threads`) one is left for the tokens themselves."""
    waiting_in_all: int = 256
    unread: int = 8
    """Answers that wait to be read."""


@dataclass(eq=False)
class Work:
    """Seconds of a core that one answer has taken so far."""

    spent_s: float = 0.0


_WORK: ContextVar[Work | None] = ContextVar("work", default=None)


def spent_s() -> float:
    """Seconds of a core that the request at hand has taken so far."""
    work = _WORK.get()
    return work.spent_s if work is not None else 0.0


def metered(call: Callable[[], T]) -> Callable[[], T]:
    """The call, whose processor time counts for the request at hand. It is to be made in a thread."""
    work = _WORK.get()
    if work is None:
        return call

    def timed() -> T:
        began_s = time.thread_time()
        try:
            return call()
        finally:
            work.spent_s += time.thread_time() - began_s

    return timed


@dataclass
class _Reader:
    """One token. Its buckets stay, since it may come again; there are as many as tokens that were good."""

    requests: Bucket
    work: Bucket
    places: CapacityLimiter
    asking: int = 0
    said_s: float = field(default=-math.inf)


class ReaderQuotas:
    """For one event loop."""

    def __init__(
        self,
        monotonic_s: Callable[[], float],
        bounds: ReaderBounds = ReaderBounds(),
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        """``refused`` is called with each refusal."""
        self._refused = refused
        self._monotonic_s = monotonic_s
        self._bounds = bounds
        self._readers: dict[str, _Reader] = {}
        self._places = CapacityLimiter(bounds.at_once_in_all)
        self._asking = 0

    def ask(self, caller: Principal, *, unread: int = 0) -> None:
        """Count one request. ``unread``: answers that wait to be read on this token's connections. Raises ApiError 429."""
        reader, now_s = self._reader(caller), self._monotonic_s()
        if not reader.requests.take(now_s):
            most = f"more than {self._bounds.requests_per_s:g} requests a second"
            raise self._refusal(caller, reader, most, reader.requests.wait_s(now_s))
        if unread > self._bounds.unread:
            raise self._refusal(caller, reader, f"{unread} answers that are not read", 1)

    @asynccontextmanager
    async def turn(self, caller: Principal) -> AsyncIterator[Work]:
        """Make an answer, when it is its turn, and see what it took. Raises ApiError 429 where too many wait, or too much was made for
        this token."""
        reader, bounds, now_s = self._reader(caller), self._bounds, self._monotonic_s()
        if (wait_s := reader.work.wait_s(now_s)) > 0:
            raise self._refusal(
                caller, reader, f"answers that take more than {bounds.work_per_s:.0%} of a core", wait_s
            )
        if reader.asking >= bounds.at_once + bounds.waiting:
            raise self._refusal(caller, reader, f"more than {bounds.at_once + bounds.waiting} answers at a time", 1)
        if self._asking >= bounds.at_once_in_all + bounds.waiting_in_all:
            raise self._refusal(caller, reader, "an answer while too many wait", 1)
        reader.asking, self._asking = reader.asking + 1, self._asking + 1
        work = Work()
        try:
            async with reader.places, self._places:
                mark = _WORK.set(work)
                try:
                    yield work
                finally:
                    _WORK.reset(mark)
        finally:
            reader.asking, self._asking = reader.asking - 1, self._asking - 1
            reader.work.spend(self._monotonic_s(), work.spent_s)

    def _reader(self, caller: Principal) -> _Reader:
        reader = self._readers.get(caller.token)
        if reader is None:
            bounds = self._bounds
            reader = self._readers[caller.token] = _Reader(
                Bucket(bounds.requests, bounds.requests_per_s),
                Bucket(bounds.work_s, bounds.work_per_s),
                CapacityLimiter(bounds.at_once),
            )
        return reader

    def _refusal(self, caller: Principal, reader: _Reader, what: str, wait_s: float) -> ApiError:
        self._refused()
        now_s = self._monotonic_s()
        if now_s - reader.said_s >= _SAID_EVERY_S:
            reader.said_s = now_s
            log.warning(
                "event=reader_limited role=%s name=%r reason=%r effect=answered_429", caller.role, caller.name, what
            )
        after_s = max(1, math.ceil(wait_s))
        text = (
            f"This token ({caller.role} {caller.name}) asks for {what}, the quota of one token: "
            f"each person and each program needs its own; try again in {after_s} s"
        )
        return ApiError(429, "too_many", text, retry_after_s=after_s)
