"""Gives a frozen state to peers that know the job's token: one HTTP server on one address of this node."""

from __future__ import annotations

import logging
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from holdfast_train.codec import Packed
from holdfast_train.proof import ASKED, PROOF, ask_proof, good_nonce, same, tell_proof

log = logging.getLogger(__name__)

CHUNK_BYTES = 16 << 20
"""Large enough that requests cost nothing beside the bytes, small enough that a broken one is quickly asked for again."""
_SILENCE_S = 30.0
_PATH = re.compile(r"/v1/(\d{1,15})/(index|\d{1,9})", re.ASCII)


def chunk(packed: Packed, number: int) -> memoryview:
    """Empty when there is no such chunk."""
    return memoryview(packed.body)[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES]


class StateServer:
    """Serves at most one state, the latest that it was given; requests in progress keep theirs."""

    def __init__(self, key: bytes, address: str) -> None:
        """Raises OSError when the address cannot be bound."""
        self._key = key
        self._held: tuple[int, Packed] | None = None
        self._newest = -1
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = ThreadingHTTPServer((address, 0), handler)
        self._server.daemon_threads = True
        host, port = self._server.server_address[:2]
        self.url = f"http://{host!s}:{port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="peer-state", daemon=True)
        self._thread.start()

    def hold(self, step: int, packed: Packed) -> None:
        self._held, self._newest = (step, packed), step

    def release(self) -> None:
        self._held = None

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, nonce: str | None, shown: str | None) -> tuple[int, bytes | memoryview, str]:
        """Status, body and proof. 404: not offered yet, ask again; 410: that step is past."""
        if not good_nonce(nonce) or nonce is None or not same(shown, ask_proof(self._key, path, nonce)):
            return 403, b"", ""
        match, held = _PATH.fullmatch(path), self._held
        if match is None or held is None or held[0] != int(match[1]):
            return (410 if match is None or int(match[1]) < self._newest else 404), b"", ""
        body = held[1].index if match[2] == "index" else chunk(held[1], int(match[2]))
        return (200, body, tell_proof(self._key, path, nonce, body)) if len(body) else (410, b"", "")


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
        """Not a line for each request."""
