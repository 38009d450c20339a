"""Does the head node reach a node's slurmd? TCP connects to many nodes at once, and the addresses behind their names."""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.controller import silence
from holdfast.controller.death import agentless, late
from holdfast.model.book import World
from holdfast.model.reach import HeadProbe
from holdfast.ports import Clock

log = logging.getLogger(__name__)

_QUIET_TIMEOUT_S = 0.5
"""While nothing is silent or late: a slow round must not delay the first connect to a node that falls silent."""
EVERY_S = 2.0
"""Pause between two looks at the nodes that are silent."""
_BATCH = 512
"""Connects under way at the same time."""

Target = tuple[str, int]
"""Address or name, and port."""
Connect = Callable[[Mapping[str, Target], float], frozenset[str]]
"""Targets by node, and seconds: the nodes whose kernel answered."""


def connect(targets: Mapping[str, Target], timeout_s: float) -> frozenset[str]:
    """The nodes that accepted or refused a connection within the time. Raises nothing."""
    ordered = sorted(targets.items())
    found: set[str] = set()
    for at in range(0, len(ordered), _BATCH):
        found |= _connect(ordered[at : at + _BATCH], timeout_s)
    return frozenset(found)


def _connect(targets: Iterable[tuple[str, Target]], timeout_s: float) -> set[str]:
    answered: set[str] = set()
    with selectors.DefaultSelector() as selector:
        for node, target in targets:
            sock = _begin(target)
            if sock is not None:
                selector.register(sock, selectors.EVENT_WRITE, node)
        until_s = time.monotonic() + timeout_s
        while selector.get_map() and (left_s := until_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                under_way = key.fileobj
                assert isinstance(under_way, socket.socket)  # noqa: S101 - only sockets were registered
                if under_way.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED):
                    answered.add(key.data)
                selector.unregister(under_way)
                under_way.close()
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)  # noqa: S101 - only sockets were registered
            key.fileobj.close()
    return answered


def _begin(target: Target) -> socket.socket | None:
    """A connect under way; None: the name does not resolve, or there is no way there."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(*target, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except OSError:
        return None
    sock.setblocking(False)
    try:
        code = sock.connect_ex(address)
    except OSError as error:
        code = error.errno or errno.EHOSTUNREACH
    if code in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
        return sock
    sock.close()
    return None


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
    """The newest connect to each node that it has to be known of (:func:`silence.to_reach`), to each whose heartbeat is overdue
    (:mod:`holdfast.controller.death.late`), and to each without an agent (:mod:`holdfast.controller.death.agentless`). One thread at a
    time calls :meth:`refresh`."""

    clock: Clock
    timeout_s: float
    connect: Connect = connect
    newest: Mapping[str, HeadProbe] = field(default_factory=dict)

    def refresh(self, world: World) -> bool:
        """Try every such node of this world that is due. True: one answers otherwise than before."""
        view, before = world.view, self.newest
        if view is None:
            self.newest = {n: p for n, p in before.items() if not world.agents.get(n)}
            return False
        silent, without_agent = silence.silent_nodes(world), frozenset(agentless.names(world))
        reached = [n for n in silence.to_reach(world, silent) if n in view.nodes] if silent else []
        overdue, asked_late = late.nodes(world), late.to_ask(world, silent, before)
        reached += [n for n in asked_late if n not in reached]
        kept = {n: p for n, p in before.items() if n in without_agent or n in overdue or (silent and p.answered)}
        targets = (*reached, *agentless.to_ask(world, silent, before))
        if not targets:
            self.newest = kept
            return False
        at, timeout_s = self.clock.now(), self.timeout_s if reached else min(self.timeout_s, _QUIET_TIMEOUT_S)
        addresses = {n: view.nodes[n].address for n in reached} | {
            n: world.background.addresses.get(n, view.nodes[n].address) for n in targets if n in without_agent
        }
        answered = self.connect({n: (address, view.nodes[n].port) for n, address in addresses.items()}, timeout_s)
        tried = {n: self._probe(before.get(n), at, n in answered) for n in targets}
        self.newest = {**kept, **tried}
        lost = any(not tried[n].answered for n in asked_late)
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
        """Whether something may be decided by it. One lost connect to a node without an agent says nothing."""
        if without_agent:
            told_before = before is not None and before.failures >= agentless.FAILURES
            return (after.failures == agentless.FAILURES) or (told_before and after.answered)
        return before is None or before.answered != after.answered
