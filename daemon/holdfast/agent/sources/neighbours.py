"""Neighbours that the controller names in its answer to a heartbeat: reached now and then in calm times, so that this agent can bear
witness when it cannot reach one any more (``probe_peer``). Where a node is reached, Slurm says, and not the controller."""

from __future__ import annotations

import errno
import logging
import random
import socket
import threading
import time
from collections.abc import Callable

from holdfast.model.errors import HoldfastError

log = logging.getLogger(__name__)

Target = tuple[str, int]
"""Address and port of another node's slurmd."""
EVERY_S = 600.0
"""Pause between two rounds, drawn between half of this and all of it."""
_TIMEOUT_S = 2.0
_RESOLVED_S = 6 * 3600.0
"""Slurm is asked again where a node is after this long, and when it is not reached there."""
_MOST = 16
"""More neighbours are a mistake: the rest is left out."""


def connect(target: Target, timeout_s: float) -> OSError | None:
    """Open and close a TCP connection. None: it was accepted; otherwise why not."""
    try:
        socket.create_connection(target, max(0.05, timeout_s)).close()
    except OSError as error:
        return error
    return None


def alive(failure: OSError | None) -> bool:
    """Whether the kernel there answered: a refused connection is an answer, too."""
    return failure is None or failure.errno == errno.ECONNREFUSED


class Neighbours:
    """Which of them were reached, where, and when. Told by the thread that sends; a thread of its own probes, and mostly waits."""

    def __init__(
        self,
        address_of: Callable[[str], Target],
        clock_s: Callable[[], float] = time.monotonic,
        connects: Callable[[Target, float], OSError | None] = connect,
    ) -> None:
        """``address_of``: raises HoldfastError where it is not known."""
        self._address_of = address_of
        self._clock_s = clock_s
        self._connects = connects
        self._names: tuple[str, ...] = ()
        self._found: dict[str, tuple[Target, float]] = {}
        """Where Slurm said that each is, and when."""
        self._reached_s: dict[tuple[str, Target], float] = {}
        self._round: dict[str, bool] = {}
        """Who answered in the last one."""
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="neighbours", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def told(self, named: object) -> None:
        """The nodes that the controller named; new ones are tried at once. Anything else than a list of names says nothing."""
        if not isinstance(named, list):
            return
        names = tuple(each for each in named[:_MOST] if isinstance(each, str))
        if names != self._names:
            self._names = names
            self._wake.set()

    def known(self, name: str) -> Target | None:
        """Where Slurm said that this neighbour is; None: it is none, or that is not known."""
        found = self._found.get(name)
        return found[0] if found is not None else None

    def reached_before_s(self, name: str, target: Target) -> float | None:
        """How long ago the node was last reached there, in seconds; None: never since this agent started."""
        at_s = self._reached_s.get((name, target))
        return None if at_s is None else self._clock_s() - at_s

    def note(self, name: str, target: Target) -> None:
        """It was reached just now."""
        self._reached_s[name, target] = self._clock_s()

    def probe(self) -> None:
        """One round. What is no neighbour any more is forgotten."""
        names = self._names
        known = tuple(self._reached_s.items())  # threads of orders note what they reach
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
        self._found[name] = target, float("-inf")  # asked about again
        return False

    def _where(self, name: str) -> Target | None:
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
            self._wake.wait(random.uniform(EVERY_S / 2, EVERY_S))  # noqa: S311 - jitter
            self._wake.clear()
            if not self._stopping:
                self.probe()
