"""Reachability of slurmd from the head node: TCP connects to many nodes at once, and the addresses behind their names."""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.decisions.death import agentless, late
from holdfast.decisions.silence import silent_nodes
from holdfast.descriptors import OWN_LACK
from holdfast.model.agents.reach import HeadProbe
from holdfast.model.book import World
from holdfast.ports import Clock

log = logging.getLogger(__name__)

_QUIET_TIMEOUT_S = 0.5
"""Timeout while no node is silent or late: a slow round must not delay the first connect to a node that falls silent."""
EVERY_S = 2.0
"""Pause between two rounds of connects to silent nodes."""
_BATCH = 512
"""Connects under way at the same time."""
_SHORT_BATCHES = 3
"""Maximum number of batches that are smaller for lack of descriptors, so that a round ends in bounded time."""
_FOR_A_NAME = 4
"""Descriptors that resolving a name needs."""

ConnectTarget = tuple[str, int]
"""Address or name, and port."""


@dataclass(frozen=True, slots=True)
class HeadReached:
    """Result of connects to many nodes. A node in neither set was tried, and its kernel did not answer."""

    answered: frozenset[str] = frozenset()
    """The kernel accepted or refused."""
    untried: frozenset[str] = frozenset()
    """This process could not even try, for example for lack of descriptors: this proves nothing about the node."""


Connect = Callable[[Mapping[str, ConnectTarget], float], HeadReached]
"""Targets by node, and seconds for each batch."""


def connect(targets: Mapping[str, ConnectTarget], timeout_s: float) -> HeadReached:
    """Connect to each once. Raises nothing."""
    left, answered = sorted(targets.items()), set[str]()
    for _ in range(len(left) // _BATCH + _SHORT_BATCHES):
        begun, found = _connect(left[:_BATCH], timeout_s)
        answered |= found
        left = left[begun:]
        if not left or not begun:
            break
    if left:
        log.warning("event=nodes_not_tried nodes=%d reason=no_descriptors", len(left))
    return HeadReached(frozenset(answered), frozenset(node for node, _ in left))


def _connect(targets: Iterable[tuple[str, ConnectTarget]], timeout_s: float) -> tuple[int, set[str]]:
    """Number of targets that could be tried, from the first on, and the nodes that answered."""
    begun = 0
    try:
        selector = selectors.DefaultSelector()
    except OSError:
        return begun, set()
    with selector:
        try:
            for node, target in targets:
                _begin(selector, node, target)
                begun += 1
        except _OwnLack:
            pass  # those that follow are tried when these are closed
        try:
            return begun, _answers(selector, time.monotonic() + timeout_s)
        finally:
            for key in list(selector.get_map().values()):
                _socket_of(key).close()


def _answers(selector: selectors.BaseSelector, until_s: float) -> set[str]:
    answered: set[str] = set()
    while selector.get_map() and (left_s := until_s - time.monotonic()) > 0:
        for key, _ in selector.select(left_s):
            under_way = _socket_of(key)
            if under_way.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED):
                answered.add(key.data)
            selector.unregister(under_way)
            under_way.close()
    return answered


def _socket_of(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)  # noqa: S101 - only sockets were registered
    return key.fileobj


class _OwnLack(Exception):
    """This process or its machine lacks a resource that a connect needs."""


def _begin(selector: selectors.BaseSelector, node: str, target: ConnectTarget) -> None:
    """Start a connect, unless the name does not resolve or there is no route. Raises _OwnLack."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(*target, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        if _lacks_descriptors():  # a resolver that can open nothing says that there is no such name
            raise _OwnLack from error
        return
    try:
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        if error.errno in OWN_LACK:
            raise _OwnLack from error
        return
    try:
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
            selector.register(sock, selectors.EVENT_WRITE, node)
            return
    except OSError as error:
        code = error.errno or errno.EHOSTUNREACH
    sock.close()
    if code in OWN_LACK:
        raise _OwnLack


def _lacks_descriptors() -> bool:
    """Whether too few descriptors are left to resolve a name, which opens a few files and a socket."""
    with ExitStack() as tried:
        try:
            for _ in range(_FOR_A_NAME):
                tried.enter_context(socket.socket())
        except OSError as error:
            return error.errno in OWN_LACK
    return False


def resolve(names: Mapping[str, str]) -> dict[str, str]:
    """Node → IP address, for nodes whose address is a name that resolves. May take as long as the resolver does."""
    found: dict[str, str] = {}
    for node, name in names.items():
        try:
            found[node] = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError:
            continue
    return found


@dataclass
class HeadReach:
    """Newest connect results: for nodes whose reachability is needed (:func:`silent_nodes.to_reach`), nodes with an overdue heartbeat
    (:mod:`holdfast.decisions.death.late`), and nodes without an agent (:mod:`holdfast.decisions.death.agentless`). One thread at a
    time calls :meth:`refresh`."""

    clock: Clock
    timeout_s: float
    connect: Connect = connect
    newest: Mapping[str, HeadProbe] = field(default_factory=dict)

    def refresh(self, world: World) -> bool:
        """Try every such node of this world that is due. True: the result of one has changed."""
        view, before = world.view, self.newest
        if view is None:
            self.newest = {n: p for n, p in before.items() if not world.agents.get(n)}
            return False
        silent, without_agent = silent_nodes.silent_nodes(world), frozenset(agentless.names(world))
        to_reach = [n for n in silent_nodes.to_reach(world, silent) if n in view.nodes] if silent else []
        overdue, asked_late = late.nodes(world), late.to_ask(world, silent, before)
        to_reach += [n for n in asked_late if n not in to_reach]
        kept = {n: p for n, p in before.items() if n in without_agent or n in overdue or (silent and p.answered)}
        targets = (*to_reach, *agentless.to_ask(world, silent, before))
        if not targets:
            self.newest = kept
            return False
        at, timeout_s = self.clock.now(), self.timeout_s if to_reach else min(self.timeout_s, _QUIET_TIMEOUT_S)
        addresses = {n: view.nodes[n].address for n in to_reach} | {
            n: world.background.addresses.get(n, view.nodes[n].address) for n in targets if n in without_agent
        }
        reached = self.connect({n: (address, view.nodes[n].port) for n, address in addresses.items()}, timeout_s)
        tried = {n: self._probe(before.get(n), at, n in reached.answered) for n in targets if n not in reached.untried}
        self.newest = {**kept, **{n: before[n] for n in reached.untried if n in before}, **tried}
        lost = any(not tried[n].answered for n in asked_late if n in tried)
        return lost or any(
            self._news(before.get(n), p, n in without_agent) for n, p in tried.items() if n not in asked_late
        )

    @staticmethod
    def _probe(before: HeadProbe | None, at: datetime, answered: bool) -> HeadProbe:
        if answered:
            return HeadProbe(at, True, at)
        if before is None:
            return HeadProbe(at, False, None, 1, at)
        return HeadProbe(at, False, before.answered_at, before.failures + 1, before.failing_since or at)

    @staticmethod
    def _news(before: HeadProbe | None, after: HeadProbe, without_agent: bool) -> bool:
        """Whether the result may lead to a decision. One lost connect to a node without an agent proves nothing."""
        if without_agent:
            told_before = before is not None and before.failures >= agentless.FAILURES
            return (after.failures == agentless.FAILURES) or (told_before and after.answered)
        return before is None or before.answered != after.answered
