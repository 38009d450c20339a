"""`GET /v1/stream`: all records from a cursor, over real connections; and that no reader of it takes what others need."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.api.callers.auth import hash_token
from holdfast.api.errors import ApiError
from holdfast.api.stream import StreamBounds, StreamFrame, Streams, Viewer, WantedRecords, cursor_of, frame_of
from holdfast.api.transport.connections import Ended
from holdfast.model.book import Change
from holdfast.model.errors import Unavailable
from holdfast.model.event import Event, EventKind
from support.serving import Running, running, until

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BRISK = StreamBounds(poll_s=0.01, heartbeat_s=0.2, check_s=0.0)


def event(text: str, kind: EventKind = EventKind.PAUSED, node: str | None = None) -> Event:

    return Event(AT, kind, node=node, text=text)


def frame(number: int, node: str | None = None) -> StreamFrame:
    return StreamFrame(number, EventKind.PAUSED, node, None, f"id: {number}\n\n".encode())


class TestViewer:
    def test_it_gets_what_it_wants_once(self) -> None:
        viewer = Viewer(WantedRecords(node="n1"), position=2, behind=10)
        viewer.offer([frame(2, "n1"), frame(3, "n2"), frame(4, "n1")])
        viewer.offer([frame(4, "n1"), frame(5, "n1")])
        assert [f.id for f in asyncio.run(viewer.next(0))] == [4, 5]

    def test_one_that_takes_none_is_cut_off_and_keeps_nothing(self) -> None:
        cut: list[int] = []
        viewer = Viewer(WantedRecords(), position=0, behind=3, cut=lambda: cut.append(1))
        viewer.offer([frame(n) for n in range(1, 4)])
        assert not viewer.lost
        viewer.offer([frame(4)])
        assert (viewer.lost, len(cut), asyncio.run(viewer.next(0))) == (True, 1, [])

    @pytest.mark.parametrize(
        ("wanted", "takes"),
        [
            (WantedRecords(), True),
            (WantedRecords(kinds=frozenset({EventKind.PAUSED})), True),
            (WantedRecords(kinds=frozenset({EventKind.RESUMED})), False),
            (WantedRecords(node="n2"), False),
            (WantedRecords(incident_id="x"), False),
        ],
    )
    def test_filters(self, wanted: WantedRecords, takes: bool) -> None:
        assert wanted.takes(frame(1, "n1")) is takes


@pytest.mark.parametrize("header", ["x", "-1", "1.0", "0x1", "١", " ", "9" * 19, "1;2", "999"])
def test_a_cursor_that_is_none_is_refused(header: str) -> None:
    with pytest.raises(ApiError) as refused:
        cursor_of(header, None, newest=100)
    assert refused.value.status == 422


def test_the_header_goes_before_the_parameter_and_neither_means_now() -> None:
    assert (cursor_of("7", 3, 100), cursor_of("", 3, 100), cursor_of("", None, 100), cursor_of("", 0, 100)) == (
        7,
        3,
        100,
        0,
    )
    with pytest.raises(ApiError):
        cursor_of("", 101, 100)


def test_no_text_begins_a_line_of_its_own() -> None:
    sent = frame_of(event("x\n\nid: 9\rdata: evil\u2028\r\n\r\n: y")).content
    assert sent.count(b"\n") == 3
    assert b"\r" not in sent
    assert json.loads(sent.split(b"data: ", 1)[1])["text"].startswith("x\n\nid: 9")


class Source:
    """Records of a store, and how often they were asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.reads = 0
        self.away = False

    async def read(self, after_id: int, most: int) -> Sequence[StreamFrame]:
        self.reads += 1
        if self.away:
            raise Unavailable("the database does not answer")
        return [frame(n) for n in range(after_id + 1, self.count + 1)][:most]

    async def newest(self) -> int:
        return self.count


async def ids_of(streams: Streams, source: Source, after: int, until_id: int) -> list[int]:
    async def valid() -> bool:
        return True

    found: list[int] = []
    async for line in streams.watch(Viewer(WantedRecords(), after, 1000), valid, source.read):
        found += [int(line[4:])] if line.startswith(b"id: ") else []
        if found and found[-1] == until_id:
            break
    return found


def streams_of(source: Source, bounds: StreamBounds = BRISK) -> Streams:
    return Streams(source.read, source.newest, lambda: asyncio.get_running_loop().time(), bounds)


def test_one_poll_feeds_all_and_each_gets_everything_once() -> None:
    async def main() -> None:
        source = Source(40)
        streams = streams_of(source, StreamBounds(poll_s=0.02, batch=7, heartbeat_s=5))
        readers = [asyncio.create_task(ids_of(streams, source, after, 60)) for after in (0, 3, 40, 40, 40, 40, 40, 40)]
        while len(streams._viewers) < len(readers):
            await asyncio.sleep(0)
        before = source.reads
        source.count = 60
        found = [await asyncio.wait_for(r, 5) for r in readers]
        assert found == [list(range(after + 1, 61)) for after in (0, 3, 40, 40, 40, 40, 40, 40)]
        assert source.reads - before <= 8, "three batches and a few polls, not three batches for each"
        for _ in range(100):
            await asyncio.sleep(0.01)
            if streams._polling is None or streams._polling.done():
                break
        assert streams._polling is not None
        assert streams._polling.done(), "no one watches: nothing is read"

    asyncio.run(main())


def test_while_the_database_is_away_the_stream_stays_and_loses_nothing() -> None:
    async def main() -> None:
        source = Source(5)
        streams = streams_of(source)
        reader = asyncio.create_task(ids_of(streams, source, 5, 9))
        while not streams._viewers:
            await asyncio.sleep(0)
        source.away, source.count = True, 9
        await asyncio.sleep(0.05)
        assert not reader.done()
        source.away = False
        assert await asyncio.wait_for(reader, 5) == [6, 7, 8, 9]

    asyncio.run(main())


@contextmanager
def serving(served: Any, bounds: StreamBounds) -> Iterator[Running]:
    streams = served.app.state.api.streams
    before, streams.bounds = streams.bounds, bounds
    try:
        with running(served.app) as server:
            yield server
    finally:
        streams.bounds = before


def open_stream(server: Running, who: str, query: str = "", *headers: str, receive_bytes: int = 0) -> socket.socket:
    made = server.connect()
    if receive_bytes:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    lines = [f"GET /v1/stream{query} HTTP/1.1", "Host: x", f"Authorization: Bearer token-{who}", *headers, "", ""]
    made.sendall("\r\n".join(lines).encode())
    return made


def read_until(made: socket.socket, word: bytes) -> bytes:
    found = b""
    with suppress(OSError):
        while word not in found:
            part = made.recv(65_536)
            if not part:
                break
            found += part
    return found


def ids(content: bytes) -> list[int]:
    return [int(line[4:]) for line in content.splitlines() if line.startswith(b"id: ")]


@pytest.mark.slow
class TestOverConnections:
    def test_what_was_missed_and_what_comes(self, served: Any) -> None:
        served.commit(Change(events=tuple(event(f"old-{n}") for n in range(3))))
        first = served.store.events()[0].id
        with serving(served, BRISK) as server:
            made = open_stream(server, "eve", f"?after_id={first}")
            head = read_until(made, b"old-2")
            assert b"content-type: text/event-stream" in head.lower()
            assert ids(head) == [first + 1, first + 2]
            served.commit(Change(events=(event("new"),)))
            assert ids(read_until(made, b'"new"')) == [first + 3]
            again = open_stream(server, "eve", "?after_id=0", f"Last-Event-ID: {first + 2}")
            assert ids(read_until(again, b'"new"')) == [first + 3]
            assert read_until(again, b": still here"), "a comment comes while nothing happens"

    @pytest.mark.parametrize(("who", "status"), [("1001", 403), ("n1", 403), ("nobody", 401)])
    def test_for_viewers_and_operators_alone(self, served: Any, who: str, status: int) -> None:
        with serving(served, BRISK) as server:
            assert f" {status} ".encode() in read_until(open_stream(server, who), b"}}")

    def test_one_token_takes_no_more_than_its_places_nor_all_of_them(self, served: Any) -> None:
        with serving(served, StreamBounds(per_token=2, in_all=3, poll_s=0.01, heartbeat_s=0.1)) as server:
            mine = [open_stream(server, "eve") for _ in range(2)]
            assert all(b" 200 " in read_until(made, b"retry") for made in mine)
            refused = read_until(open_stream(server, "eve"), b"}}")
            assert b" 429 " in refused
            assert b"2 streams of this token" in refused
            assert b" 200 " in read_until(open_stream(server, "op"), b"retry"), "another token has its own"
            assert b"3 streams in all" in read_until(open_stream(server, "op"), b"}}")
            mine[0].close()
            streams = served.app.state.api.streams
            until(lambda: streams._tokens.total() == 2)
            assert b" 200 " in read_until(open_stream(server, "eve"), b"retry"), "its place was given back"
        until(lambda: streams._tokens.total() == 0)

    def test_it_ends_with_its_token(self, served: Any) -> None:
        with serving(served, BRISK) as server:
            made = open_stream(server, "eve")
            read_until(made, b": still here")
            served.store.revoke_token(hash_token("token-eve"))
            served.clock.passed_s += 60
            assert read_until(made, b"never").endswith(b"0\r\n\r\n")

    def test_one_that_reads_nothing_is_disconnected(self, served: Any) -> None:
        large = tuple(event("x" * 100_000) for _ in range(30))
        with serving(served, StreamBounds(poll_s=0.01, behind=20)) as server:
            made = open_stream(server, "eve", receive_bytes=4096)
            until(lambda: bool(served.app.state.api.streams._viewers))
            for _ in range(8):
                served.commit(Change(events=large[:15]))
            until(lambda: server.ended.get(Ended.UNREAD, 0) == 1)
            until(lambda: served.app.state.api.streams._tokens.total() == 0)
            assert len(ids(read_until(made, b"never"))) < 8 * 15
