"""Neighbours that the controller names in its answer to a heartbeat: reached now and then in calm times, so that this agent can bear
witness when it cannot reach one any more (``probe_peer``)."""

from __future__ import annotations

import errno
import logging
import random
import socket
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

Target = tuple[str, int]
"""Address and port of another node's slurmd."""
EVERY_S = 600.0
"""Pause between two rounds, drawn between half of this and all of it."""
_TIMEOUT_S = 2.0
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
    """Which of them were reached, and when. Told by the thread that sends; probes in a thread of its own that waits most of the time."""

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        connects: Callable[[Target, float], OSError | None] = connect,
    ) -> None:
        self._clock_s = clock_s
        self._connects = connects
        self._targets: tuple[Target, ...] = ()
        self._reached_s: dict[Target, float] = {}
        self._found: dict[Target, bool] = {}
        """Of the last round."""
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="neighbours", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def told(self, named: object) -> None:
        """What the controller named; new ones are tried at once. Anything else than a list of address and port says nothing."""
        if not isinstance(named, list):
            return
        targets = tuple(target for each in named[:_MOST] if (target := _target(each)) is not None)
        if targets != self._targets:
            self._targets = targets
            self._wake.set()

    def reached_before_s(self, target: Target) -> float | None:
        """How long ago it was last reached, in seconds; None: never since this agent started."""
        at_s = self._reached_s.get(target)
        return None if at_s is None else self._clock_s() - at_s

    def note(self, target: Target) -> None:
        """It was reached just now."""
        self._reached_s[target] = self._clock_s()

    def probe(self) -> None:
        """One round. What is no neighbour any more is forgotten."""
        targets = self._targets
        self._reached_s = {t: at_s for t, at_s in self._reached_s.items() if t in targets}
        found = {target: alive(self._connects(target, _TIMEOUT_S)) for target in targets}
        for target in (target for target, reached in found.items() if reached):
            self.note(target)
        if found != self._found:
            self._found = found
            missed = ",".join(f"{address}:{port}" for (address, port), reached in found.items() if not reached)
            log.info("event=neighbours reached=%d of=%d unreached=%s", sum(found.values()), len(found), missed)

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(random.uniform(EVERY_S / 2, EVERY_S))  # noqa: S311 - jitter
            self._wake.clear()
            if not self._stopping:
                self.probe()


def _target(each: object) -> Target | None:
    if not isinstance(each, list) or len(each) != 2:
        return None
    address, port = each
    named = isinstance(address, str) and address and isinstance(port, int) and not isinstance(port, bool)
    return (address, port) if named and 0 < port < 65536 else None
