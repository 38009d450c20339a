"""Answers that are the same for all who may ask, and costly: made once a second, however many ask. A viewer and an operator see the
same; what a user sees is the user's own, and is not shared."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

PATHS = frozenset({"/v1/nodes", "/v1/nodes/health", "/v1/status", "/v1/overview", "/v1/incidents"})
"""Routes of viewers and operators, whose answer depends on the query alone."""
FOR_S = 1.0
COSTLY_S = 0.02
"""Of a core. What costs less is made for each."""
MOST = 8
"""Kept: an answer has 2 MiB with 4,096 nodes."""


@dataclass(eq=False)
class _Answer:
    response: Response | None = None
    made_s: float = -math.inf
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: dict[str, asyncio.Lock] = field(default_factory=dict)
    """By who waits; as many as tokens that were good."""


def key_of(request: Request) -> str | None:
    """Of an answer that may be shared; None: this one may not."""
    if request.method != "GET" or request.url.path not in PATHS:
        return None
    return f"{request.url.path}?{request.url.query}"


def tagged(response: Response) -> Response:
    """The answer with the tag of its content, which is the same as long as its bytes are."""
    if response.status_code == 200 and "ETag" not in response.headers:
        response.headers["ETag"] = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
        response.headers["Cache-Control"] = "private, no-cache"
    return response


def unchanged(request: Request, response: Response) -> Response:
    """304 without the content where the client has it already (``If-None-Match``), or the answer."""
    tag, known = response.headers.get("ETag"), request.headers.get("If-None-Match", "")
    if tag is None or not known:
        return response
    tags = {each.strip().removeprefix("W/") for each in known.split(",")}
    if not tags & {tag, "*"}:
        return response
    return Response(status_code=304, headers={"ETag": tag, "Cache-Control": response.headers["Cache-Control"]})


class SharedAnswers:
    """For one event loop."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._costly: OrderedDict[str, _Answer] = OrderedDict()
        """The one that was made last is the last."""
        self._changes = 0

    async def answer(
        self,
        key: str,
        make: Callable[[], Awaitable[tuple[Response, float]]],
        turn: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
        who: str = "",
    ) -> Response:
        """As ``make`` answers, with the seconds of a core that it took, or as it answered a moment ago. Raises what it and ``turn`` do.
        ``turn`` is waited for first, by one of those who are the same ``who``: no one waits for the turn of another."""
        answer = self._costly.get(key)
        if answer is None:
            async with turn():
                return await self._make(key, _Answer(), make)
        async with answer.waiting.setdefault(who, asyncio.Lock()):
            if (found := self._fresh(answer)) is not None:
                return found
            async with turn(), answer.making:
                return self._fresh(answer) or await self._make(key, answer, make)

    def _fresh(self, answer: _Answer) -> Response | None:
        return answer.response if self._monotonic_s() - answer.made_s < FOR_S else None

    def forget(self) -> None:
        """An operator changed something: show it at once."""
        self._changes += 1
        for answer in self._costly.values():
            answer.response = None

    async def _make(self, key: str, answer: _Answer, make: Callable[[], Awaitable[tuple[Response, float]]]) -> Response:
        changes, began_s = self._changes, self._monotonic_s()
        response, cost_s = await make()
        if response.status_code != 200 or cost_s < COSTLY_S:
            self._costly.pop(key, None)
            return response
        answer.response, answer.made_s = (response, began_s) if changes == self._changes else (None, -math.inf)
        self._costly[key] = answer
        self._costly.move_to_end(key)
        if len(self._costly) > MOST:
            self._costly.popitem(last=False)
        return response
