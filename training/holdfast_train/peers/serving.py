"""Serve state to peers that know the job's token: one HTTP server on one address of this node.

``/v1/STEP/…`` is the whole state of a step while a group is healed in it, ``/v1/rest/STEP/…`` the part of it that steps do not
determine; ``/v1/snapshot/STEP/…`` and ``/v1/delta/STEP/…`` are from the history, for groups that catch up; each has an ``index``,
and chunks by number. ``/v1/pace``, ``/v1/snapshot/STEP/arm`` and ``…/done`` are answered in JSON."""

from __future__ import annotations

import json
import logging
import re
import threading
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from holdfast_train.peers.history import History
from holdfast_train.peers.proof import ASKED, PROOF, ask_proof, good_nonce, same, tell_proof
from holdfast_train.tensors.codec import Readable

log = logging.getLogger(__name__)

CHUNK_BYTES = 16 << 20
"""Large enough that the overhead of requests is negligible, small enough that a corrupt chunk is quickly requested again."""
_SILENCE_S = 30.0
_PATH = re.compile(r"/v1/(?:(rest|snapshot|delta)/)?(\d{1,15})/(index|arm|done|\d{1,9})", re.ASCII)
_PACE = "/v1/pace"


def chunk(state: Readable, number: int) -> bytearray | memoryview:
    """Empty when there is no such chunk."""
    return state.read(number * CHUNK_BYTES, (number + 1) * CHUNK_BYTES)


class StateServer:
    """Serves at most one state with its rest, the latest offered, and a history."""

    def __init__(self, key: bytes, address: str) -> None:
        """Raises OSError when the address cannot be bound."""
        self._key = key
        self.history: History | None = None
        self._held: tuple[int, dict[str, Readable]] | None = None
        self._newest = -1
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = ThreadingHTTPServer((address, 0), handler)
        self._server.daemon_threads = True
        host, port = self._server.server_address[:2]
        self.url = f"http://{host!s}:{port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="peer-state", daemon=True)
        self._thread.start()

    def hold(self, step: int, state: Readable, rest: Readable | None = None) -> None:
        """``state`` may change once it is released, and not before."""
        held = {"": state}
        if rest is not None:
            held["rest"] = rest
        self._held, self._newest = (step, held), step

    def release(self) -> None:
        """End the offer: only what was read of it until now is still sent."""
        self._held = None

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(
        self, path: str, nonce: str | None, shown: str | None
    ) -> tuple[int, bytes | bytearray | memoryview, str]:
        """Status, body and proof. 404: not offered yet, retry; 410: that step is over."""
        if not good_nonce(nonce) or nonce is None or not same(shown, ask_proof(self._key, path, nonce)):
            return 403, b"", ""
        status, body = self._answer(path)
        return status, body, tell_proof(self._key, path, nonce, body) if status == 200 else ""

    def _answer(self, path: str) -> tuple[int, bytes | bytearray | memoryview]:
        match = _PATH.fullmatch(path)
        if match is None or match[3] in ("arm", "done"):
            return self._words(path, match)
        kind, step, part = match[1] or "", int(match[2]), match[3]
        status, state = self._find(kind, step)
        if state is None:
            return status, b""
        body = state.index if part == "index" else chunk(state, int(part))
        if self._find(kind, step)[1] is not state:  # it may have changed while it was read
            return 410, b""
        return (200, body) if len(body) else (410, b"")

    def _words(self, path: str, match: re.Match[str] | None) -> tuple[int, bytes]:
        history = self.history
        if history is None or (match is None and path != _PACE) or (match is not None and match[1] != "snapshot"):
            return 410, b""
        if match is not None and match[3] == "done":
            history.done()
        pace = history.arm(int(match[2])) if match is not None and match[3] == "arm" else history.pace()
        return 200, json.dumps(asdict(pace)).encode()

    def _find(self, kind: str, step: int) -> tuple[int, Readable | None]:
        if kind in ("snapshot", "delta"):
            return self.history.find(kind, step) if self.history is not None else (410, None)
        held = self._held
        if held is None or held[0] != step:
            return (410 if step < self._newest else 404), None
        state = held[1].get(kind)
        return (200, state) if state is not None else (410, None)


class _Handler(BaseHTTPRequestHandler):
    owner: ClassVar[StateServer]
    protocol_version = "HTTP/1.1"
    timeout = _SILENCE_S

    def do_GET(self) -> None:
        status, body, proof = self.owner.answer(self.path, self.headers.get(ASKED), self.headers.get(PROOF))
        if status == 403:
            log.warning("event=peer_refused peer=%s reason='no proof of the job token'", self.client_address[0])
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header(PROOF, proof)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError as error:
            log.info("event=peer_gone peer=%s error=%r", self.client_address[0], str(error))
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Suppress the log line per request."""
