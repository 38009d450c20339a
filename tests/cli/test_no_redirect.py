"""The command line sends its token only to the controller, whatever the other side answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.api.client import ApiClient
from holdfast.model.errors import Rejected


@pytest.fixture
def asked() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server that redirects all requests to another of its paths: its URL, and each request with its token."""
    seen: list[tuple[str, str]] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Authorization", "")))
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", seen
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
def test_a_redirect_is_an_error(asked: tuple[str, list[tuple[str, str]]]) -> None:
    url, seen = asked
    with pytest.raises(Rejected, match="status 302; is this a Holdfast controller"):
        ApiClient(url, {"HOLDFAST_TOKEN": "secret"}).get("/v1/nodes")
    assert seen == [("/v1/nodes", "Bearer secret")]
