"""The launcher's connection to the agent of its node: requests the rendezvous and receives events. It never blocks on the agent."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

_LINE_BYTES_MAX = 65_536
_FIRST_S, _LONGEST_S = 0.5, 5.0
"""Pause between attempts to reach an agent that is away, first and longest."""
_ANSWER_S = 60.0
"""Time to wait for an answer; then the request is repeated on another connection."""


class AgentLink:
    """Client that connects, sends the request, and reconnects when the agent was restarted. ``tend`` does what is due; ``read`` returns
    the messages."""

    def __init__(self, path: str, question: Mapping[str, object], clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._question = json.dumps(question, separators=(",", ":")).encode() + b"\n"
        self._clock = clock
        self._socket: socket.socket | None = None
        self._partial = b""
        self._pause_s = _FIRST_S
        self._due_s = clock()
        """When to connect; while connected: when to send the request (again)."""

    @property
    def fd(self) -> int | None:
        """Descriptor to wait for; None while there is no connection."""
        return self._socket.fileno() if self._socket is not None else None

    def tend(self) -> None:
        """Connect or send the request, whichever is due. Never raises: an agent that is away is tried again later."""
        if self._clock() < self._due_s:
            return
        if self._socket is not None and self._due_s < float("inf"):
            self._ask()
            return
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            fresh.connect(self.path)
        except (OSError, ValueError):
            fresh.close()
            self._away()
            return
        self._socket, self._partial = fresh, b""
        self._ask()

    def ask_again(self, after_s: float) -> None:
        """Repeat the request on this connection, after a while."""
        self._due_s = self._clock() + after_s

    def settled(self) -> None:
        """Record that the request was answered: from now on the agent sends events when there are any."""
        self._due_s, self._pause_s = float("inf"), _FIRST_S

    def due_in_s(self) -> float:
        """Seconds until ``tend`` has something to do."""
        return max(0.0, self._due_s - self._clock())

    def read(self) -> list[dict[str, Any]]:
        """Complete lines that have arrived, without those that are no objects; an ended connection is closed."""
        if self._socket is None:
            return []
        try:
            data = self._socket.recv(_LINE_BYTES_MAX)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._away()
            return []
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LINE_BYTES_MAX:
            self._away()
        return [said for line in lines if (said := _object(line)) is not None]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendall(self._question)  # a short line into an empty buffer
        except OSError:
            self._away()
            return
        self._due_s = self._clock() + _ANSWER_S

    def _away(self) -> None:
        self.close()
        self._due_s = self._clock() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_S)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None
