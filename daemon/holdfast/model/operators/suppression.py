"""Suppression by an operator: findings of some kind are known and lead to no action for a while. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from holdfast.model.agents.report import Finding
from holdfast.model.errors import Rejected

ANY = "*"
LONGEST = timedelta(days=90)
"""Nothing is suppressed for good: what is known for longer belongs into the configuration, or to a repair."""


@dataclass(frozen=True, slots=True)
class Suppression:
    """Findings that match all three patterns (``*``, ``?`` and ``[…]`` as in a shell) open no incident until it ends."""

    id: str
    until: datetime
    by: str
    reason: str
    created_at: datetime
    node: str = ANY
    check: str = ANY
    component: str = ANY

    def holds(self, at: datetime) -> bool:
        return at < self.until

    def covers(self, finding: Finding, at: datetime) -> bool:
        """Whether this finding is to lead to nothing now."""
        return (
            self.holds(at)
            and fnmatchcase(finding.node, self.node)
            and fnmatchcase(finding.check, self.check)
            and fnmatchcase(finding.component, self.component)
        )

    @property
    def what(self) -> str:
        """``gpu.thermal on n7``, for people."""
        component = "" if self.component == ANY else f" of {self.component}"
        where = "every node" if self.node == ANY else self.node
        return f"{'every check' if self.check == ANY else self.check}{component} on {where}"


def check_suppression(wanted: Suppression) -> None:
    """Raises Rejected for one that would suppress everything, has ended already, or lasts too long."""
    if (wanted.node, wanted.check, wanted.component) == (ANY, ANY, ANY):
        raise Rejected("a suppression needs a node, a check or a component; `holdfast pause` stops everything")
    if wanted.until <= wanted.created_at:
        raise Rejected("a suppression must end in the future")
    if wanted.until - wanted.created_at > LONGEST:
        raise Rejected(f"a suppression may last {LONGEST.days} days at most")
