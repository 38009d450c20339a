"""What the site says of drains that others set: reasons by pattern, each with a category. Standard library only.

A rule only names and counts: no drain of another is taken over, taken back or repaired because of one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from holdfast_checks.settings.option import option, required

MOST_CHARS = 128
"""Of a reason that rules look at: it may hold the name of a user's process, and the time that a pattern takes grows with it."""


@dataclass(frozen=True, slots=True)
class DrainRule:
    """``[[drain_rules]]``: a kind of drain that another tool, Slurm or an operator sets."""

    pattern: str = required("Regular expression that is searched for in Slurm's reason of the node.")
    category: str = required("What such a drain is called in the node's history, as: health check.")
    user: str = option("", "Only drains that this user set, as Slurm shows it; empty: any user's.")
    score: bool = option(False, "Count it as a fault of the node for its score, and so for whether it is a lemon.")

    def matches(self, reason: str, user: str) -> bool:
        said = _compiled(self.pattern).search(reason[:MOST_CHARS])  # rule prose: the site says what reasons mean
        return said is not None and self.user in ("", user)


MOST_REPEATS = 3
"""Three, each of anything, took 0.1 s on :data:`MOST_CHARS` characters; each further one takes some 50 times as long."""
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]|\(\?(?:P?<?[=!]|[a-zA-Z-]*:|P?<\w+>)|\{\d*,?\d*\}|.", re.DOTALL)
_REPEATS = re.compile(r"[*+]|\{\d*,\d*\}")


def may_hang(pattern: str) -> bool:
    """Whether a part that is repeated holds a repeat or a choice itself, or more than three parts are repeated. On a text that does not
    match, such a pattern may try each way to divide it, for hours. Some that would not hang count, too."""
    parts = _PART.findall(pattern)
    if sum(_REPEATS.fullmatch(part) is not None for part in parts) > MOST_REPEATS:
        return True
    inside = [False]
    """Of each open group: whether it holds a repeat or a choice."""
    for part, following in pairwise([*parts, ""]):
        if part.startswith("("):
            inside.append(False)
        elif part == ")" and len(inside) > 1:
            holds = inside.pop()
            if holds and (_REPEATS.fullmatch(following) or following.startswith("{")):
                return True
            inside[-1] = inside[-1] or holds
        elif part in ("|", "?") or _REPEATS.fullmatch(part):
            inside[-1] = True
    return False


@lru_cache(256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def rule_of(rules: Iterable[DrainRule], reason: str, user: str) -> DrainRule | None:
    """The first rule that the reason matches; None: none does."""
    return next((rule for rule in rules if rule.matches(reason, user)), None)
