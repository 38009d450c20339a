"""A stand-in for the controller, as far as an agent needs it, that records what arrived when."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that ends closes its connections: not reported; any other error is a fault of the bench."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Endpoint:
    """Listens on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], float] = {}
        """(check, code) → CLOCK_MONOTONIC when the first report of it had arrived."""
        self.inventories = 0
        self._changed = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_arguments: object) -> None: ...

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                at_s = time.monotonic()
                outer._take(json.loads(body), at_s)
                self._answer({"leader": True, "duplicate": False})

            def do_GET(self) -> None:
                time.sleep(1.0)  # a poll for orders, of which there are none
                self._answer({"orders": []})

            def _answer(self, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _take(self, body: dict[str, Any], at_s: float) -> None:
        with self._changed:
            for item in body.get("items", ()):
                if item["kind"] == "finding":
                    self.seen.setdefault((str(item["check"]), str(item["code"])), at_s)
                self.inventories += item["kind"] == "inventory"
            self._changed.notify_all()

    def wait(self, findings: int, within_s: float) -> bool:
        """Wait until this many different findings have arrived."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.seen) >= findings, within_s)

    def wait_for_inventory(self, within_s: float) -> bool:
        """Wait until the agent has reported its GPUs."""
        with self._changed:
            return self._changed.wait_for(lambda: self.inventories > 0, within_s)

    @contextmanager
    def listening(self) -> Iterator[Endpoint]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
