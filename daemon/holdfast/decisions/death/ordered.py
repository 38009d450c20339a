"""Silence explained by an order to Slurm (reboot, power-off). Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model.book import World
from holdfast.model.policies.lookback import DEATHS_S

_SHUTDOWN_S = 120.0
"""A node that was ordered to reboot or power off is silent by then: systemd gives what it stops 90 s (``DefaultTimeoutStopSec``)."""


def by_slurm(world: World, name: str, alive_at: datetime | None) -> bool:
    """Whether Slurm's reboot or power saving explains that a node that last lived at ``alive_at`` is silent. Not of one that lived on for
    minutes while Slurm showed that: its RebootProgram did nothing, or it is up again and its slurmd has not registered yet. It is cut off
    as any other."""
    shown = world.view.nodes.get(name) if world.view is not None else None
    if shown is None or not (shown.reboot_issued or shown.asleep):
        return False
    if "POWERING_UP" in shown.flags and alive_at is not None and world.now - alive_at <= timedelta(seconds=DEATHS_S):
        return False
    record = world.book.nodes.get(name)
    since = record.hands_since if record is not None and record.hands else None
    return since is None or alive_at is None or alive_at <= since + timedelta(seconds=_SHUTDOWN_S)
