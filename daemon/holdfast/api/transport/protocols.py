"""uvicorn's protocols, with bounds of ours: at which stage a connection is, and how much of a request is kept.

A head has 64 KiB and 100 headers at most; a larger one is answered 431, and its connection closed. httptools itself has no bound: it
keeps a header that never ends, and each request of a row that is sent at once."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.api.errors import ApiError, error_response
from holdfast.api.transport.connections import Connection, ConnectionStage, attach
from holdfast.api.transport.listening import ConnectionGuard

MAX_HEAD_BYTES = 64 * 1024
"""Of a request's target and headers together."""
MAX_HEADERS = 100
MAX_WAITING_REQUESTS = 2
"""On one connection, sent without waiting for the answers before, which no client of ours does; their heads are kept until then."""
_TOO_LARGE = error_response(
    ApiError(
        431,
        "head_too_large",
        f"The request has more than {MAX_HEADERS} headers, or more than {MAX_HEAD_BYTES // 1024} KiB of them",
    )
)
_TOO_LARGE.headers["Connection"] = "close"


def head_too_large(scope: Scope) -> bool:
    """Whether a request's head is beyond the bounds."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    if len(headers) > MAX_HEADERS:
        return True
    target_bytes = len(scope["raw_path"]) + len(scope["query_string"])
    return target_bytes + sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES


class _Guarded(asyncio.Protocol):
    """Before one of uvicorn's protocols: its connection's stage is known at each moment. Uses of uvicorn what is the same in both."""

    config: Any
    app: Any
    transport: Any
    cycle: Any
    flow: Any
    _guard: ConnectionGuard
    _connection: Connection | None = None
    """None: the event loop does not accept by our listener."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._guard = self.config.guard
        connection = self._connection = self._guard.of(transport)
        if connection is None:
            return
        cut, inner, connections = connection.close, self.app, self._guard.connections

        def close() -> None:
            cut()
            self.transport.abort()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            attach(scope, connections, connection)
            await (_TOO_LARGE if head_too_large(scope) else inner)(scope, receive, send)

        connection.close, connection.paused, self.app = close, lambda: bool(self.flow.read_paused), app

    def abandon(self) -> None:
        """There will be no connection: what refers to each other would wait for the collector."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connection, self.app = None, None  # what refers to each other would wait for the collector

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # under TLS what had come before our close
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # type: ignore[misc]
        self._note()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread(False)

    def _end_too_large(self) -> None:
        """Answer a head whose end is not waited for, and close."""
        lines = [
            b"HTTP/1.1 431 Request Header Fields Too Large",
            *(b"%b: %b" % each for each in _TOO_LARGE.raw_headers),
        ]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(_TOO_LARGE.body)]))
        self.transport.close()

    def _unread(self, unread: bool) -> None:
        if self._connection is not None:
            self._guard.connections.unread(self._connection, unread)

    def _note(self) -> None:
        if self._connection is not None:
            self._guard.connections.enter(self._connection, self._stage(), self.cycle)

    def _stage(self) -> ConnectionStage:
        if self.cycle is None:
            return ConnectionStage.HEAD
        return self._reading() or (ConnectionStage.IDLE if self.cycle.response_complete else ConnectionStage.ANSWERING)

    def _reading(self) -> ConnectionStage | None:
        """What of a request is incomplete; None: nothing."""
        raise NotImplementedError


class GuardedH11(_Guarded, H11Protocol):
    """In pure Python. h11 itself keeps no more of a head than the server allows."""

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what h11 refuses, whatever the reason."""
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == _TOO_LARGE.status_code:
            self._end_too_large()
        else:
            super().send_400_response(msg)

    def _reading(self) -> ConnectionStage | None:
        if self.conn.their_state is h11.SEND_BODY:
            return ConnectionStage.BODY
        begun = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        return ConnectionStage.HEAD if begun else None


protocol: type[asyncio.Protocol] = GuardedH11
"""What the server speaks: by httptools where it is installed."""

with contextlib.suppress(ImportError):
    import httptools
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class GuardedHttpTools(_Guarded, HttpToolsProtocol):
        """By httptools, whose parser calls back."""

        _incomplete: ConnectionStage | None = None
        _kept_bytes = 0
        """What was given to the parser since it last came to another part of a request: a head or a trailer that it keeps."""
        _came_on = False
        _headers = 0

        def data_received(self, data: bytes) -> None:
            for start in range(0, len(data), MAX_HEAD_BYTES):
                part, self._came_on = data[start : start + MAX_HEAD_BYTES], False
                super().data_received(part)
                self._kept_bytes = 0 if self._came_on else self._kept_bytes + len(part)
                if self._kept_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                    self._end_too_large()

        def abandon(self) -> None:
            self.parser = None  # type: ignore[assignment]

        def _reading(self) -> ConnectionStage | None:
            return self._incomplete

        def _enter(self, incomplete: ConnectionStage | None) -> None:
            self._incomplete, self._came_on = incomplete, True

        def on_message_begin(self) -> None:
            if len(self.pipeline) >= MAX_WAITING_REQUESTS:
                raise httptools.HttpParserError("too many requests in a row")
            super().on_message_begin()
            self._headers = 0
            self._enter(ConnectionStage.HEAD)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._headers += 1
            if (
                self._incomplete is ConnectionStage.HEAD and self._headers <= MAX_HEADERS + 1
            ):  # neither trailers nor what is refused
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            self._enter(ConnectionStage.BODY)

        def on_body(self, body: bytes) -> None:
            super().on_body(body)
            self._came_on = True

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._enter(None)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.pipeline:  # nothing is read before what waits has had its turn
                self.flow.pause_reading()

    protocol = GuardedHttpTools
