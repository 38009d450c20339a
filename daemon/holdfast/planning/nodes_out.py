"""Number of nodes out of service at the same time, and the spares that are enough for it. Pure.

With independent failures at a constant rate the number is Poisson with the mean N r T, whatever the times of repair look like, where T is
their **mean** (a queue with a server for each: C. Palm 1943, B. A. Sevastyanov 1957). The median is wrong wherever few repairs take very
long: of 400 servers in 349 days 31 were down at once at P99 (the trace of InfiniteHBD, SIGCOMM 2025), where Poisson says 5 with the median
and 17 with the mean. Real failures come in bursts in addition; the negative binomial distribution has that over-dispersion as the ratio of
variance to mean, and a trace shows it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, islice

from holdfast.decisions.spares.pool import poisson_quantile
from holdfast.planning.failure_rate import poisson_at_most

_NOTHING = 1e-15
"""Shares this small change no sum any more."""


class SpareMethod(StrEnum):
    """Distribution of the nodes out at the same time."""

    POISSON = "poisson"
    """Independent failures, with the mean time of repair."""
    NEGATIVE_BINOMIAL = "negative binomial"
    """Over-dispersed: bursts, and times with more failures than others."""
    EMPIRICAL = "empirical"
    """Shares of the time in a trace."""


@dataclass(frozen=True, slots=True)
class NodesOut:
    """What is known of the number out at the same time."""

    mean: float
    dispersion: float = 1.0
    """Variance over mean; 1: Poisson."""
    shares: tuple[float, ...] = ()
    """Share of the time with 0, 1, 2 … nodes out; empty: not measured."""


def mean_out(nodes: float, rate_per_hour: float, repair_h: float) -> float:
    """N r T, with the mean time from a node's way out to its return."""
    return nodes * rate_per_hour * repair_h


def quantile(out: NodesOut, method: SpareMethod, share: float) -> int:
    """The smallest number that is not exceeded in this share of the time."""
    if method is SpareMethod.EMPIRICAL:
        return empirical_quantile(out.shares, share)
    if method is SpareMethod.NEGATIVE_BINOMIAL and out.dispersion > 1 and out.mean > 0:
        return negative_binomial_quantile(out, share)
    return poisson_quantile(out.mean, share)


def negative_binomial_quantile(out: NodesOut, share: float) -> int:
    """Smallest s with P[X <= s] >= share, of a mean and a dispersion above 1: a Poisson number whose mean is itself gamma distributed."""
    total = 0.0
    for number, part in enumerate(_negative_binomial(out)):
        total += part
        if total >= share or (number > out.mean and part < _NOTHING):
            return number
    raise AssertionError("without end")


def empirical_quantile(shares: Sequence[float], share: float) -> int:
    total = 0.0
    for number, part in enumerate(shares):
        total += part
        if total >= share - 1e-12:
            return number
    return max(len(shares) - 1, 0)


def measured(spans: Iterable[tuple[float, float]], length: float) -> NodesOut:
    """From spans (start, end) within 0 … ``length``, at most one at a time for each node: shares of the time, mean and dispersion."""
    changes: list[tuple[float, int]] = []
    for start, end in spans:
        changes += [(max(start, 0.0), 1), (min(end, length), -1)]
    lasted: dict[int, float] = {}
    now, number = 0.0, 0
    for at, change in sorted(changes):
        lasted[number] = lasted.get(number, 0.0) + at - now
        now, number = at, number + change
    lasted[number] = lasted.get(number, 0.0) + length - now
    return of_times(lasted)


def of_times(lasted: Mapping[int, float]) -> NodesOut:
    """From how long each number was out."""
    length = sum(lasted.values())
    shares = tuple(lasted.get(n, 0.0) / length for n in range(max(lasted) + 1))
    mean = sum(n * share for n, share in enumerate(shares))
    variance = sum((n - mean) ** 2 * share for n, share in enumerate(shares))
    return NodesOut(mean, variance / mean if mean > 0 else 1.0, shares)


@dataclass(frozen=True, slots=True)
class BlockSpares:
    """Spares that a block of nodes (a rack, a leaf switch) needs inside."""

    blocks: int
    each: int
    """So that this one block has enough in the wanted share of the time."""
    each_for_all: int
    """So that all blocks have enough at the same time."""

    @property
    def total(self) -> int:
        return self.blocks * self.each

    @property
    def total_for_all(self) -> int:
        return self.blocks * self.each_for_all


def by_block(out: NodesOut, nodes: int, block: int, method: SpareMethod, share: float) -> BlockSpares:
    """A job that lives inside a block (an NVL72 of 18 trays) can only take a spare of that block. Blocks fail independently here, each with
    its part of the mean and the same dispersion. A measured distribution is of the whole: negative binomial stands for it."""
    blocks = math.ceil(nodes / block)
    one = NodesOut(out.mean * block / nodes, out.dispersion)
    kind = SpareMethod.NEGATIVE_BINOMIAL if method is SpareMethod.EMPIRICAL else method
    return BlockSpares(blocks, quantile(one, kind, share), quantile(one, kind, share ** (1 / blocks)))


def no_spare_left(out: NodesOut, spares: int, method: SpareMethod) -> float:
    """Share of the failures that find no spare: the number out before them is ``spares`` or more (failures see the average over time)."""
    return 1 - at_most(out, method, spares - 1)


def at_most(out: NodesOut, method: SpareMethod, number: int) -> float:
    """Share of the time with ``number`` nodes out or fewer; 0 below 0."""
    if number < 0:
        return 0.0
    if method is SpareMethod.EMPIRICAL:
        return min(sum(out.shares[: number + 1]), 1.0)
    if method is SpareMethod.NEGATIVE_BINOMIAL and out.dispersion > 1 and out.mean > 0:
        return min(sum(islice(_negative_binomial(out), number + 1)), 1.0)
    return poisson_at_most(number, out.mean)


def _negative_binomial(out: NodesOut) -> Iterator[float]:
    """P[X = 0], P[X = 1] …, without end: of shape k = mean / (dispersion - 1) and success probability 1 / dispersion."""
    shape, grows = out.mean / (out.dispersion - 1), math.log1p(-1 / out.dispersion)
    log_share = -shape * math.log(out.dispersion)
    for number in count():
        yield math.exp(log_share)
        log_share += grows + math.log((shape + number) / (number + 1))
