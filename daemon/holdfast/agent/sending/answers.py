"""Bounded answers to the agent's requests: limited in size, and complete within the request's timeout. I/O only.

The sender may be an attacker who controls the controller: an answer is not decompressed, and its bytes do not extend the timeout."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any, cast

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

MOST_BYTES = 1024 * 1024
"""Size limit of an answer: the longest of a controller, orders with their arguments, has a tenth of this."""


class UnreadableAnswer(urllib3.exceptions.HTTPError):
    """An answer that no controller sends, in one line."""


class _InTime(io.RawIOBase):
    """Reads a socket with its current timeout as a limit for all bytes together, not for each read."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        timeout_s = sock.gettimeout()
        self._sock, self._raw = sock, raw
        self._until_s = None if timeout_s is None else time.monotonic() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._until_s is not None:
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(left_s)
        return cast("int | None", self._raw.readinto(buffer))

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_InTime(sock, self.fp.detach()))


class _Connection(HTTPConnection):
    response_class = _Response


class _TlsConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def bounded(manager: urllib3.PoolManager) -> urllib3.PoolManager:
    """The same manager with total timeouts for its answers, headers included."""
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return manager


def read(response: urllib3.BaseHTTPResponse) -> bytes:
    """Read the body of an answer (``preload_content=False``). Raises urllib3's HTTPError."""
    whole = False
    try:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise UnreadableAnswer(f"the answer is packed ({encoding[:20]!r}), which was not asked for")
        body = bytearray()
        while piece := response.read(MOST_BYTES + 1 - len(body), decode_content=False):
            body += piece
            if len(body) > MOST_BYTES:
                raise UnreadableAnswer(f"the answer is longer than {MOST_BYTES} bytes")
        whole = True
        return bytes(body)
    finally:
        if whole:
            response.release_conn()
        else:
            response.close()
