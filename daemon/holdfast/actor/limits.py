"""The actor's own limits on steps, whatever the store says, counted in its own file.

Brakes and budgets are in the store, which the controller writes, and the controller listens to the network. An attacker who takes over that
process can plan any step; then only these limits remain. They are a multiple of the brakes and budgets that the actor reads in
``controller.toml`` (owned by root), and are never reached while those hold
(``docs/decisions/0028-the-actor-keeps-limits-of-its-own.md``)."""

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
from holdfast.model.actions.action import Action, AdoptSpare, Drain, HoldJob, Launch, Requeue, SetDown, TakeOverDrain
from holdfast.model.actions.budgets import BudgetKind, budget_of
from holdfast.model.errors import OutsideError
from holdfast.model.operators.node_orders import DrainForOperator, ReleaseForOperator
from holdfast.model.policies.lookback import CAP_DAY_S, CAP_HOUR_S
from holdfast.model.policies.policy import Policy

HOUR, DAY = timedelta(seconds=CAP_HOUR_S), timedelta(seconds=CAP_DAY_S)
_MOST_CHARS = 255
"""Longest name that is stored as it is. No node has a longer one; it is stored as a digest, so that the file stays short enough to read."""
LEAST_OUT = 32
"""Nodes that may always be taken out within an hour: a rack that loses power all at once is no attack."""


class LimitedStep(StrEnum):
    """Kinds of steps; each is counted separately."""

    OUT = "out"
    """Nodes drained, set DOWN, or put into the spare pool, where no user's job starts."""
    RELEASED = "released"
    """Nodes put back for operators, or whose drain is taken over for one: the steps that undo a drain that is not Holdfast's."""
    STOPPED = "stopped"
    """Nodes whose jobs were requeued or held; a job counts for the first of its nodes, so that the small jobs of one node count once."""
    ENDED = "ended"
    CYCLED = "cycled"
    BOUGHT = "bought"


_WORDS = {
    LimitedStep.OUT: "nodes taken out of service",
    LimitedStep.RELEASED: "nodes released for operators",
    LimitedStep.STOPPED: "nodes whose jobs were stopped",
    LimitedStep.ENDED: "machines ended or exchanged",
    LimitedStep.CYCLED: "machines rebooted, or stopped and started",
    LimitedStep.BOUGHT: "machines launched",
}
_BUDGETS = {
    BudgetKind.ENDED: LimitedStep.ENDED,
    BudgetKind.CYCLED: LimitedStep.CYCLED,
    BudgetKind.BOUGHT: LimitedStep.BOUGHT,
}


def limited(action: Action) -> LimitedStep | None:
    """The limit that the step counts against; None: none, it takes no capacity away and undoes nothing of others."""
    if isinstance(action, ReleaseForOperator | TakeOverDrain):
        return LimitedStep.RELEASED
    if isinstance(action, Drain | DrainForOperator | SetDown | AdoptSpare):
        return LimitedStep.OUT
    if isinstance(action, Requeue | HoldJob):
        return LimitedStep.STOPPED
    budget = budget_of(action)
    return _BUDGETS[budget] if budget is not None else None


def most(policy: Policy, kind: LimitedStep, factor: float, nodes: int) -> tuple[tuple[timedelta, int], ...]:
    """(window, maximum within it) for a cluster of this many nodes."""
    brake = policy.brake
    out = max(brake.drains_60min, math.floor(nodes * brake.drains_60min_share))
    if kind in (LimitedStep.OUT, LimitedStep.RELEASED):
        return ((HOUR, max(math.ceil(factor * out), LEAST_OUT)),)
    if kind is LimitedStep.STOPPED:
        return ((HOUR, math.ceil(factor * (max(out, brake.stopped_jobs_60min) + brake.hang_stops_60min))),)
    budget = next(b for b, limit in _BUDGETS.items() if limit is kind)
    hour, day, _nodes = budget_limits(policy.repair, budget, nodes)
    return ((HOUR, math.ceil(factor * hour)), (DAY, math.ceil(factor * day)))


@dataclass(frozen=True, slots=True)
class StartedStep:
    """A step that was started."""

    kind: LimitedStep
    what: str
    """The node, or the machine's node; for a launch also its token."""
    at: datetime


@dataclass(frozen=True, slots=True)
class Full:
    """An exhausted limit."""

    kind: LimitedStep
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
            "controller.toml and restart holdfast-actor; if not, `systemctl stop holdfast-actor` (a pause lies in the store that plans "
            "them), and find out what writes the store"
        )


def full(
    taken: Iterable[StartedStep],
    kind: LimitedStep,
    what: str,
    windows: tuple[tuple[timedelta, int], ...],
    now: datetime,
) -> Full | None:
    """The limit that a further step would exceed; None: it may start. A node that was counted already is not counted twice."""
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
    """The actor's own folder; None: nothing is written, and the counts are lost at a restart."""
    policy: Policy
    factor: float
    """Multiple of what brakes and budgets allow; 0: no limits."""
    now: Callable[[], datetime]
    nodes: Callable[[], int]
    """How many nodes Slurm shows; may raise OutsideError. Asked only where the numbers without a share are reached."""
    going: Callable[[], frozenset[str]] = frozenset
    """Nodes whose machines the provider takes away, by notices that the actor itself read: exempt from limits, as from brakes (ADR 9)."""
    _taken: list[StartedStep] = field(default_factory=list)
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
        """The limit that holds the step back; None: it may start."""
        kind = limited(action)
        if kind is None or self.factor <= 0:
            return None
        what = "" if kind is LimitedStep.STOPPED else str(action.target.node)
        if what in self.going():
            return None
        now, what = self.now(), _counted(action, what)
        with self._lock:
            taken = tuple(self._taken)
        if full(taken, kind, what, most(self.policy, kind, self.factor, 0), now) is None:
            return None
        return full(taken, kind, what, most(self.policy, kind, self.factor, self._cluster(now)), now)

    def begin(self, action: Action, what: str) -> Full | None:
        """Count the step, which starts now, or return the limit that holds it back. Atomic, since many steps start at once.
        ``what``: its node; for a job the first of its nodes."""
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

    def _count(self, kind: LimitedStep, what: str, now: datetime) -> None:
        self._taken = [each for each in self._taken if now - each.at < DAY and (each.kind, each.what) != (kind, what)]
        self._taken.append(StartedStep(kind, what, now))
        self._file.write([[each.kind.value, each.what, each.at.timestamp()] for each in self._taken])

    def _cluster(self, now: datetime) -> int:
        if self._nodes is None or not timedelta(0) <= now - self._nodes[0] < HOUR:
            try:
                self._nodes = now, self.nodes()
            except OutsideError:
                return 0
        return self._nodes[1]


def _counted(action: Action, what: str) -> str:
    """Key that counts once: the node; for launches, the node with the launch token."""
    text = f"{what} {action.token}" if isinstance(action, Launch) else what
    return text if len(text) <= _MOST_CHARS else hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _rows(found: Any) -> list[StartedStep]:
    return [_taken(row) for row in found]


def _taken(row: Any) -> StartedStep:
    kind, what, at_s = row
    if not isinstance(what, str):
        raise TypeError("a node's name is a text")
    return StartedStep(LimitedStep(kind), what, datetime.fromtimestamp(float(at_s), UTC))
