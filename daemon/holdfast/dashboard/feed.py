"""What changes on the first screen, sent to every browser that has it open: made once a second for all of them, as text.

A stream is an answer that does not end: there are few at a time, a reader that does not keep up gets only what is newest, and its token is
looked at again while it lasts."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast import unexpected
from holdfast.api.errors import ApiError, error_response
from holdfast.api.stream import HEADERS, HEARTBEAT, RETRY
from holdfast.model.errors import OutsideError

log = logging.getLogger(__name__)

MAKING = "dashboard"
"""Part of this process (:mod:`holdfast.unexpected`)."""


@dataclass(frozen=True, slots=True)
class FeedBounds:
    """How many pages are kept up to date."""

    in_all: int = 200
    per_token: int = 64
    """A team's browsers may share one."""
    every_s: float = 1.0
    heartbeat_s: float = 15.0
    check_s: float = 15.0
    """How often a token is looked at again."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the page."""

    version: int
    """Number of the change that made it as it is."""
    html: str


@dataclass
class LiveFeed:
    """For one event loop."""

    make: Callable[[], Awaitable[Mapping[str, str]]]
    """The pieces as they are now, by the ids of their elements. Raises ApiError, OutsideError."""
    monotonic_s: Callable[[], float]
    bounds: FeedBounds = FeedBounds()
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    """Of this process: the versions of another one say nothing here."""
    pieces: dict[str, Piece] = field(default_factory=dict)
    version: int = 0
    made_s: float = float("-inf")
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _viewers: Counter[str] = field(default_factory=Counter)
    _turning: asyncio.Task[None] | None = None
    _sent: tuple[int, int, bytes] = (-1, -1, b"")

    async def current(self) -> Mapping[str, Piece]:
        """The pieces, at most a second old. Raises ApiError, OutsideError."""
        async with self._making:
            if self.monotonic_s() - self.made_s >= self.bounds.every_s:
                self._take(await self.make())
                self.made_s = self.monotonic_s()
        return self.pieces

    def _take(self, made: Mapping[str, str]) -> None:
        changed = {
            name: html for name, html in made.items() if name not in self.pieces or self.pieces[name].html != html
        }
        if changed:
            self.version += 1
            self.pieces |= {name: Piece(self.version, html) for name, html in changed.items()}
            self._news.set()
            self._news = asyncio.Event()

    def refusal(self, token: str) -> ApiError | None:
        """Why one more page of this token is not kept up to date; None: it is."""
        for count, most, whose in (
            (self._viewers[token], self.bounds.per_token, "with this token"),
            (self._viewers.total(), self.bounds.in_all, "in all"),
        ):
            if count >= most:
                text = f"{count} pages {whose} are kept up to date already: close one, or reload this page by hand"
                return ApiError(429, "too_many", text, retry_after_s=30)
        return None

    def enter(self, token: str) -> None:
        self._viewers[token] += 1
        if self._turning is None or self._turning.done():
            self._turning = asyncio.create_task(self._turn())

    def leave(self, token: str) -> None:
        self._viewers[token] -= 1
        if self._viewers[token] <= 0:
            del self._viewers[token]

    async def _turn(self) -> None:
        """Make the pieces while a page is open."""
        while self._viewers:
            try:
                await self.current()
            except (ApiError, OutsideError) as error:
                log.info("event=dashboard_waits error=%r", str(error))
            except Exception as error:  # noqa: BLE001 - the pages stay; the next turn shows whether it lasts
                unexpected.failed(MAKING, error)
            else:
                unexpected.passed(MAKING)
            await asyncio.sleep(self.bounds.every_s)

    async def watch(self, after: int, still_valid: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
        """What one page is sent, which has everything up to version ``after``."""
        yield RETRY
        checked_s = self.monotonic_s()
        while True:
            if after < self.version:
                content, after = self._changes(after), self.version
                yield content
            else:
                news = self._news
                try:
                    async with asyncio.timeout(self.bounds.heartbeat_s):
                        await news.wait()
                except TimeoutError:
                    yield HEARTBEAT
            if self.monotonic_s() - checked_s >= self.bounds.check_s:
                checked_s = self.monotonic_s()
                if not await still_valid():
                    yield b"event: signed-out\ndata: -\n\n"
                    return

    def _changes(self, after: int) -> bytes:
        """Pieces that are newer, as one message: most pages are at the same version."""
        if self._sent[:2] != (after, self.version):
            newer = [
                f'<hx-partial hx-target="#{name}" hx-swap="innerMorph">{piece.html}</hx-partial>'
                for name, piece in self.pieces.items()
                if piece.version > after
            ]
            lines = "".join(newer).splitlines()
            text = f"id: {self.run}.{self.version}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
            self._sent = (after, self.version, text.encode())
        return self._sent[2]

    def since(self, run: str, after: int, last_event_id: str) -> int:
        """The version that a page has; 0: none of this process."""
        if last_event_id:
            run, _, number = last_event_id.partition(".")
            after = int(number) if number.isascii() and number.isdecimal() and len(number) < 16 else 0
        return after if run == self.run and after <= self.version else 0


class LiveAnswer(Response):
    """The answer of one page's stream. Its place is taken and given back here, so that no way of ending keeps it."""

    media_type = "text/event-stream"

    def __init__(self, feed: LiveFeed, token: str, lines: Callable[[], AsyncIterator[bytes]]) -> None:
        super().__init__(headers=HEADERS)
        self._feed, self._token, self._lines = feed, token, lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._feed.refusal(self._token)
        if refused is not None:
            await error_response(refused)(scope, receive, send)
            return
        self._feed.enter(self._token)
        try:
            await StreamingResponse(self._lines(), headers=HEADERS, media_type=self.media_type)(scope, receive, send)
        finally:
            self._feed.leave(self._token)
