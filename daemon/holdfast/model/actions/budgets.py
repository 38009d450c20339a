"""Budgets on machines: most that may be ended, cycled and bought within an hour and a day, for any reason. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.model.actions.action import Action, Launch, Reboot, Replace, StopStart, Terminate
from holdfast_checks.words import unknown_reads_as

MOST_PLUS = 1000
"""Machines by which an operator may extend a budget at most."""
LONGEST_H = 168.0
"""Hours for which an extension may hold at most."""


@unknown_reads_as(None, "the extension is not counted: the budget is as the configuration says")
class BudgetKind(StrEnum):
    """Steps that are counted together, by their effect on a machine."""

    ENDED = "ended"
    """Terminated, or exchanged in place: whatever was on it is gone."""
    CYCLED = "cycled"
    """Rebooted, or stopped and started."""
    BOUGHT = "bought"
    """Launched: it costs money from then on."""


def budget_of(action: Action) -> BudgetKind | None:
    """The budget that the action spends; None: none."""
    match action:
        case Terminate() | Replace():
            return BudgetKind.ENDED
        case Reboot() | StopStart():
            return BudgetKind.CYCLED
        case Launch():
            return BudgetKind.BOUGHT
        case _:
            return None


@dataclass(frozen=True, slots=True)
class BudgetExtension:
    """An operator allows more for a time."""

    kind: BudgetKind
    plus: int
    """Additional machines, within an hour and within a day."""
    until: datetime
    by: str
    reason: str = ""
    plus_nodes: int = 0
    """Additional different nodes, within a day. A separate number: the share of the cluster protects a small cluster from losing all its
    nodes."""


@dataclass(frozen=True, slots=True)
class BudgetState:
    """State of one budget."""

    kind: BudgetKind
    hour_spent: int
    hour_most: int
    day_spent: int
    day_most: int
    nodes: frozenset[str]
    """Nodes whose machines were taken within a day."""
    nodes_most: int
    """Most different nodes: a share of the cluster."""
    extension: BudgetExtension | None = None
    """The one that holds now."""
    node_set: str = ""
    """The ``[[nodes]]`` table whose own budget it is; empty: the site's."""
    owed: int = 0
    """Of the machines that are counted: those that replacements under way have yet to end."""

    @property
    def name(self) -> str:
        """By which it is shown: ``ended``, or ``ended@SET``."""
        return f"{self.kind.value}@{self.node_set}" if self.node_set else self.kind.value

    @property
    def half_spent(self) -> bool:
        """Whether half of the hour's, or of the day's, steps are spent."""
        return 2 * self.hour_spent >= self.hour_most or 2 * self.day_spent >= self.day_most

    @property
    def left(self) -> int:
        """Machines of other nodes that may still be taken now."""
        return max(0, min(self.steps_left, self.nodes_most - len(self.nodes)))

    @property
    def steps_left(self) -> int:
        """Machines that may still be taken now, of nodes that were counted already."""
        return max(0, min(self.hour_most - self.hour_spent, self.day_most - self.day_spent))

    def has_room(self, node: str | None) -> bool:
        """Whether one more machine may be taken now, of this node."""
        return (self.steps_left if node in self.nodes else self.left) > 0
