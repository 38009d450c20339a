"""Neighbour probes: the controller names neighbours in its answer to a heartbeat. The agent probes them while all is well, so that a later
failure to reach one is evidence (``probe_peer``). Their addresses come from Slurm, not from the controller."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable

from holdfast.agent.timing.jitter import JITTER
from holdfast.model.errors import HoldfastError

log = logging.getLogger(__name__)

NeighbourAddress = tuple[str, int]
"""Address and port of another node's slurmd."""
EVERY_S = 600.0
"""Pause between two rounds, drawn between half of this and all of it."""
_TIMEOUT_S = 2.0
_RESOLVED_S = 6 * 3600.0
"""A node's address is read from Slurm again after this long, and when the node is not reached there."""
_MOST = 16
"""Maximum number of neighbours; more are a mistake, and the rest is ignored."""


def connect(target: NeighbourAddress, timeout_s: float) -> OSError | None:
    """Open and close a TCP connection. None: it was accepted; otherwise the error."""
    try:
        socket.create_connection(target, max(0.05, timeout_s)).close()
    except OSError as error:
        return error
    return None


def alive(failure: OSError | None) -> bool:
    """Whether the remote kernel answered: a refused connection is an answer, too."""
    return failure is None or failure.errno == errno.ECONNREFUSED


class NeighbourProbes:
    """Record of which neighbours were reached, where, and when. The sending thread passes the names; a separate thread probes."""

    def __init__(
        self,
        address_of: Callable[[str], NeighbourAddress],
        clock_s: Callable[[], float] = time.monotonic,
        connects: Callable[[NeighbourAddress, float], OSError | None] = connect,
    ) -> None:
        """``address_of``: raises HoldfastError where the address is not known."""
        self._address_of = address_of
        self._clock_s = clock_s
        self._connects = connects
        self._names: tuple[str, ...] = ()
        self._found: dict[str, tuple[NeighbourAddress, float]] = {}
        """Address of each as Slurm reported it, and when."""
        self._reached_s: dict[tuple[str, NeighbourAddress], float] = {}
        self._round: dict[str, bool] = {}
        """Neighbours that answered in the last round."""
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="neighbours", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def told(self, named: object) -> None:
        """Process the nodes that the controller named; new ones are probed at once. Anything but a list of names is ignored."""
        if not isinstance(named, list):
            return
        names = tuple(each for each in named[:_MOST] if isinstance(each, str))
        if names != self._names:
            self._names = names
            self._wake.set()

    def known(self, name: str) -> NeighbourAddress | None:
        """Address of this neighbour as Slurm reported it; None: it is no neighbour, or the address is not known."""
        found = self._found.get(name)
        return found[0] if found is not None else None

    def reached_before_s(self, name: str, target: NeighbourAddress) -> float | None:
        """Seconds since the node was last reached there; None: never since this agent started."""
        at_s = self._reached_s.get((name, target))
        return None if at_s is None else self._clock_s() - at_s

    def note(self, name: str, target: NeighbourAddress) -> None:
        """Record that the node was reached just now."""
        self._reached_s[name, target] = self._clock_s()

    def probe(self) -> None:
        """Run one round. Nodes that are no longer neighbours are forgotten."""
        names = self._names
        known = tuple(self._reached_s.items())  # order threads also record what they reach
        self._reached_s = {of: at_s for of, at_s in known if of[0] in names}
        self._found = {name: found for name, found in self._found.items() if name in names}
        reached = {name: self._reach(name) for name in names}
        if reached != self._round:
            self._round = reached
            missed = ",".join(name[:80] for name, answered in reached.items() if not answered)
            log.info("event=neighbours reached=%d of=%d unreached=%r", sum(reached.values()), len(reached), missed)

    def _reach(self, name: str) -> bool:
        target = self._where(name)
        if target is None:
            return False
        if alive(self._connects(target, _TIMEOUT_S)):
            self.note(name, target)
            return True
        self._found[name] = target, float("-inf")  # its address is read again
        return False

    def _where(self, name: str) -> NeighbourAddress | None:
        found, now_s = self._found.get(name), self._clock_s()
        if found is not None and now_s - found[1] < _RESOLVED_S:
            return found[0]
        try:
            target = self._address_of(name)
        except (HoldfastError, OSError) as error:
            log.info("event=neighbour_not_found node=%r error=%r", name[:80], str(error))
            return found[0] if found is not None else None
        self._found[name] = target, now_s
        return target

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(JITTER.uniform(EVERY_S / 2, EVERY_S))
            self._wake.clear()
            if not self._stopping:
                self.probe()
