"""A server of the API's in a separate thread, and connections to it over real sockets."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from holdfast.api.transport import protocols
from holdfast.api.transport.connections import Bounds, Connections, Ended
from holdfast.api.transport.server import build_server

BRIEF = Bounds(200, 200, head_s=0.5, body_s=1.0, unread_s=0.5, idle_s=2.0)
GET = b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"
BIG_BYTES = 64 << 20


def small_app() -> FastAPI:
    app = FastAPI(openapi_url=None)

    @app.get("/quick")
    async def quick() -> str:
        return "quick"

    @app.get("/slow")
    async def slow() -> str:
        await asyncio.sleep(3)
        return "slow"

    @app.post("/refuses")
    async def refuses() -> Response:
        return PlainTextResponse("no", 401)

    @app.post("/reads")
    async def reads(request: Request) -> int:
        return len(await request.body())

    @app.post("/reads/late")
    async def reads_late(request: Request) -> int:
        await asyncio.sleep(2)
        return len(await request.body())

    @app.get("/big")
    async def big() -> Response:
        return PlainTextResponse(b"x" * BIG_BYTES)

    return app


class Running:
    """A server in a separate thread."""

    def __init__(self, connections: Connections, port: int) -> None:
        self.connections = connections
        self.port = port
        self.tls: ssl.SSLContext | None = None
        self.open = ExitStack()

    @property
    def ended(self) -> dict[Ended, int]:
        return dict(self.connections.ended)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Without TLS."""
        made = self.open.enter_context(
            socket.create_connection(("127.0.0.1", self.port), 10, source_address=(source, 0))
        )
        made.settimeout(10)
        return made

    def client(self, source: str = "127.0.0.1") -> socket.socket:
        """After the handshake, where there is one."""
        if self.tls is None:
            return self.connect(source)
        plain = socket.socket()
        plain.settimeout(10)
        plain.bind((source, 0))
        # Wrapped before it connects: a socket that is reset while it is being wrapped would be left behind.
        made = self.open.enter_context(self.tls.wrap_socket(plain))
        made.connect(("127.0.0.1", self.port))
        return made


@contextmanager
def running(app: FastAPI, bounds: Bounds = BRIEF, *, tls: Path | None = None) -> Iterator[Running]:
    connections = Connections(bounds, time.monotonic)
    pair = {"tls_cert": str(tls / "tls.pem"), "tls_key": str(tls / "tls.key")} if tls is not None else {}
    server = build_server(app, host="127.0.0.1", port=0, connections=connections, **pair)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        until(lambda: server.started)
        made = Running(connections, server.servers[0].sockets[0].getsockname()[1])
        if tls is not None:
            made.tls = ssl.create_default_context(cafile=str(tls / "ca.pem"))
            made.tls.check_hostname = False
        with made.open:
            yield made
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def until(done: Callable[[], bool], within_s: float = 20.0) -> None:
    until_s = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def lasted_s(made: socket.socket, *, trickle: bytes = b"", within_s: float = 8.0) -> float:
    """How long until the other side closed it, while these bytes are sent one by one, repeatedly. ``within_s`` if it did not."""
    began_s = time.monotonic()
    made.settimeout(0.1)
    sent = 0
    while (passed_s := time.monotonic() - began_s) < within_s:
        try:
            if trickle:
                made.send(trickle[sent % len(trickle)].to_bytes(1, "big"))
                sent += 1
            if not made.recv(65_536):
                return passed_s
        except (TimeoutError, ssl.SSLWantReadError):
            continue
        except OSError:
            return passed_s
    return within_s


def answer(made: socket.socket, request: bytes) -> bytes:
    """The whole answer, with its head. Raises OSError where the connection is closed."""
    made.settimeout(10)
    made.sendall(request)
    found, size = b"", -1
    while size < 0 or len(found) < size:
        part = made.recv(65_536)
        if not part:
            raise ConnectionError("closed")
        found += part
        head, end, _ = found.partition(b"\r\n\r\n")
        if end:
            length = re.search(rb"content-length: (\d+)", head.lower())
            assert length is not None
            size = len(head) + len(end) + int(length[1])
    return found


def spoken(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the next server use this one of uvicorn's parsers: httptools or h11."""
    assert protocols.protocol is not protocols.GuardedH11
    if name == "h11":
        monkeypatch.setattr(protocols, "protocol", protocols.GuardedH11)
    return name
