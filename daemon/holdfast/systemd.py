"""systemd integration: readiness and the watchdog (sd_notify(3)). No effect in processes that systemd did not start."""

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
    """Send a state (``READY=1``, ``WATCHDOG=1``, ``STOPPING=1``) to systemd if it started this process; otherwise do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        _notice().sendto(message.encode(), f"\0{address[1:]}" if address[0] == "@" else address)
    except OSError as error:
        log.warning("event=sd_notify_failed error=%r", str(error))


@cache
def _notice() -> socket.socket:
    """Open a socket that is kept: a process without a free descriptor must still notify the watchdog, or it is killed. Raises OSError."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)


def watchdog_interval_s() -> float | None:
    """Half of systemd's WatchdogSec; None: no watchdog."""
    usec = os.environ.get("WATCHDOG_USEC", "")
    if not usec.isdigit() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return max(0.5, int(usec) / 2e6)


@dataclass
class WatchdogPulse:
    """Notifications of a daemon's loop to systemd: ready after the first complete cycle, alive after each later one.

    A loop that is stuck in a cycle sends none, and systemd restarts the service after WatchdogSec."""

    clock_s: Callable[[], float] = time.monotonic
    tell: Callable[[str], None] = sd_notify
    interval_s: float | None = field(default_factory=watchdog_interval_s)
    """Shortest interval between two notifications; None: there is no watchdog."""
    _last_s: float | None = None

    def beat(self) -> None:
        """Report a complete cycle."""
        now_s = self.clock_s()
        if self._last_s is None:
            self._last_s = now_s
            self.tell("READY=1")
        elif self.interval_s is not None and now_s - self._last_s >= self.interval_s:
            self._last_s = now_s
            self.tell("WATCHDOG=1")
