"""Reasons why an actor takes no step, and the log line that reports the reason with what to do."""

from __future__ import annotations

import logging
from datetime import datetime
from enum import Enum

from holdfast.controller.lease_holder import names_a_process
from holdfast.ports import Lease

log = logging.getLogger(__name__)

SETTLES_S = 30.0
"""Anything shorter is a restart: a lease is taken over within 15 s."""
SAY_EVERY_S = 60.0


class Idle(Enum):
    """Why there is no controller that this actor acts for."""

    NO_CONTROLLER = "no_controller"
    """The lock file names no controller: none runs on this machine, or its ``run.dir`` is a different one."""
    NO_LEASE = "no_lease"
    """No controller leads."""
    ANOTHER_LEADS = "another_leads"
    """A controller of another machine: this head is the standby."""
    OLDER_LEADS = "older_leads"
    """A controller of an older release, which is not the one of this machine."""
    NOT_NAMED = "not_named"
    """A controller of this release leads, and the lock file of this machine is that of an older one."""


_TO_DO = {
    Idle.NO_CONTROLLER: "start holdfast-controller on this machine, with the same [run] dir",
    Idle.NO_LEASE: "start holdfast-controller; journalctl -u holdfast-controller says why it does not lead",
    Idle.ANOTHER_LEADS: "nothing where this machine is the standby: the actor on the machine of that controller takes the steps",
    Idle.OLDER_LEADS: "restart holdfast-controller and holdfast-actor there with this release",
    Idle.NOT_NAMED: "where this machine's controller is meant to lead, restart holdfast-controller, then holdfast-actor",
}


def idle(lease: Lease | None, controller: str | None, now: datetime) -> Idle | None:
    """None: ``controller``, the one of this machine as the lease names it, leads, and the actor takes its steps."""
    if controller is None:
        return Idle.NO_CONTROLLER
    if lease is None or lease.expires_at <= now:
        return Idle.NO_LEASE
    if lease.holder == controller:
        return None
    if not names_a_process(lease.holder):
        return Idle.OLDER_LEADS
    return Idle.ANOTHER_LEADS if names_a_process(controller) else Idle.NOT_NAMED


class IdleWatch:
    """Tracks how long the actor has been idle, and logs the current cause once a minute."""

    def __init__(self) -> None:
        self._say_at_s: float | None = None

    def look(self, cause: Idle | None, lease: Lease | None, controller: str | None, now_s: float) -> None:
        """``now_s``: of a monotonic clock."""
        if cause is None:
            self._say_at_s = None
            return
        if self._say_at_s is None:
            self._say_at_s = now_s + SETTLES_S
        if now_s < self._say_at_s:
            return
        self._say_at_s = now_s + SAY_EVERY_S
        level = logging.INFO if cause is Idle.ANOTHER_LEADS else logging.WARNING
        leader = lease.holder if lease is not None and cause is not Idle.NO_LEASE else "-"
        log.log(
            level, "event=no_steps why=%s leader=%s controller=%s to_do=%r",
            cause.value, leader, controller or "-", _TO_DO[cause],
        )  # fmt: skip
