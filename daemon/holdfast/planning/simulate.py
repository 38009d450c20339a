"""Simulation of a run and of nodes out of service, to confirm the closed forms. Pure: chance is injected.

It shares nothing with the closed forms but their assumptions: it draws each failure, throws away the work since the last save, recovers,
and starts the recovery again where another failure comes meanwhile."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Protocol

from holdfast.planning.nodes_out import NodesOut, of_times
from holdfast.planning.run_cost import NO_WAITING, CapacityWait, Saving


class Chance(Protocol):
    """Random numbers; ``random.Random`` has them."""

    def random(self) -> float:
        """Uniform in 0 … 1."""

    def expovariate(self, lambd: float, /) -> float:
        """Exponential with this rate."""


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of several runs, with the half width of its interval."""

    value: float
    margin: float

    def holds(self, value: float) -> bool:
        return abs(value - self.value) <= self.margin


def mean_of(values: Sequence[float], sigmas: float = 3.0) -> Mean:
    """``sigmas`` standard errors to each side; 3: a correct value is outside once in 370 times. At least two values."""
    return Mean(fmean(values), sigmas * stdev(values) / math.sqrt(len(values)))


def simulate_slowdown(
    cluster_rate: float,
    down_h: float,
    saving: Saving,
    chance: Chance,
    segments: int,
    waiting: CapacityWait = NO_WAITING,
) -> float:
    """Total over ideal time of one run of this many segments between two saves. ``cluster_rate`` above 0."""
    clock = 0.0
    for _ in range(segments):
        while (until_failure := chance.expovariate(cluster_rate)) < saving.interval_h + saving.cost_h:
            clock += until_failure + _recovery(cluster_rate, down_h, chance, waiting)
        clock += saving.interval_h + saving.cost_h
    return clock / (segments * saving.interval_h)


def _recovery(cluster_rate: float, down_h: float, chance: Chance, waiting: CapacityWait) -> float:
    """Time until the job trains again, other failures meanwhile included."""
    clock = 0.0
    while True:
        takes = down_h
        if waiting.share > 0 and chance.random() < waiting.share:
            takes += chance.expovariate(1 / waiting.mean_h) if waiting.mean_h > 0 else 0.0
        until_failure = chance.expovariate(cluster_rate)
        if until_failure >= takes:
            return clock + takes
        clock += until_failure


def simulate_nodes_out(
    failures_per_hour: float, repair_h: Callable[[], float], chance: Chance, hours: float, settle_h: float
) -> NodesOut:
    """Nodes out at the same time, where failures come at this rate and ``repair_h`` draws how long each takes. What is before
    ``settle_h`` does not count: the start is without a node out."""
    now, returns, lasted = 0.0, list[float](), dict[int, float]()
    fails_at = chance.expovariate(failures_per_hour)
    while now < hours:
        failing = not returns or fails_at < returns[0]
        at, number = min(fails_at if failing else returns[0], hours), len(returns)
        lasted[number] = lasted.get(number, 0.0) + max(at - max(now, settle_h), 0.0)
        now = at
        if failing:
            heapq.heappush(returns, at + repair_h())
            fails_at = at + chance.expovariate(failures_per_hour)
        else:
            heapq.heappop(returns)
    return of_times(lasted)
