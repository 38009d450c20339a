"""What the site says of drains that others set: reasons by pattern, each with a category. Standard library only.

A rule only names and counts: no drain of another is taken over, taken back or repaired because of one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from holdfast_checks.settings.option import option, required


@dataclass(frozen=True, slots=True)
class DrainRule:
    """``[[drain_rules]]``: a kind of drain that another tool, Slurm or an operator sets."""

    pattern: str = required("Regular expression that is searched for in Slurm's reason of the node.")
    category: str = required("What such a drain is called in the node's history, as: health check.")
    user: str = option("", "Only drains that this user set, as Slurm shows it; empty: any user's.")
    score: bool = option(False, "Count it as a fault of the node for its score, and so for whether it is a lemon.")

    def matches(self, reason: str, user: str) -> bool:
        said = _compiled(self.pattern).search(reason)  # rule prose: the site says what reasons mean
        return said is not None and self.user in ("", user)


@lru_cache(256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def rule_of(rules: Iterable[DrainRule], reason: str, user: str) -> DrainRule | None:
    """The first rule that the reason matches; None: none does."""
    return next((rule for rule in rules if rule.matches(reason, user)), None)
