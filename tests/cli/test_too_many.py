"""The command line's retries while its token requests too much: it waits as long as the controller says, a few times, and says so."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.api.client import LONGEST_WAIT_S, MOST_TRIES, ApiClient
from holdfast.model.errors import Rejected

TEXT = "This token (viewer eve) asks for more than 20 requests a second; try again in 3 s"


class Busy:
    """A controller that answers 429 this many times, then 200."""

    def __init__(self) -> None:
        self.times = 0
        self.retry_after = "3"
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append(self.command)
                limited = len(outer.asked) <= outer.times
                body = json.dumps({"error": {"code": "too_many", "message": TEXT}} if limited else {"nodes": []})
                self.send_response(429 if limited else 200)
                self.send_header("Retry-After", outer.retry_after)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            do_GET = do_POST = answer  # noqa: N815 - names of the base class

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def busy() -> Iterator[Busy]:
    made = Busy()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def waits_s() -> list[float]:
    return []


@pytest.fixture
def client(busy: Busy, waits_s: list[float]) -> ApiClient:
    url = f"http://127.0.0.1:{busy.server.server_address[1]}"
    return ApiClient(url, {"HOLDFAST_TOKEN": "secret"}, waits_s.append)


def test_it_waits_as_long_as_it_is_told_and_says_so(
    client: ApiClient, busy: Busy, waits_s: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    busy.times = 2
    assert client.get("/v1/nodes") == {"nodes": []}
    assert waits_s == [3.0, 3.0]
    assert capsys.readouterr().err == f"holdfast: {TEXT}; waiting 3 s\n" * 2


def test_an_order_is_sent_again_too(client: ApiClient, busy: Busy) -> None:
    """It was refused before anything of it was done."""
    busy.times = 1
    assert client.post("/v1/pause", {"reason": "x"}) == {"nodes": []}
    assert busy.asked == ["POST", "POST"]


def test_it_gives_up_in_the_end(client: ApiClient, busy: Busy, waits_s: list[float]) -> None:
    busy.times = 99
    with pytest.raises(Rejected, match="asks for more than 20 requests a second"):
        client.get("/v1/nodes")
    assert len(busy.asked) == MOST_TRIES
    assert len(waits_s) == MOST_TRIES - 1


def test_it_does_not_wait_for_minutes(client: ApiClient, busy: Busy, waits_s: list[float]) -> None:
    busy.times, busy.retry_after = 99, str(int(LONGEST_WAIT_S) + 1)
    with pytest.raises(Rejected):
        client.get("/v1/nodes")
    assert (len(busy.asked), waits_s) == (1, [])


@pytest.mark.parametrize("word", ["", "soon", "²"])
def test_a_time_that_cannot_be_read_is_a_second(client: ApiClient, busy: Busy, waits_s: list[float], word: str) -> None:
    busy.times, busy.retry_after = 1, word.encode().decode("latin-1")
    client.get("/v1/nodes")
    assert waits_s == [1.0]
