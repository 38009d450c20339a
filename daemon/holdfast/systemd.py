"""systemd's side of a service: readiness and the watchdog (sd_notify(3)). Nothing happens where it did not start us."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

log = logging.getLogger(__name__)


def sd_notify(message: str) -> None:
    """Tell systemd (``READY=1``, ``WATCHDOG=1``, ``STOPPING=1``) where it started us; nothing otherwise."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        _notice().sendto(message.encode(), f"\0{address[1:]}" if address[0] == "@" else address)
    except OSError as error:
        log.warning("event=sd_notify_failed error=%r", str(error))


@cache
def _notice() -> socket.socket:
    """Kept open: a process that has no descriptor left lives, and must say so or is killed. Raises OSError."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)


def watchdog_interval_s() -> float | None:
    """Half of systemd's WatchdogSec; None: no watchdog."""
    usec = os.environ.get("WATCHDOG_USEC", "")
    if not usec.isdigit() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return max(0.5, int(usec) / 2e6)


@dataclass
class Pulse:
    """What a daemon's loop tells systemd: ready after the first complete cycle, alive after each later one.

    A loop that is stuck in a cycle beats no more, and systemd starts the service again after WatchdogSec."""

    clock_s: Callable[[], float] = time.monotonic
    tell: Callable[[str], None] = sd_notify
    interval_s: float | None = field(default_factory=watchdog_interval_s)
    """Between two beats at least; None: there is no watchdog."""
    _last_s: float | None = None

    def beat(self) -> None:
        """A cycle is complete."""
        now_s = self.clock_s()
        if self._last_s is None:
            self._last_s = now_s
            self.tell("READY=1")
        elif self.interval_s is not None and now_s - self._last_s >= self.interval_s:
            self._last_s = now_s
            self.tell("WATCHDOG=1")
