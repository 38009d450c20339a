"""Legal sizes of an elastic job, in replica groups: ``min:max``, ``min:max:step`` or ``min:max:size,size,…``. Pure; standard library only.

The daemon, the launcher and the training library all read sizes with this module."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

_SHAPE = re.compile(r"(\d{1,6}):(\d{1,6})(?::(\d{1,6}|\d{1,6}(?:[,+]\d{1,6})*[,+]?))?", re.ASCII)
GROUPS_MAX = 100_000
"""More groups than any cluster has nodes; keeps a typing error from making an endless list."""

_NAMED = 16
"""Up to this many, sizes with one step are listed one by one: that reads better in a comment."""


class BadSizes(ValueError):
    """The text is no range of sizes; one line that says what to write. It repeats words of a user's, without their control characters."""

    def __init__(self, text: str) -> None:
        super().__init__("".join(letter if letter.isprintable() else " " for letter in text)[:300])


@dataclass(frozen=True, slots=True)
class Sizes:
    """Legal numbers of groups, ascending and without doubles; never empty."""

    legal: range | tuple[int, ...]
    """A range wherever they are one: a user declares as many as he likes, and each takes no room."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "legal", _evenly(self.legal))

    def up_to(self, groups: int) -> list[int]:
        """Legal sizes of at most this many groups."""
        return list(self.legal[: bisect_right(self.legal, groups)])

    @property
    def least(self) -> int:
        return self.legal[0]

    @property
    def most(self) -> int:
        return self.legal[-1]

    def usable(self, present: int) -> int:
        """The largest legal size that this many groups can fill; 0 if they are too few for any."""
        found = bisect_right(self.legal, present)
        return self.legal[found - 1] if found else 0

    @property
    def text(self) -> str:
        """As :func:`parse_sizes` reads it, with ``+`` between sizes: fit for a Slurm comment, where commas separate words."""
        if len(self.legal) == self.most - self.least + 1:
            return f"{self.least}:{self.most}"
        if isinstance(self.legal, range) and len(self.legal) > _NAMED:
            return f"{self.least}:{self.most}:{self.legal.step}"
        return f"{self.least}:{self.most}:{'+'.join(map(str, self.legal))}"


def parse_sizes(declared: str) -> Sizes:
    """A single number after the range is a step from ``min``; a list (``2:8:2,4,8``, ``2:8:2+4+8`` or ``2:8:4,``) names the sizes.

    Both ends are always legal. Raises BadSizes."""
    match = _SHAPE.fullmatch(declared.strip())
    if match is None:
        raise BadSizes(f"{declared!r} is no range of sizes: write min:max, min:max:step or min:max:size,size")
    low, high, rest = int(match[1]), int(match[2]), match[3]
    if not 1 <= low <= high <= GROUPS_MAX:
        raise BadSizes(
            f"{declared!r}: the sizes go from {low} to {high}; they must ascend from at least 1 to at most {GROUPS_MAX}"
        )
    if rest is None:
        return Sizes(range(low, high + 1))
    if "," not in rest and "+" not in rest:
        return _stepped(declared, low, high, int(rest))
    named = {int(part) for part in re.split("[,+]", rest) if part}
    outside = sorted(size for size in named if not low <= size <= high)
    if outside:
        raise BadSizes(f"{declared!r}: size {outside[0]} is not between {low} and {high}")
    return Sizes(tuple(sorted(named | {low, high})))


def _stepped(declared: str, low: int, high: int, step: int) -> Sizes:
    if step < 1 or (high - low) % step:
        raise BadSizes(f"{declared!r}: steps of {step} from {low} do not meet {high}")
    return Sizes(range(low, high + 1, step))


def _evenly(legal: range | tuple[int, ...]) -> range | tuple[int, ...]:
    """The sizes as a range, if the steps between them are equal."""
    if isinstance(legal, range) or not legal:
        return legal
    steps = {after - before for before, after in pairwise(legal)} or {1}
    step = steps.pop()
    return legal if steps or step < 1 else range(legal[0], legal[-1] + 1, step)
