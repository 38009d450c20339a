"""Utilisation of a cluster: training with a fixed allocation against an elastic job, under the same generated load.

``bench/utilisation.py [--minutes 60] [--seeds 3] [--quick]``. 256 GPUs (32 nodes of 8), simulated clock and Slurm, the real
loop, policy and actor with their shipped defaults. Short jobs of higher priority arrive at random, in whole nodes; one training job runs
in parallel all the time. A GPU is in use while a job holds it and works: a training group does not for ``STARTUP_S`` after each start (it
loads and is healed by its peers), nor beyond a legal size."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

from holdfast.model.elastic_jobs.sizes import parse_sizes
from holdfast.model.policies.policy import Mode
from support.simulated.arrays import ElasticSite
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

NODES, GPUS = 32, 8
STEP_S = 2.0
STARTUP_S = 10.0
SIZES, WEIGHTS = (1, 2, 4, 8), (8, 6, 3, 1)
MEAN_WORK_S = 300.0


@dataclass(frozen=True)
class Arrival:
    """One job of the load."""

    at_s: float
    nodes: int
    work_s: float


@dataclass
class Seen:
    """GPU-seconds and waiting times of one run."""

    there: float = 0.0
    training: float = 0.0
    others: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    stops: int = 0

    @property
    def used(self) -> float:
        return 100 * (self.training + self.others) / self.there


def load(seed: int, seconds: float, share: float) -> list[Arrival]:
    """Arrivals that ask for this share of the cluster on average, in two waves as between day and night."""
    dice = random.Random(seed)
    mean_nodes = sum(s * w for s, w in zip(SIZES, WEIGHTS, strict=True)) / sum(WEIGHTS)
    most_per_s = 2 * share * NODES / (mean_nodes * MEAN_WORK_S)
    found, at_s = [], 0.0
    while (at_s := at_s + dice.expovariate(most_per_s)) < seconds:
        wave = 0.5 if (at_s * 4 / seconds) % 2 < 1 else 0.0
        if dice.random() < 0.25 + wave:
            found.append(Arrival(at_s, dice.choices(SIZES, WEIGHTS)[0], dice.uniform(0.4, 1.6) * MEAN_WORK_S))
    return found


class Run:
    """One site under the load; ``sizes``: of the training job, ``min:max`` (the same number twice: a fixed allocation)."""

    def __init__(self, sizes: str, arrivals: Sequence[Arrival], *, acts: bool) -> None:
        policy = POLICY if acts else replace(POLICY, mode=Mode.OBSERVE)
        self.site = ElasticSite(NODES, policy=policy)
        self.arrays = self.site.slurm.submit_elastic(sizes, priority=0)
        self.sizes = parse_sizes(sizes)
        self.arrivals = list(arrivals)
        self.waiting: list[tuple[SimJob, float, float]] = []
        self.busy: list[tuple[SimJob, float]] = []
        self.seen = Seen()

    def go(self, seconds: float) -> Seen:
        began_s = self.site.clock.elapsed_s
        while (now_s := self.site.clock.elapsed_s - began_s) < seconds:
            self._arrive(now_s)
            self.site.run(STEP_S, step_s=STEP_S)
            self._follow(self.site.clock.elapsed_s - began_s)
        self.seen.waits_s += [seconds - at_s for _, at_s, _ in self.waiting]
        self.seen.stops = sum(e.restarts for e in self._groups())
        return self.seen

    def _groups(self) -> list[SimJob]:
        return [e for array in self.arrays for e in self.site.slurm.elements(array)]

    def _arrive(self, now_s: float) -> None:
        while self.arrivals and self.arrivals[0].at_s <= now_s:
            one = self.arrivals.pop(0)
            job = self.site.slurm.submit(one.nodes, exclusive=True, priority=1)
            self.waiting.append((job, one.at_s, one.work_s))

    def _follow(self, now_s: float) -> None:
        for job, at_s, work_s in [w for w in self.waiting if w[0].state == "RUNNING"]:
            self.waiting.remove((job, at_s, work_s))
            self.seen.waits_s.append(now_s - at_s)
            self.busy.append((job, now_s + work_s))
        for job, until_s in [b for b in self.busy if now_s >= b[1]]:
            self.busy.remove((job, until_s))
            self.site.slurm.finish(job, "COMPLETED")
        self.seen.there += NODES * GPUS * STEP_S
        self.seen.others += sum(len(job.nodes) for job, _ in self.busy) * GPUS * STEP_S
        works = sum(1 for e in self._groups() if e.state == "RUNNING" and self._for_s(e) > STARTUP_S)
        self.seen.training += self.sizes.usable(works) * GPUS * STEP_S

    def _for_s(self, job: SimJob) -> float:
        return (self.site.clock.now() - job.start).total_seconds() if job.start is not None else 0.0


WAYS = {
    "fixed, 16 nodes": ("16:16", True),
    "fixed, 24 nodes": ("24:24", True),
    "elastic 8:32, Slurm alone": ("8:32", False),
    "elastic 8:32, Holdfast": ("8:32", True),
    "elastic 8:32 in steps of 8, Holdfast": ("8:32:8", True),
}


def row(name: str, runs: Sequence[Seen]) -> str:
    used = sorted(r.used for r in runs)
    waits = sorted(w for r in runs for w in r.waits_s)
    p90 = waits[int(0.9 * (len(waits) - 1))]
    training = median(r.training for r in runs) / 3600
    spread = f"{median(used):6.1f} % ({used[0]:.1f} to {used[-1]:.1f})"
    times = f"{median(waits):8.1f}  {p90:7.1f}  {waits[-1]:7.1f}"
    return f"{name:38} {spread:>24}  {training:8.1f}  {times}  {median(r.stops for r in runs):6.0f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=60.0, help="simulated")
    options.add_argument("--seeds", type=int, default=3, help="different loads, each for every way")
    options.add_argument(
        "--share", type=float, default=0.4, help="of the cluster that the other jobs ask for on average"
    )
    options.add_argument("--quick", action="store_true", help="ten minutes, one load")
    given = options.parse_args()
    minutes, seeds = (10.0, 1) if given.quick else (given.minutes, given.seeds)
    loads = [load(seed, minutes * 60, given.share) for seed in range(1, seeds + 1)]
    asked = [sum(a.nodes * a.work_s for a in one) / (NODES * minutes * 60) for one in loads]
    print(
        f"{NODES * GPUS} GPUs, {minutes:g} simulated minutes, {seeds} loads of {min(map(len, loads))} to {max(map(len, loads))} jobs"
    )
    print(
        f"they ask for {100 * min(asked):.0f} to {100 * max(asked):.0f} % of the cluster; medians (lowest to highest) over the loads\n"
    )
    print(
        f"{'training':38} {'GPUs in use':>24}  {'GPU-h tr.':>8}  {'wait P50':>8}  {'P90 s':>7}  {'max s':>7}  {'again':>6}"
    )
    for name, (sizes, acts) in WAYS.items():
        began_s = time.monotonic()
        print(row(name, [Run(sizes, one, acts=acts).go(minutes * 60) for one in loads]), flush=True)
        print(f"  ({time.monotonic() - began_s:.0f} s)", file=sys.stderr)


if __name__ == "__main__":
    main()
