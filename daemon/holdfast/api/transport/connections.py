"""Which connections to the API are kept: bounds in number and time, and which one is closed for another. No sockets here.

A connection is *known* once a request of an agent, an operator or a viewer on it was authenticated. Any user of the cluster can open the
others, as can a job's owner with a token: they never take the place of a known one, and the oldest of them makes room for a new one. A
known one makes room for a newer one of the same token alone."""

from __future__ import annotations

import logging
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice

from starlette.types import Scope

from holdfast.config.binding import Network
from holdfast.model.parts import ConnectionsSeen

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""Longer than the longest poll: agents keep one connection."""
LOG_EVERY_S = 60.0
RECENT_S = 600.0
"""What was turned away within this time is shown on `holdfast status`."""
YOUNG_S = 0.25
"""For this long from its start a connection is not closed for another one: a TLS handshake and a request on a busy node."""
_SLICE_S = 10.0
_MOST_ADDRESSES = 1000
_SCOPE_KEY = "holdfast.connection"


class ConnectionStage(StrEnum):
    """What a connection does. Each ends in time, but for ANSWERING of one that is known."""

    HEAD = "head"
    """It opens (TLS included), or has begun a request whose head is incomplete."""
    BODY = "body"
    """The body of its request is incomplete, whether it was answered or not."""
    ANSWERING = "answering"
    """A request waits for its answer, such as a long poll."""
    IDLE = "idle"
    """Kept open between two requests."""


class Ended(StrEnum):
    """Why a connection was closed, or not taken."""

    FULL = "full"
    """Not taken: the bound in all is reached, and none may be closed for it."""
    ADDRESS_FULL = "address_full"
    """Not taken: the bound of its address is reached, and none from there may be closed for it."""
    MADE_ROOM = "made_room"
    """It was not known, and was closed for a newer one."""
    OWN_ROOM = "own_room"
    """It was known, and was closed for a newer one of the same token."""
    HEAD_LATE = "head_late"
    BODY_LATE = "body_late"
    ANSWER_LATE = "answer_late"
    """It is not known, and its request was not answered in time."""
    UNREAD = "unread"
    """The other side does not read its answer."""
    IDLE = "idle"


_LATE = {
    ConnectionStage.HEAD: Ended.HEAD_LATE,
    ConnectionStage.BODY: Ended.BODY_LATE,
    ConnectionStage.ANSWERING: Ended.ANSWER_LATE,
}
_SENDING = frozenset({ConnectionStage.IDLE, ConnectionStage.ANSWERING})
"""It is the other side's turn to read."""
TURNED_AWAY = frozenset({Ended.FULL, Ended.ADDRESS_FULL, Ended.MADE_ROOM, Ended.OWN_ROOM})
"""Closed because the limit was reached; the others were late."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections are kept, and for how long without a sign of good will."""

    most: int
    most_per_address: int = 256
    most_unknown: int = 2048
    """That are not known. Each takes 0.1 MiB under TLS (measured), most of it a buffer (:mod:`holdfast.api.transport.tls_memory`): as
    many as there are descriptors would take the memory of the head node."""
    proxies: tuple[Network, ...] = ()
    """Stand for many clients each, as loopback does: only the bound in all holds there."""
    head_s: float = 10.0
    """From the connection, or from the first byte of a later request, to the end of its head; the TLS handshake included."""
    body_s: float = 30.0
    """From the end of the head to the end of the body; longer than a route reads (:data:`holdfast.api.requests.body.READ_TIMEOUT_S`)."""
    answer_s: float = 60.0
    """From a request to its answer, of one that is not known: it waits for its turn (:mod:`holdfast.api.callers.stranger_turns`)."""
    unread_s: float = 30.0
    """Without progress while an answer waits to be read."""
    most_per_agent: int = 16
    """Known ones of one node's token; an agent, its verbs and the prolog need four. One stolen token takes no more."""
    most_per_name: int = 256
    """Known ones of one operator's or viewer's token, which a team's browsers may share."""
    idle_s: float = KEEP_ALIVE_S + 5.0
    """The server itself closes a kept connection after ``KEEP_ALIVE_S``, unless something was sent meanwhile that is no request."""

    def many_behind(self, address: str) -> bool:
        """Whether an address stands for many clients."""
        try:
            found = ip_address(address)
        except ValueError:
            return True  # no internet address: a connection of this machine
        return found.is_loopback or any(found.version == n.version and found in n for n in self.proxies)


def plain_address(host: str) -> str:
    """Without an IPv6 zone, and an IPv4 address in IPv6's clothes as what it is."""
    try:
        found: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(getattr(found, "ipv4_mapped", None) or found)


@dataclass(eq=False, slots=True)
class Connection:
    """One that is open. Times are monotonic."""

    address: str
    close: Callable[[], None]
    """At once, whatever is still to be sent."""
    since_s: float
    due_s: float
    """When its stage must be over."""
    stage: ConnectionStage = ConnectionStage.HEAD
    owner: str = ""
    """Hash of the token that made it known; empty: it is not known."""
    paused: Callable[[], bool] = lambda: False
    """Whether what it sends is not read at present, so that a delay is not the other side's."""
    unread_due_s: float = math.inf
    """When the other side must have read something."""
    sent_bytes: int = 0
    _sent_before: int = 0
    request: object = None
    """The newest request on it; only for comparison."""
    gone: Callable[[], None] = lambda: None
    """To be called when it is closed, by either side."""

    def mark_sent(self) -> bool:
        """Whether something was sent since this was last called."""
        before, self._sent_before = self._sent_before, self.sent_bytes
        return self.sent_bytes > before


@dataclass
class _Address:
    """The connections from one address."""

    count: int = 0
    unknown: OrderedDict[Connection, None] = field(default_factory=OrderedDict)
    """Oldest first."""


@dataclass
class Connections:
    """All that are open. Lives in one event loop; :meth:`seen` may be called from any thread."""

    bounds: Bounds
    clock_s: Callable[[], float]
    ended: Counter[Ended] = field(default_factory=Counter)
    """Since the start."""
    _open: dict[Connection, None] = field(default_factory=dict)
    _unknown: OrderedDict[Connection, None] = field(default_factory=OrderedDict)
    """Oldest first."""
    _addresses: dict[str, _Address] = field(default_factory=dict)
    _owned: dict[str, OrderedDict[Connection, None]] = field(default_factory=dict)
    """The known ones by the token that made them known, oldest first."""
    _recent: deque[tuple[float, Counter[str]]] = field(default_factory=deque)
    """Turned away, by address, in slices of time."""
    _unlogged: Counter[Ended] = field(default_factory=Counter)
    _logged_s: float = -math.inf

    def admit(self, host: str, close: Callable[[], None]) -> Connection | None:
        """Take a new connection, if need be in the place of one that is not known. None: it is to be closed at once."""
        address = plain_address(host)
        here = self._addresses.get(address) or _Address()
        full = here.count >= self.bounds.most_per_address and not self.bounds.many_behind(address)
        if full and not self._make_room(here.unknown):
            self._count(address, Ended.ADDRESS_FULL)
            return None
        full = len(self._open) >= self.bounds.most or len(self._unknown) >= self.bounds.most_unknown
        if full and not self._make_room(self._unknown):
            self._count(address, Ended.FULL)
            return None
        here = self._addresses.setdefault(address, here)
        now_s = self.clock_s()
        connection = Connection(address, close, now_s, now_s + self.bounds.head_s)
        here.count += 1
        self._open[connection] = self._unknown[connection] = here.unknown[connection] = None
        return connection

    def shed(self, count: int) -> None:
        """Close the oldest unknown ones, at most this many."""
        for connection in list(islice(self._unknown, count)):
            self.end(connection, Ended.MADE_ROOM)

    def _make_room(self, unknown: OrderedDict[Connection, None]) -> bool:
        """Close the oldest of these, unless it is so young that a flood would close each before it can send its token."""
        oldest = next(iter(unknown), None)
        if oldest is None or self.clock_s() - oldest.since_s < YOUNG_S:
            return False
        self.end(oldest, Ended.MADE_ROOM)
        return True

    def identified(self, connection: Connection, owner: str, *, agent: bool) -> None:
        """A request on it was authenticated with this token (its hash): it is known from now on, and where the same token has too many of
        them the oldest goes. A proxy may send requests of several on one connection: the first one's it stays."""
        if connection.owner or connection not in self._open:
            return
        connection.owner = owner
        if connection.stage is ConnectionStage.ANSWERING:
            connection.due_s = math.inf
        mine = self._owned.setdefault(owner, OrderedDict())
        mine[connection] = None
        self._unknown.pop(connection, None)
        self._addresses[connection.address].unknown.pop(connection, None)
        if len(mine) > (self.bounds.most_per_agent if agent else self.bounds.most_per_name):
            self.end(next(iter(mine)), Ended.OWN_ROOM)

    def enter(self, connection: Connection, stage: ConnectionStage, request: object) -> None:
        """It is at this stage of this request now."""
        if (stage, request) != (connection.stage, connection.request):
            connection.stage, connection.request = stage, request
            connection.due_s = self.clock_s() + self._most_s(connection)
            connection.mark_sent()

    def unread(self, connection: Connection, unread: bool) -> None:
        """Whether its answers wait because the other side does not read."""
        connection.unread_due_s = self.clock_s() + self.bounds.unread_s if unread else math.inf
        connection.mark_sent()

    def unread_by(self, owner: str) -> int:
        """Connections of one token on which an answer waits to be read."""
        return sum(each.unread_due_s < math.inf for each in self._owned.get(owner, ()))

    def left(self, connection: Connection) -> None:
        """It is closed, by either side."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._unknown.pop(connection, None)
        mine = self._owned.get(connection.owner)
        if mine is not None:
            mine.pop(connection, None)
            if not mine:
                del self._owned[connection.owner]
        here = self._addresses[connection.address]
        here.count -= 1
        here.unknown.pop(connection, None)
        if not here.count:
            del self._addresses[connection.address]
        connection.gone()

    def sweep(self) -> None:
        """Close what is late, and say in the log what was closed."""
        now_s = self.clock_s()
        late = [c for c in self._open if c.due_s <= now_s or c.unread_due_s <= now_s]
        for connection in late:
            if (kind := self._lateness(connection, now_s)) is not None:
                self.end(connection, kind)
        if self._unlogged and now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            self._log()

    def end(self, connection: Connection, kind: Ended) -> None:
        """Close it."""
        self._count(connection.address, kind)
        self.left(connection)
        connection.close()

    def seen(self) -> ConnectionsSeen:
        """How it is now."""
        now_s, away = self.clock_s(), Counter[str]()
        for at_s, addresses in tuple(self._recent):
            if now_s - at_s <= RECENT_S + _SLICE_S:
                away.update(dict(addresses))  # a copy in one step: others may be counted meanwhile
        ((address, _),) = away.most_common(1) or (("", 0),)
        return ConnectionsSeen(len(self._open), self._count_known(), self.bounds.most, away.total(), address)

    def _count_known(self) -> int:
        return max(0, len(self._open) - len(self._unknown))

    def _count(self, address: str, kind: Ended) -> None:
        self.ended[kind] += 1
        self._unlogged[kind] += 1
        if kind not in TURNED_AWAY:
            return
        now_s = self.clock_s()
        while self._recent and now_s - self._recent[0][0] > RECENT_S + _SLICE_S:
            self._recent.popleft()
        if not self._recent or now_s - self._recent[-1][0] > _SLICE_S:
            self._recent.append((now_s, Counter()))
        newest = self._recent[-1][1]
        newest[address if address in newest or len(newest) < _MOST_ADDRESSES else "others"] += 1

    def _most_s(self, connection: Connection) -> float:
        match connection.stage:
            case ConnectionStage.HEAD:
                return self.bounds.head_s
            case ConnectionStage.BODY:
                return self.bounds.body_s
            case ConnectionStage.IDLE:
                return self.bounds.idle_s
            case ConnectionStage.ANSWERING:
                return math.inf if connection.owner else self.bounds.answer_s

    def _lateness(self, connection: Connection, now_s: float) -> Ended | None:
        """Why it ends; None: it gets more time."""
        goes_on = connection.mark_sent()
        if connection.unread_due_s <= now_s:
            if not goes_on:
                return Ended.UNREAD
            connection.unread_due_s = now_s + self.bounds.unread_s
        if connection.due_s <= now_s:
            if not (goes_on if connection.stage in _SENDING else connection.paused()):
                return _LATE.get(connection.stage, Ended.IDLE)
            connection.due_s = now_s + self._most_s(connection)
        return None

    def _log(self) -> None:
        counts = " ".join(f"{kind.value}={self._unlogged[kind]}" for kind in Ended if self._unlogged[kind])
        away = any(self._unlogged[kind] for kind in TURNED_AWAY)
        self._unlogged.clear()
        now = self.seen()
        log.log(
            logging.WARNING if away else logging.INFO,
            "event=connections_closed %s open=%d known=%d most=%d address=%s",
            counts,
            now.open,
            now.known,
            now.most,
            now.address or "-",
        )


def attach(scope: Scope, connections: Connections, connection: Connection) -> None:
    """Have a request know its connection."""
    scope[_SCOPE_KEY] = (connections, connection)


def attached(scope: Scope) -> tuple[Connections, Connection] | None:
    """A request's connection; None: it came in another way, as in a test."""
    found: tuple[Connections, Connection] | None = scope.get(_SCOPE_KEY)
    return found


def identified(scope: Scope, owner: str, *, agent: bool) -> None:
    """The request with this scope was authenticated with this token (its hash): its connection is known from now on."""
    found = attached(scope)
    if found is not None:
        connections, connection = found
        connections.identified(connection, owner, agent=agent)


def unread_by(scope: Scope, owner: str) -> int:
    """Answers that wait to be read on the connections that this token (its hash) made known."""
    found = attached(scope)
    return found[0].unread_by(owner) if found is not None else 0
