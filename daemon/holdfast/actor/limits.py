"""What the actor does at most, whatever the store says: limits of its own, counted in a file of its own.

Brakes and budgets lie in the store, and the controller, which listens to the network, writes it. Whoever takes that process over plans what
he likes; these limits are what is left then. They are a multiple of the brakes and budgets that the actor reads in ``controller.toml``,
which is root's, and never reached while those hold (``docs/decisions/0028-the-actor-keeps-limits-of-its-own.md``)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any

from holdfast.actor.own_file import ActorFile
from holdfast.decisions.common.budgets import limits as budget_limits
from holdfast.model.action import Action, AdoptSpare, Drain, HoldJob, Launch, Requeue, SetDown
from holdfast.model.budgets import BudgetKind, budget_of
from holdfast.model.errors import OutsideError
from holdfast.model.lookback import CAP_DAY_S, CAP_HOUR_S
from holdfast.model.policy import Policy

HOUR, DAY = timedelta(seconds=CAP_HOUR_S), timedelta(seconds=CAP_DAY_S)
_MOST_CHARS = 255
"""Of what is counted: a longer name is no node's, is kept by its digest, and would make the file too long to be read."""
LEAST_OUT = 32
"""Nodes that may be taken out within an hour in any case: a rack that loses its power at once is no attack."""


class Limited(StrEnum):
    """What is counted together."""

    OUT = "out"
    """Nodes drained, set DOWN, or put into the pool of spares, where no user's job starts."""
    STOPPED = "stopped"
    """Nodes whose jobs were requeued or held; a job counts for the first of its nodes, so that the small jobs of one node count once."""
    ENDED = "ended"
    CYCLED = "cycled"
    BOUGHT = "bought"


_WORDS = {
    Limited.OUT: "nodes taken out of service",
    Limited.STOPPED: "nodes whose jobs were stopped",
    Limited.ENDED: "machines ended or exchanged",
    Limited.CYCLED: "machines rebooted, or stopped and started",
    Limited.BOUGHT: "machines launched",
}
_BUDGETS = {BudgetKind.ENDED: Limited.ENDED, BudgetKind.CYCLED: Limited.CYCLED, BudgetKind.BOUGHT: Limited.BOUGHT}


def limited(action: Action) -> Limited | None:
    """What the step counts for; None: it takes nothing from anybody."""
    if isinstance(action, Drain | SetDown | AdoptSpare):
        return Limited.OUT
    if isinstance(action, Requeue | HoldJob):
        return Limited.STOPPED
    budget = budget_of(action)
    return _BUDGETS[budget] if budget is not None else None


def most(policy: Policy, kind: Limited, factor: float, nodes: int) -> tuple[tuple[timedelta, int], ...]:
    """(window, most within it) for a cluster of so many nodes."""
    brake = policy.brake
    out = max(brake.drains_60min, math.floor(nodes * brake.drains_60min_share))
    if kind is Limited.OUT:
        return ((HOUR, max(math.ceil(factor * out), LEAST_OUT)),)
    if kind is Limited.STOPPED:
        return ((HOUR, math.ceil(factor * (max(out, brake.stopped_jobs_60min) + brake.hang_stops_60min))),)
    budget = next(b for b, limit in _BUDGETS.items() if limit is kind)
    hour, day, _nodes = budget_limits(policy.repair, budget, nodes)
    return ((HOUR, math.ceil(factor * hour)), (DAY, math.ceil(factor * day)))


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was begun."""

    kind: Limited
    what: str
    """The node, or the machine's node; of a launch its token, too."""
    at: datetime


@dataclass(frozen=True, slots=True)
class Full:
    """A limit that is used up."""

    kind: Limited
    count: int
    most: int
    window: timedelta
    until: datetime
    """When the oldest of them leaves the window."""

    @property
    def text(self) -> str:
        hours = self.window / HOUR
        return (
            f"the actor's own limit holds back further steps: {self.count} {_WORDS[self.kind]} within {hours:.0f} h, at most {self.most}. "
            f"The next may begin at {self.until:%Y-%m-%d %H:%M} UTC. If this many are intended, raise actor.limit_factor in "
            f"controller.toml and "
            "restart holdfast-actor; if not, pause Holdfast and find out who plans them"
        )


def full(
    taken: Iterable[Taken], kind: Limited, what: str, windows: tuple[tuple[timedelta, int], ...], now: datetime
) -> Full | None:
    """The limit that a further step would exceed; None: it may begin. What counts already counts once."""
    mine = [each for each in taken if each.kind is kind]
    for window, at_most in windows:
        within = {each.what: each.at for each in mine if now - each.at < window}
        if len(within) >= at_most and what not in within:
            oldest = min(within.values(), default=now)
            return Full(kind, len(within), at_most, window, oldest + window)
    return None


@dataclass
class ActorLimits:
    """The limits and their file. Safe to use from many threads; raises nothing."""

    folder: Path | None
    """The actor's own; None: nothing is written, and a restart forgets."""
    policy: Policy
    factor: float
    """So many times what brakes and budgets allow; 0: no limits."""
    now: Callable[[], datetime]
    nodes: Callable[[], int]
    """How many nodes Slurm shows; may raise OutsideError. Asked only where the numbers without a share are reached."""
    going: Callable[[], frozenset[str]] = frozenset
    """Nodes whose machines go by the word of the provider, as the actor itself heard it: no limit holds them, as no brake does (ADR 9)."""
    _taken: list[Taken] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _nodes: tuple[datetime, int] | None = None
    _file: ActorFile = field(init=False)

    def __post_init__(self) -> None:
        self._file = ActorFile(
            None if self.folder is None else self.folder / "steps.json",
            "actor_limits_not_written",
            "a restart of the actor forgets what it has done",
            "the actor's own limits count from now on",
        )
        if self.folder is not None and self.factor > 0:
            self._taken = self._file.read(_rows) or []

    def full(self, action: Action) -> Full | None:
        """The limit that holds the step back; None: it may begin."""
        kind = limited(action)
        if kind is None or self.factor <= 0:
            return None
        what = "" if kind is Limited.STOPPED else str(action.target.node)
        if what in self.going():
            return None
        now, what = self.now(), _counted(action, what)
        with self._lock:
            taken = tuple(self._taken)
        if full(taken, kind, what, most(self.policy, kind, self.factor, 0), now) is None:
            return None
        return full(taken, kind, what, most(self.policy, kind, self.factor, self._cluster(now)), now)

    def begin(self, action: Action, what: str) -> Full | None:
        """Count the step, which begins now; or the limit that holds it back: asked and counted in one, since many begin at once.
        ``what``: its node; of a job the first of its nodes."""
        kind = limited(action)
        if kind is None or self.factor <= 0:
            return None
        now, goes, what = self.now(), what in self.going(), _counted(action, what)
        with self._lock:
            held = None if goes else full(self._taken, kind, what, most(self.policy, kind, self.factor, 0), now)
            if held is None:
                self._count(kind, what, now)
                return None
        windows = most(self.policy, kind, self.factor, self._cluster(now))
        with self._lock:
            held = full(self._taken, kind, what, windows, now)
            if held is None:
                self._count(kind, what, now)
            return held

    def _count(self, kind: Limited, what: str, now: datetime) -> None:
        self._taken = [each for each in self._taken if now - each.at < DAY and (each.kind, each.what) != (kind, what)]
        self._taken.append(Taken(kind, what, now))
        self._file.write([[each.kind.value, each.what, each.at.timestamp()] for each in self._taken])

    def _cluster(self, now: datetime) -> int:
        if self._nodes is None or not timedelta(0) <= now - self._nodes[0] < HOUR:
            try:
                self._nodes = now, self.nodes()
            except OutsideError:
                return 0
        return self._nodes[1]


def _counted(action: Action, what: str) -> str:
    """What counts once: the node, but each machine that is bought for it."""
    text = f"{what} {action.token}" if isinstance(action, Launch) else what
    return text if len(text) <= _MOST_CHARS else hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _rows(found: Any) -> list[Taken]:
    return [_taken(row) for row in found]


def _taken(row: Any) -> Taken:
    kind, what, at_s = row
    if not isinstance(what, str):
        raise TypeError("a node's name is a text")
    return Taken(Limited(kind), what, datetime.fromtimestamp(float(at_s), UTC))
