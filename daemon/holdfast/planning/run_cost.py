"""Closed forms for the time that a training run takes on a cluster that fails. Pure.

Times in hours, rates per hour, money per GPU-hour. A synchronous job stops when any of its nodes fails, so that the cluster fails N
times as often as a node. Failures are Poisson: their times are independent, and the rate is constant.

Sources: AWS, "Reduce ML training costs with Amazon SageMaker HyperPod" (10 April 2025), for :func:`post_slowdown`; J. T. Daly, "A higher
order estimate of the optimum checkpoint interval for restart dumps" (Future Generation Computer Systems 22, 2006), for :func:`slowdown`."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Downtime:
    """One failure, from the fault to training again. Minutes."""

    detect_min: float
    replace_min: float
    resume_min: float

    @property
    def hours(self) -> float:
        return (self.detect_min + self.replace_min + self.resume_min) / 60

    @property
    def minutes(self) -> float:
        return self.detect_min + self.replace_min + self.resume_min


@dataclass(frozen=True, slots=True)
class Saving:
    """Checkpoints: training between two of them, and how long a save blocks the training. Hours."""

    interval_h: float
    cost_h: float


@dataclass(frozen=True, slots=True)
class CapacityWait:
    """Waiting for capacity: the share of failures that find no spare, and the mean time until a node comes."""

    share: float = 0.0
    mean_h: float = 0.0


NO_WAITING = CapacityWait()


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """What is to be trained, and on what."""

    nodes: int
    gpus_per_node: int
    rate_per_hour: float
    """Failures per node-hour that stop the job."""
    gpu_hours: float
    """Work, in GPU-hours without any failure."""

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def ideal_h(self) -> float:
        """Time without any failure: T0 = G / (N g)."""
        return self.gpu_hours / self.gpus

    @property
    def cluster_rate(self) -> float:
        """Failures of the job per hour: N r."""
        return self.nodes * self.rate_per_hour


def cluster_mtbf_h(nodes: int, rate_per_hour: float) -> float:
    """Mean time between failures of the whole job: 1 / (N r). Infinite without failures."""
    rate = nodes * rate_per_hour
    return 1 / rate if rate > 0 else math.inf


def post_slowdown(cluster_rate: float, down_h: float) -> float:
    """Total time over ideal time by AWS's post: each failure of the ideal time costs ``down_h``, and nothing else: 1 + N r d."""
    return 1 + cluster_rate * down_h


def slowdown(cluster_rate: float, down_h: float, saving: Saving, waiting: CapacityWait = NO_WAITING) -> float:
    """Total time over ideal time with lost work, the cost of saves, failures while the job recovers, and waiting for capacity.

    Daly's complete model: M e^(R/M) (e^((D+w)/M) - 1) / D, with M the cluster's MTBF, R the downtime, D the interval and w the cost of a
    save; a failure during the recovery starts the recovery again. With waiting, e^(R/M) becomes 1 / E[e^(-R/M)]: the wait is
    exponential and needed for a share of the failures. Infinite where a segment is practically never completed."""
    if cluster_rate <= 0:
        return 1 + saving.cost_h / saving.interval_h
    exponent = cluster_rate * (saving.interval_h + saving.cost_h)
    if exponent + cluster_rate * down_h > _TOO_MUCH:
        return math.inf
    undisturbed = math.exp(-cluster_rate * down_h) * (
        1 - waiting.share + waiting.share / (1 + cluster_rate * waiting.mean_h)
    )
    return math.expm1(exponent) / (undisturbed * cluster_rate * saving.interval_h)


_TOO_MUCH = 10.0
"""e^10, 22,000 times the ideal time, is never."""


def share_lost(slow: float) -> float:
    """Share of the total time that is no training, from total over ideal time."""
    return 1 - 1 / slow


def share_removed(without: float, with_it: float) -> float:
    """Share of the training time without it that is saved: (T_without - T_with) / T_without."""
    return 1 - with_it / without


@dataclass(frozen=True, slots=True)
class SavedTime:
    """Two ways to recover, compared for one run."""

    without_h: float
    with_h: float
    gpus: int

    @property
    def hours(self) -> float:
        return self.without_h - self.with_h

    @property
    def gpu_hours(self) -> float:
        return self.hours * self.gpus

    def money(self, price_per_gpu_hour: float) -> float:
        return self.gpu_hours * price_per_gpu_hour


def saved(run: TrainingRun, without: float, with_it: float) -> SavedTime:
    """From total over ideal time, without and with it."""
    return SavedTime(run.ideal_h * without, run.ideal_h * with_it, run.gpus)
