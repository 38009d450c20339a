"""PyTorch's rendezvous store for a pair probe, over the connection on which both sides proved its secret.

PyTorch's own store (TCPStore) listens on all addresses and authenticates no one. This one opens no port: the listener keeps what is
put, and answers the other side."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast_checks.active.tcp import receive_exactly

_LENGTH = struct.Struct("!I")
_MOST_BYTES = 1 << 20
_AGAIN_S = 0.005
_BYE_S = 5.0


class PairStoreServer:
    """The listener's side: what is kept, for both."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def ask(self, verb: str, key: str, value: bytes = b"", other: bytes = b"") -> bytes | None:
        """``get``: None where there is none. ``add``: a decimal number more. ``compare_set``: ``other`` in the place of ``value``."""
        with self._lock:
            if verb == "set":
                self._kept[key] = value
            elif verb == "add":
                self._kept[key] = str(int(self._kept.get(key, b"0")) + int(value)).encode()
            elif verb == "compare_set":
                if self._kept.get(key, b"") == value:
                    self._kept[key] = other
                return self._kept.get(key, value)
            elif verb == "delete":
                return self._kept.pop(key, None)
            elif verb == "count":
                return str(len(self._kept)).encode()
            return self._kept.get(key)

    def serve(self, stream: socket.socket) -> None:
        """Answer the other side until it hangs up."""
        try:
            while (message := _receive(stream)) is not None:
                verb, key, *values = message
                _send(stream, self.ask(str(verb), str(key), *map(_bytes, values)))
        except (OSError, ValueError, TypeError):
            return


class PairStoreClient:
    """The connector's side. For several threads."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def ask(self, verb: str, key: str, value: bytes = b"", other: bytes = b"") -> bytes | None:
        """As :meth:`PairStoreServer.ask`. Raises RuntimeError where the other side is gone."""
        with self._lock:
            try:
                _send(self._stream, [verb, key, _text(value), _text(other)])
                answer = _receive(self._stream)
            except (OSError, ValueError) as error:
                raise RuntimeError(f"the other side is gone: {error}") from error
        if answer is None:
            raise RuntimeError("the other side is gone")
        return None if answer == [] else _bytes(answer[0])


class PairStore:
    """The store of one side, for as long as its process group lives."""

    def __init__(self, stream: socket.socket, *, listens: bool, deadline_s: float) -> None:
        self._stream, self._deadline_s = stream, deadline_s
        stream.settimeout(deadline_s)
        self._kept: PairStoreServer | PairStoreClient
        self._server: threading.Thread | None = None
        self._store: Any = None
        """Kept for as long as PyTorch may ask it: it holds the C++ half alone."""
        if listens:
            self._kept = shared = PairStoreServer()
            self._server = threading.Thread(target=shared.serve, args=(stream,), name="pair-store", daemon=True)
            self._server.start()
        else:
            self._kept = PairStoreClient(stream)

    def store(self, dist: Any) -> Any:
        """For ``torch.distributed.init_process_group``."""
        self._store = type("PairStore", (_Answers, dist.Store), {})(self._kept, self._deadline_s)
        return self._store

    def end(self) -> None:
        """The listener goes when the other side has; its own end comes with the stream's."""
        if self._server is not None:
            self._server.join(_BYE_S)
        else:
            with contextlib.suppress(OSError):  # the listener has gone already
                self._stream.shutdown(socket.SHUT_RDWR)


class _Answers:
    """A store as torch.distributed asks for it, by its names of all releases."""

    def __init__(self, kept: PairStoreServer | PairStoreClient, timeout_s: float) -> None:
        super().__init__()
        self._kept, self._timeout_s = kept, timeout_s

    def set(self, key: str, value: Any) -> None:
        self._kept.ask("set", key, _raw(value))

    def get(self, key: str) -> bytes:
        until_s = time.monotonic() + self._timeout_s
        while (value := self._kept.ask("get", key)) is None:
            _pause(until_s, key)
        return value

    def add(self, key: str, amount: int) -> int:
        return int(self._kept.ask("add", key, str(amount).encode()) or b"0")

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        return self._kept.ask("compare_set", key, _raw(expected), _raw(desired)) or b""

    def check(self, keys: Sequence[str]) -> bool:
        return all(self._kept.ask("get", key) is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        until_s = time.monotonic() + (self._timeout_s if timeout is None else timeout.total_seconds())
        while not self.check(keys):
            _pause(until_s, ", ".join(keys))

    def delete_key(self, key: str) -> bool:
        return self._kept.ask("delete", key) is not None

    def num_keys(self) -> int:
        return int(self._kept.ask("count", "") or b"0")

    deleteKey = delete_key  # noqa: N815 - how C++ looks for it
    getNumKeys = num_keys  # noqa: N815


def _pause(until_s: float, what: str) -> None:
    if time.monotonic() > until_s:
        raise RuntimeError(f"timed out: the other side did not say {what}"[:200])
    time.sleep(_AGAIN_S)


def _raw(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: Any) -> bytes:
    return base64.b64decode(str(text), validate=True)


def _send(stream: socket.socket, message: list[str] | bytes | None) -> None:
    """A question as a list; an answer as a list of one, or of none."""
    if not isinstance(message, list):
        message = [] if message is None else [_text(message)]
    data = json.dumps(message).encode()
    stream.sendall(_LENGTH.pack(len(data)) + data)


def _receive(stream: socket.socket) -> list[Any] | None:
    """None: it hung up. Raises OSError, ValueError."""
    head = memoryview(bytearray(_LENGTH.size))
    if not receive_exactly(stream, head):
        return None
    (length,) = _LENGTH.unpack(head)
    if length > _MOST_BYTES:
        raise ValueError(f"a message of {length} bytes")
    body = memoryview(bytearray(length))
    if not receive_exactly(stream, body):
        return None
    message = json.loads(bytes(body))
    if not isinstance(message, list):
        raise ValueError("no message")
    return message
