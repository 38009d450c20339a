"""Server-sent events of the append-only record. One poll of the store feeds all who watch; each of them is bounded.

A stream is an answer that does not end. So that this defeats none of the API's other bounds (:mod:`holdfast.api.transport.connections`,
:mod:`holdfast.api.callers.readers`): there are few at a time, of one token and in all; what a reader misses is read within that token's
quota; one that does not keep up is disconnected; and its token is looked at again while it lasts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast import unexpected
from holdfast.api.answers.shapes import EventShape
from holdfast.api.errors import ApiError, error_response
from holdfast.api.transport.connections import Ended, attached
from holdfast.model.errors import OutsideError
from holdfast.model.event import Event, EventKind

log = logging.getLogger(__name__)

POLLING = "stream"
"""Part of this process (:mod:`holdfast.unexpected`)."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""The second: nginx hands each line on at once."""
HEARTBEAT = b": still here\n\n"
"""A comment, which clients skip. Proxies close a connection on which nothing comes, mostly after a minute."""
RETRY = b"retry: 5000\n\n"
"""Milliseconds that a browser waits before it connects again."""


_DIGITS = 18
"""Of a number that fits the store's 64 bits, whatever its digits."""


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """How many streams there are, and how far one may be behind."""

    per_token: int = 4
    in_all: int = 64
    """With the connections of agents in mind: each takes one of the same descriptors, and one poll of the store feeds all."""
    poll_s: float = 1.0
    heartbeat_s: float = 15.0
    check_s: float = 15.0
    """How often the token is looked at again. The list of tokens itself is read every 30 s, so that a stream ends within 45 s of a
    revocation."""
    batch: int = 500
    behind: int = 2000
    """Records that wait for a reader that takes none; two polls of the largest fault that was measured."""


@dataclass(frozen=True, slots=True)
class StreamFrame:
    """A record as it is sent."""

    id: int
    kind: EventKind | str
    node: str | None
    incident_id: str | None
    content: bytes


def frame_of(event: Event) -> StreamFrame:
    """JSON has no bare line break, so that no text of an agent or a user can begin a line."""
    shown = EventShape.model_validate(event)
    text = f"id: {event.id}\ndata: {shown.model_dump_json(by_alias=True)}\n\n"
    return StreamFrame(event.id, shown.kind, event.node, event.incident_id, text.encode())


@dataclass(frozen=True, slots=True)
class WantedRecords:
    """What a reader asked for; empty: everything."""

    kinds: frozenset[EventKind] = frozenset()
    node: str | None = None
    incident_id: str | None = None

    def takes(self, frame: StreamFrame) -> bool:
        return (
            (not self.kinds or frame.kind in self.kinds)
            and self.node in (None, frame.node)
            and self.incident_id in (None, frame.incident_id)
        )


@dataclass(eq=False)
class Viewer:
    """One reader: what waits for it. In one event loop."""

    wanted: WantedRecords
    position: int
    """The newest record that it has, or does not want."""
    behind: int
    cut: Callable[[], None] = lambda: None
    """Disconnects it at once, whatever it has not read."""
    lost: bool = False
    """It did not keep up."""
    _waiting: deque[StreamFrame] = field(default_factory=deque)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, frames: Sequence[StreamFrame]) -> None:
        """Have these wait for it. It is disconnected where too many do."""
        new = [f for f in frames if f.id > self.position]
        self._waiting.extend(filter(self.wanted.takes, new))
        self.position = max((f.id for f in new), default=self.position)
        if len(self._waiting) > self.behind:
            self.lost = True
            self._waiting.clear()
            self.cut()
        if self._waiting or self.lost:
            self._news.set()

    async def next(self, within_s: float) -> Sequence[StreamFrame]:
        """What has come, at latest after this time; empty: nothing has."""
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return []
        self._news.clear()
        taken = list(self._waiting)
        self._waiting.clear()
        return taken


class Streams:
    """All streams of this process. For one event loop at a time."""

    def __init__(
        self,
        read: Callable[[int, int], Awaitable[Sequence[StreamFrame]]],
        newest: Callable[[], Awaitable[int]],
        monotonic_s: Callable[[], float],
        bounds: StreamBounds = StreamBounds(),
    ) -> None:
        """``read``: at most a given number of records after one, oldest first; ``newest``: number of the newest, 0 for none. Both
        raise OutsideError, ApiError."""
        self.bounds = bounds
        self._read, self._newest, self._monotonic_s = read, newest, monotonic_s
        self._tokens: Counter[str] = Counter()
        self._viewers: set[Viewer] = set()
        self._at: int | None = None
        """The newest record that was handed out; None: no one watches."""
        self._polling: asyncio.Task[None] | None = None
        self._away = False

    def refusal(self, token: str) -> ApiError | None:
        """Why there is no place for one more stream of this token; None: there is."""
        for count, most, whose in (
            (self._tokens[token], self.bounds.per_token, "of this token"),
            (self._tokens.total(), self.bounds.in_all, "in all"),
        ):
            if count >= most:
                text = f"There are {count} streams {whose}, as many as may be: close one, or poll GET /v1/events?after_id=…"
                return ApiError(429, "too_many", text, retry_after_s=30)
        return None

    async def watch(
        self,
        viewer: Viewer,
        still_valid: Callable[[], Awaitable[bool]],
        read: Callable[[int, int], Awaitable[Sequence[StreamFrame]]],
    ) -> AsyncIterator[bytes]:
        """What one reader is sent. ``read``: as of the constructor, within the reader's quota; ``still_valid``: whether its token is."""
        checked_s = sent_s = self._monotonic_s()
        yield RETRY
        try:
            while not viewer.lost:
                live = viewer in self._viewers
                found = await (viewer.next(self.bounds.heartbeat_s) if live else self._missed(viewer, read))
                for frame in found:
                    yield frame.content
                now_s = self._monotonic_s()
                if not found and (live or now_s - sent_s >= self.bounds.heartbeat_s):
                    yield HEARTBEAT
                sent_s = now_s if found or live else sent_s
                if now_s - checked_s >= self.bounds.check_s:
                    checked_s = now_s
                    if not await still_valid():
                        return
        finally:
            self._viewers.discard(viewer)

    async def _missed(
        self, viewer: Viewer, read: Callable[[int, int], Awaitable[Sequence[StreamFrame]]]
    ) -> Sequence[StreamFrame]:
        """A batch of what the reader has missed. Where it has missed nothing, it is fed by the poll from now on."""
        try:
            if not self._viewers:
                newest = await self._newest()
                self._at = newest if not self._viewers else self._at
            if viewer.position >= (self._at or 0):
                self._join(viewer)
                return ()
            frames = await read(viewer.position, self.bounds.batch)
        except (ApiError, OutsideError) as error:
            wait_s = error.retry_after_s if isinstance(error, ApiError) else self.bounds.poll_s
            await asyncio.sleep(min(wait_s, self.bounds.heartbeat_s))
            return ()
        viewer.position = frames[-1].id if frames else max(viewer.position, self._at or 0)
        return [f for f in frames if viewer.wanted.takes(f)]

    def _join(self, viewer: Viewer) -> None:
        self._viewers.add(viewer)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        """Read what is new while there is someone to read it for."""
        while self._viewers:
            await self._poll_once()
        self._at = None

    async def _poll_once(self) -> None:
        full = False
        try:
            frames = await self._read(self._at or 0, self.bounds.batch)
        except (ApiError, OutsideError) as error:
            if not self._away:
                log.warning("event=stream_waits error=%r", str(error))
            self._away = True
        except Exception as error:  # noqa: BLE001 - the readers stay; the next poll shows whether it lasts
            unexpected.failed(POLLING, error)
        else:
            unexpected.passed(POLLING)
            self._away = False
            self._hand_out(frames)
            full = len(frames) >= self.bounds.batch
        if not full:
            await asyncio.sleep(self.bounds.poll_s)

    def _hand_out(self, frames: Sequence[StreamFrame]) -> None:
        if frames:
            self._at = max(self._at or 0, frames[-1].id)
            for viewer in tuple(self._viewers):
                viewer.offer(frames)

    def enter(self, token: str) -> None:
        self._tokens[token] += 1

    def leave(self, token: str) -> None:
        self._tokens[token] -= 1
        if self._tokens[token] <= 0:
            del self._tokens[token]


class EventStream(Response):
    """The answer of one stream. Its place is taken and given back here, so that no way of ending keeps it."""

    media_type = "text/event-stream"

    def __init__(
        self, streams: Streams, token: str, viewer: Viewer, lines: Callable[[Viewer], AsyncIterator[bytes]]
    ) -> None:
        super().__init__(headers=HEADERS)
        self._streams, self._token, self._viewer, self._lines = streams, token, viewer, lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._streams.refusal(self._token)
        if refused is not None:
            await error_response(refused)(scope, receive, send)
            return
        self._viewer.cut = _cut(scope)
        self._streams.enter(self._token)
        try:
            shown = StreamingResponse(self._lines(self._viewer), headers=HEADERS, media_type=self.media_type)
            await shown(scope, receive, send)
        finally:
            self._streams.leave(self._token)


def _cut(scope: Scope) -> Callable[[], None]:
    """Closes a request's connection at once: an end that waits until all is sent would wait for the reader that does not read."""
    found = attached(scope)
    if found is None:
        return lambda: None
    connections, connection = found
    return lambda: connections.end(connection, Ended.UNREAD)


def cursor_of(header: str, after_id: int | None, newest: int) -> int:
    """Where a stream begins: after the record of the header ``Last-Event-ID``, which a client sends that was cut off, of the parameter,
    or now. Raises ApiError 422 for what is no record's number, or is beyond the newest."""
    if header and not (header.isascii() and header.isdigit() and len(header) <= _DIGITS):
        raise ApiError(422, "invalid", "Last-Event-ID: the number of a record, as the stream gave it", "Last-Event-ID")
    wanted = int(header) if header else after_id
    if wanted is None:
        return newest
    if wanted > newest:
        text = f"There is no record {wanted}; the newest is {newest}. Was the store restored? Begin again at GET /v1/events"
        raise ApiError(422, "invalid", text, "Last-Event-ID" if header else "after_id")
    return wanted
