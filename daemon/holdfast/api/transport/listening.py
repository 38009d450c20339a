"""Where the connections that are kept (:mod:`holdfast.api.transport.connections`) meet asyncio and uvicorn.

- :class:`Listener`: a listening socket whose ``accept`` asks first. It sees a connection before TLS does, and counts what is really open.
- :class:`GuardedServer`: uvicorn's server on such listeners. What it speaks: :mod:`holdfast.api.transport.protocols`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import uvicorn

from holdfast import unexpected
from holdfast.api.transport import tls_memory
from holdfast.api.transport.connections import Connection, Connections
from holdfast.descriptors import LOG_EVERY_S, OWN_LACK, NotAccepted

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE = 16
"""In one turn of the event loop: in a flood of connections those that are open have their turn, so that an agent's can send its token
before it is the oldest that is not known."""
REFUSED_AT_ONCE = 256
"""Likewise; they cost less, and those that wait behind them in the kernel's queue may be agents."""
SHED_AT_ONCE = 64
"""Where this process has no descriptor left in spite of the bounds."""
NO_DESCRIPTOR_PAUSE_S = 0.5
SWEEP_S = 1.0
COLLECT_EVERY = 10_000
"""Connections that ended: asyncio's transports refer to themselves, 2 KiB each, and :func:`holdfast.api.transport.server.quiet_gc` has the
collector look at what is old hardly ever."""
CANNOT_LISTEN = 3
"""Exit status, uvicorn's own."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: what is closed leaves nothing behind in the kernel."""


class _Accepted(socket.socket):
    """The socket of one connection: it counts what is sent, and is counted itself until it is closed."""

    connection: Connection | None = None
    on_close: Callable[[], None] | None = None

    def send(self, *arguments: Any) -> int:
        sent = super().send(*arguments)
        self._count(sent)
        return sent

    def sendmsg(self, *arguments: Any) -> int:
        sent = super().sendmsg(*arguments)
        self._count(sent)
        return sent

    def _count(self, sent: int) -> None:
        if self.connection is not None:
            self.connection.sent_bytes += sent

    def close(self) -> None:
        super().close()
        on_close, self.on_close, self.connection = self.on_close, None, None
        if on_close is not None:
            on_close()

    def cut(self) -> None:
        """End it for both sides. Its owner closes the descriptor."""
        with contextlib.suppress(OSError):
            self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)


class ConnectionGuard:
    """The connections of one server, by descriptor, and the clock that ends the late ones."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self._by_descriptor: dict[int, Connection] = {}
        self._left = 0
        """Connections that ended since what they left was collected."""

    def enter(self, accepted: _Accepted, host: str) -> bool:
        """Whether the connection is kept; it is counted until its socket is closed."""
        connection = self.connections.admit(host, accepted.cut)
        if connection is None:
            return False
        number = accepted.fileno()
        self._by_descriptor[number] = connection

        def left() -> None:
            if self._by_descriptor.get(number) is connection:
                del self._by_descriptor[number]
            self.connections.left(connection)
            self._left += 1

        accepted.connection, accepted.on_close = connection, left
        return True

    def of(self, transport: asyncio.BaseTransport) -> Connection | None:
        """The connection under a transport; None: it is already closed."""
        found = transport.get_extra_info("socket")
        return self._by_descriptor.get(found.fileno()) if found is not None else None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sweep from now on."""
        loop.set_exception_handler(NotAccepted())
        loop.call_later(SWEEP_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self.connections.sweep()
        except Exception as error:  # noqa: BLE001 - connections go on being counted, and the next sweep may pass
            unexpected.failed("connections", error)
        else:
            unexpected.passed("connections")
        if self._left >= COLLECT_EVERY:
            self._left = 0
            gc.collect()
        loop.call_later(SWEEP_S, self._sweep, loop)


class Listener(socket.socket):
    """Takes the connections that the guard takes, a few in one turn of the loop."""

    guard: ConnectionGuard
    _taken = _refused = 0
    _paused_until_s = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises BlockingIOError where none waits or enough were taken in this turn, OSError as accept(2)."""
        if not self._taken and not self._refused:
            asyncio.get_running_loop().call_soon(self._next_turn)
        while self._taken < ACCEPTED_AT_ONCE and self._refused < REFUSED_AT_ONCE:
            try:
                number, peer = self._accept()  # type: ignore[attr-defined]
            except OSError as error:
                self._without_descriptor(error)
                raise
            accepted = _Accepted(self.family, self.type, self.proto, fileno=number)
            if self.guard.enter(accepted, str(peer[0])):
                self._taken += 1
                return accepted, peer
            self._refused += 1
            with contextlib.suppress(OSError):
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            accepted.close()
        raise BlockingIOError

    def _next_turn(self) -> None:
        self._taken = self._refused = 0

    def _without_descriptor(self, error: OSError) -> None:
        """Make room. asyncio rests for a second after such an error, but first tries as often as the backlog is long: it is made to
        believe that
        none waits. Raises BlockingIOError."""
        if error.errno not in OWN_LACK:
            return
        now_s = time.monotonic()
        if now_s < self._paused_until_s:
            raise BlockingIOError from error
        self._paused_until_s = now_s + NO_DESCRIPTOR_PAUSE_S
        self.guard.connections.shed(SHED_AT_ONCE)


def listeners(guard: ConnectionGuard, host: str, port: int, backlog: int) -> list[socket.socket]:
    """One for each address of the host, bound. Raises OSError."""
    found = dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    made: list[Listener] = []
    try:
        for family, kind, protocol, _, address in found:
            try:
                listener = Listener(family, kind, protocol)
            except OSError:
                continue  # as asyncio does: a machine without IPv6
            made.append(listener)
            listener.guard = guard
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(backlog)
    except OSError:
        for listener in made:
            listener.close()
        raise
    return list(made)


class SeldomWarnings(logging.Filter):
    """uvicorn warns of each request that is no HTTP, which any user can send by the thousand: each text once a minute."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._logged_s: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if record.levelno != logging.WARNING:
            return True
        now_s = self._clock_s()
        before_s = self._logged_s.get(record.msg)
        if before_s is not None and now_s - before_s < LOG_EVERY_S:
            return False
        self._logged_s[record.msg] = now_s
        return True


class GuardedConfig(uvicorn.Config):
    """uvicorn's configuration, with the guard of its connections."""

    guard: ConnectionGuard


class GuardedServer(uvicorn.Server):
    """uvicorn's server, on listeners that ask the guard."""

    config: GuardedConfig

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the process as uvicorn does where the port cannot be had."""
        guard, config = self.config.guard, self.config
        if sockets is None:
            try:
                sockets = listeners(guard, config.host, config.port, config.backlog)
            except OSError as error:
                log.error("event=cannot_listen host=%s port=%d error=%r", config.host, config.port, str(error))
                sys.exit(CANNOT_LISTEN)
        guard.start(asyncio.get_running_loop())
        if config.is_ssl:
            tls_memory.install()
        own = logging.getLogger("uvicorn.error")
        if not any(isinstance(each, SeldomWarnings) for each in own.filters):
            own.addFilter(SeldomWarnings())
        await super().startup(sockets)
