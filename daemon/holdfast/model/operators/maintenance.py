"""Maintenance windows: nodes that an operator has taken out of Holdfast's hands for a time. Standard library only."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.model.errors import NotFound, Rejected
from holdfast.model.target import Target

LONGEST = timedelta(days=30)
KEPT = timedelta(days=1)
"""Time for which a window that is over is kept: until its reservation is gone from Slurm."""
RESERVATION = "holdfast-maint-"
"""Prefix of the names of their reservations in Slurm."""


@dataclass(frozen=True, slots=True)
class Window:
    """Nodes in maintenance, by an operator's order to Holdfast."""

    id: str
    nodes: tuple[str, ...]
    """Those that are left: an operator may end it node by node."""
    created_at: datetime
    until: datetime
    by: str
    why: str

    def holds(self, at: datetime) -> bool:
        return bool(self.nodes) and at < self.until

    @property
    def reservation(self) -> str:
        """Name of its reservation in Slurm."""
        return f"{RESERVATION}{self.id}"


@dataclass(frozen=True, slots=True)
class Windows:
    """All that are remembered, as they are stored."""

    windows: tuple[Window, ...] = ()

    def at(self, now: datetime) -> Windows:
        """Without those that ended long ago."""
        return Windows(tuple(w for w in self.windows if now - w.until < KEPT))

    def begun(self, window: Window) -> Windows:
        """With this one. Raises Rejected for one without nodes, without a time, or that lasts too long."""
        if not window.nodes:
            raise Rejected("a maintenance window needs a node")
        if window.until <= window.created_at:
            raise Rejected("a maintenance window must end in the future")
        if window.until - window.created_at > LONGEST:
            raise Rejected(f"a maintenance window may last {LONGEST.days} days at most")
        return Windows((*self.windows, window))

    def ended(self, nodes: Collection[str], at: datetime) -> Windows:
        """Without these nodes; those that are in no window change nothing. Raises NotFound where none of them is in one."""
        held = {name for w in self.windows if w.holds(at) for name in w.nodes}
        if not held & set(nodes):
            named = ", ".join(sorted(nodes)[:5])
            raise NotFound(f"no maintenance window of Holdfast's holds {named}; `holdfast maintain` lists them")
        return Windows(tuple(_without(w, nodes, at) for w in self.windows))


def _without(window: Window, nodes: Collection[str], at: datetime) -> Window:
    left = tuple(n for n in window.nodes if n not in nodes)
    if left == window.nodes or not window.holds(at):
        return window
    return replace(window, nodes=left, until=window.until if left else at)


def window_of(windows: Iterable[Window], node: str, at: datetime) -> Window | None:
    """The window that holds the node and ends last; None: none does."""
    mine = (w for w in windows if w.holds(at) and node in w.nodes)
    return max(mine, key=lambda w: w.until, default=None)


@dataclass(frozen=True, slots=True)
class KeepWindow:
    """Make Slurm's MAINT reservation of a window what the window is: these nodes until then; without nodes: gone."""

    reservation: str
    nodes: tuple[str, ...]
    until: datetime

    @property
    def target(self) -> Target:
        return Target(reservation=self.reservation)
