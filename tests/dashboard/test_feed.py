"""What changes on the first screen, as it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import anyio

from holdfast.api.stream import HEARTBEAT, RETRY
from holdfast.dashboard.feed import FeedBounds, LiveFeed


class Source:
    def __init__(self) -> None:
        self.pieces = {"now": "<h1>quiet</h1>", "tiles": "<dl>1</dl>"}
        self.made = 0
        self.now_s = 0.0

    async def make(self) -> Mapping[str, str]:
        self.made += 1
        return dict(self.pieces)


def feed_of(source: Source, **bounds: float) -> LiveFeed:
    return LiveFeed(source.make, lambda: source.now_s, FeedBounds(**bounds))  # type: ignore[arg-type]


async def yes() -> bool:
    return True


def run(work: Callable[[], Awaitable[None]]) -> None:
    anyio.run(work)


async def next_of(lines: AsyncIterator[bytes]) -> bytes:
    return await asyncio.wait_for(anext(lines), 5)


def test_pieces_are_made_once_a_second_for_everybody() -> None:
    source = Source()

    async def work() -> None:
        feed = feed_of(source)
        await asyncio.gather(*(feed.current() for _ in range(50)))
        assert source.made == 1
        source.now_s += 1.0
        await feed.current()
        assert source.made == 2

    run(work)


def test_only_what_changed_is_sent_and_only_once() -> None:
    source = Source()

    async def work() -> None:
        feed = feed_of(source)
        await feed.current()
        lines = feed.watch(0, yes)
        assert await next_of(lines) == RETRY
        first = (await next_of(lines)).decode()
        assert "quiet" in first
        assert "<dl>1</dl>" in first
        source.pieces["now"] = "<h1>healing\nn1</h1>"
        source.now_s += 1.0
        await feed.current()
        second = (await next_of(lines)).decode()
        assert "tiles" not in second
        assert second == (
            f"id: {feed.run}.2\n"
            'data: <hx-partial hx-target="#now" hx-swap="innerMorph"><h1>healing\n'
            "data: n1</h1></hx-partial>\n\n"
        )

    run(work)


def test_a_text_cannot_begin_another_message() -> None:
    """Every kind of line break that a browser's parser knows."""
    source = Source()
    source.pieces = {"now": "a\r\nevent: x\rid: 9\n\ndata: forged\u2028b\x85c"}

    async def work() -> None:
        feed = feed_of(source)
        await feed.current()
        lines = feed.watch(0, yes)
        await next_of(lines)
        sent = (await next_of(lines)).decode().removesuffix("\n\n")
        parts = sent.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert parts[0].startswith("id: ")
        assert all(line.startswith("data: ") for line in parts[1:])

    run(work)


def test_a_page_of_another_process_begins_again() -> None:
    feed = feed_of(Source())
    feed.version = 7
    assert feed.since(feed.run, 5, "") == 5
    assert feed.since("other", 5, "") == 0
    assert feed.since("other", 0, f"{feed.run}.6") == 6
    assert feed.since(feed.run, 5, "other.6") == 0
    assert feed.since(feed.run, 8, "") == 0
    assert feed.since(feed.run, 5, f"{feed.run}.{'9' * 40}") == 0


def test_it_ends_with_its_session() -> None:
    source = Source()

    async def no() -> bool:
        return False

    async def work() -> None:
        feed = feed_of(source, check_s=0.0, heartbeat_s=0.01)
        await feed.current()
        lines = feed.watch(feed.version, no)
        assert await next_of(lines) == RETRY
        assert await next_of(lines) == HEARTBEAT
        assert b"signed-out" in await next_of(lines)
        assert [line async for line in lines] == []

    run(work)


def test_pages_are_bounded_by_token_and_in_all() -> None:
    source = Source()

    async def work() -> None:
        feed = feed_of(source, in_all=3, per_token=2)
        for token in ("a", "a", "b"):
            assert feed.refusal(token) is None
            feed.enter(token)
        refused = feed.refusal("a")
        assert refused is not None
        assert refused.status == 429
        assert feed.refusal("c") is not None
        feed.leave("a")
        assert feed.refusal("c") is None
        feed.leave("a")
        feed.leave("b")

    run(work)
