"""Answers to the command line that no controller gives are one clear line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.api import client as module
from holdfast.api.client import ApiClient
from holdfast.model.errors import Unavailable

Serve = Callable[[int, bytes], ApiClient]


@pytest.fixture
def serve() -> Iterator[Serve]:
    told: list[tuple[int, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = told[-1]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()

    def answer(status: int, body: bytes) -> ApiClient:
        told.append((status, body))
        return ApiClient(f"http://127.0.0.1:{server.server_address[1]}", {"HOLDFAST_TOKEN": "secret"})

    yield answer
    server.shutdown()
    server.server_close()
    thread.join()


def test_one_without_end_is_left(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    with pytest.raises(Unavailable, match="answered with more than 1000 bytes"):
        serve(200, b" " * 2000).fetch("/v1/nodes")
    assert serve(200, b" " * 1000).fetch("/v1/nodes") == b" " * 1000


@pytest.mark.parametrize("status", [200, 500])
def test_one_that_is_nested_without_end_is_no_json(serve: Serve, status: int) -> None:
    with pytest.raises(Unavailable):
        serve(status, b"[" * 200_000 + b"]" * 200_000).get("/v1/nodes")
