"""Rendezvous of the two sides of a pair probe: a TCP connection on which both have proved the probe's secret.

Any process may connect to the listener's port meanwhile, and any may have taken that port. So each side sends a fresh random number, the
connector proves the secret for both numbers, and then the listener does; nothing else is said before. A stranger learns a random number,
delays no one (each is greeted in its own thread, for a few seconds) and does not make the probe fail: the listener keeps
accepting until its deadline."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import queue
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass

from holdfast_checks.active.backend import BackendUnusable
from holdfast_checks.active.tcp import receive_exactly

LISTEN, CONNECT = "listen", "connect"
_MAGIC = b"holdfast-probe-2"
"""Of the handshake, not of the release; agents from before it say 1, and prove nothing that could be checked."""
_HELLO = struct.Struct("!16s32sQI8s")
_PROOF_BYTES = hashlib.sha256().digest_size
_GREETING_S = 5.0
_MOST_GREETED = 64
"""Connections that have not proved the secret yet; one more ends the oldest."""
_AGAIN_S = 0.1
_BACKLOG = 128


class ProbeFailed(Exception):
    """The probe could not be done; the text says at what it failed, not which side is at fault."""


class NoPartner(ProbeFailed):
    """Nothing listened there although the machine answered, or another program did: nothing is known of the path."""


class _NotGreeted(Exception):
    """The connection ended, or sent nothing, before the greeting."""


class _Foreign(_NotGreeted):
    """The other side speaks another protocol version."""


@dataclass(frozen=True)
class Terms:
    """What both sides must have been asked for."""

    transport: str
    size_bytes: int
    rounds: int


def meet(role: str, address: str, port: int, secret: str, terms: Terms, until_s: float) -> socket.socket:
    """A connection to the other side. ``until_s``: on the monotonic clock.

    Raises BackendUnusable where the port cannot be listened on, NoPartner, ProbeFailed, OSError."""
    if role == LISTEN:
        return _Listener(secret, terms).accept(address, port, until_s)
    return _connect(address, port, secret, terms, until_s)


class _Listener:
    """Waits for the one that proves the secret."""

    def __init__(self, secret: str, terms: Terms) -> None:
        self._secret, self._terms = secret, terms
        self._met: queue.SimpleQueue[socket.socket | ProbeFailed] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._greeted: dict[int, socket.socket] = {}
        """Oldest first."""
        self._came = 0
        self._over = False

    def accept(self, address: str, port: int, until_s: float) -> socket.socket:
        try:
            server = socket.create_server((address, port), backlog=_BACKLOG)
        except OSError as error:
            raise BackendUnusable(f"cannot listen on {address}:{port}: {error}") from error
        with server:
            threading.Thread(target=self._serve, args=(server, until_s), name="pair-door", daemon=True).start()
            try:
                met = self._met.get(timeout=_left_s(until_s))
            except queue.Empty:
                raise self._nobody(address, port) from None
            finally:
                self._end(server)
        if isinstance(met, ProbeFailed):
            raise met
        return met

    def _nobody(self, address: str, port: int) -> ProbeFailed:
        if self._came:  # one of them may have been an agent of another release: no word about the path
            return NoPartner(f"{self._came} connected to {address}:{port}, and none was the other side of this probe")
        return ProbeFailed(f"{address}:{port}: timed out: no connection")

    def _serve(self, server: socket.socket, until_s: float) -> None:
        while not self._over:
            try:
                stream, _peer = server.accept()
            except OSError:
                if self._over:
                    return
                time.sleep(_AGAIN_S)  # no descriptor left, or a connection that ended at once
                continue
            self._came += 1
            self._keep(self._came, stream)
            args = (self._came, stream, until_s)
            threading.Thread(target=self._meet, args=args, name="pair-greet", daemon=True).start()

    def _keep(self, number: int, stream: socket.socket) -> None:
        with self._lock:
            self._greeted[number] = stream
            oldest = next(iter(self._greeted)) if len(self._greeted) > _MOST_GREETED else None
            if oldest is not None:
                _shut(self._greeted.pop(oldest))

    def _meet(self, number: int, stream: socket.socket, until_s: float) -> None:
        result: socket.socket | ProbeFailed | None = None
        try:
            _greet_as_listener(stream, self._secret, self._terms, until_s)
            result = stream
        except NoPartner as error:
            result = error
        except (OSError, _NotGreeted):
            result = None
        with self._lock:
            self._greeted.pop(number, None)
            if result is stream and self._over:
                result = None
        if result is not stream:
            stream.close()
        if result is not None:
            self._met.put(result)

    def _end(self, server: socket.socket) -> None:
        with self._lock:
            self._over = True
            for stream in self._greeted.values():
                _shut(stream)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts


def _shut(stream: socket.socket) -> None:
    """Its own thread closes it."""
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)


def _connect(address: str, port: int, secret: str, terms: Terms, until_s: float) -> socket.socket:
    while True:  # the other side may not listen yet, or have no place for the moment
        trouble: Exception
        try:
            stream = socket.create_connection((address, port), _left_s(until_s))
        except ConnectionRefusedError as error:
            trouble = error
        else:
            try:
                _greet_as_connector(stream, secret, terms, until_s)
            except (NoPartner, _Foreign) as error:
                stream.close()
                raise NoPartner(f"{address}:{port}: {error}") from error
            except (OSError, _NotGreeted) as error:
                stream.close()
                trouble = error
            else:
                return stream
        if time.monotonic() > until_s - _AGAIN_S:
            raise NoPartner(f"{address}:{port}: {trouble}") from trouble
        time.sleep(_AGAIN_S)


def _greet_as_listener(stream: socket.socket, secret: str, terms: Terms, until_s: float) -> None:
    """Raises NoPartner where who proved the secret was asked for another probe, OSError and _NotGreeted for strangers."""
    stream.settimeout(min(_GREETING_S, _left_s(until_s)))
    mine = _hello(terms)
    stream.sendall(mine)
    theirs = _their_hello(stream)
    if not hmac.compare_digest(_received(stream, _PROOF_BYTES), _proof(secret, CONNECT, mine, theirs)):
        raise _NotGreeted("a proof of another secret")
    stream.sendall(_proof(secret, LISTEN, mine, theirs))
    _same_terms(theirs, terms)


def _greet_as_connector(stream: socket.socket, secret: str, terms: Terms, until_s: float) -> None:
    """Raises NoPartner where another program answers, or the other side was asked for another probe."""
    stream.settimeout(min(_GREETING_S, _left_s(until_s)))
    mine = _hello(terms)
    theirs = _their_hello(stream)
    try:
        stream.sendall(mine + _proof(secret, CONNECT, theirs, mine))
        proved = hmac.compare_digest(_received(stream, _PROOF_BYTES), _proof(secret, LISTEN, theirs, mine))
    except (OSError, _NotGreeted):
        proved = False
    if not proved:
        raise NoPartner("who answers there is not the other side of this probe")
    _same_terms(theirs, terms)


def _hello(terms: Terms) -> bytes:
    return _HELLO.pack(_MAGIC, secrets.token_bytes(32), terms.size_bytes, terms.rounds, terms.transport.encode())


def _their_hello(stream: socket.socket) -> bytes:
    magic = _received(stream, len(_MAGIC))
    if magic != _MAGIC:
        raise _Foreign("who is there is a stranger, or an agent of another release")
    return magic + _received(stream, _HELLO.size - len(_MAGIC))


def _proof(secret: str, role: str, listener: bytes, connector: bytes) -> bytes:
    """Of the role, for these two greetings: it serves neither the other role nor another connection."""
    return hmac.new(secret.encode(), role.encode() + listener + connector, hashlib.sha256).digest()


def _same_terms(hello: bytes, terms: Terms) -> None:
    _magic, _number, size_bytes, rounds, transport = _HELLO.unpack(hello)
    if (transport.rstrip(b"\0").decode("ascii", "replace"), size_bytes, rounds) != (
        terms.transport,
        terms.size_bytes,
        terms.rounds,
    ):
        raise NoPartner("the other side was asked for another probe")


def _received(stream: socket.socket, size: int) -> bytes:
    view = memoryview(bytearray(size))
    if not receive_exactly(stream, view):
        raise _NotGreeted("who is there hung up")
    return bytes(view)


def _left_s(until_s: float) -> float:
    return max(0.1, until_s - time.monotonic())
