"""The tables of AWS's post of April 2025, from its own inputs and its own model. Pure.

"Reduce ML training costs with Amazon SageMaker HyperPod", AWS Machine Learning Blog, 10 April 2025. The post's model is
:func:`holdfast.planning.run_cost.post_slowdown`: a failure costs its downtime and nothing else. The same tables follow from the times that
Holdfast was measured with, and with what the post leaves out."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.planning import failure_rate, run_cost
from holdfast.planning.plan_table import Cell, PlanTable, percent
from holdfast.planning.run_cost import CapacityWait, Downtime, Saving, TrainingRun

WITH_HYPERPOD = Downtime(1.5, 15.0, 23.5)
WITHOUT = Downtime(10.0, 240.0, 30.0)
WITH_HOLDFAST = Downtime(0.29, 0.06, 23.5)
"""Of docs/benchmarks.md: the slowest verdict on a dead node (17.4 s) and DOWN → RUNNING on a spare (P90 3.52 s), on a practice cluster. The
resume is the job's own (processes, libraries, loading): the post's figure."""
SIZES = (4, 8, 16, 32, 64, 128, 256, 512)
MTBF_RATES = (1e-4, 2e-4, 4e-4, 8e-4)
SHARE_RATES = (1e-4, 2e-4, 5e-4, 7e-4)
EXAMPLE = TrainingRun(nodes=256, gpus_per_node=8, rate_per_hour=5e-4, gpu_hours=10e6)
PRICE = 5.0
OBSERVED = (("OPT-175B", 105, 124, 60.0), ("Llama 3.1 405B", 417, 2000, 54.0), ("MPT-7B", 4, 55, 9.5))
"""Model, failures, instances, days."""
_DAY_H = 24.0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What the post leaves out: saves and the work lost since the last one, waiting for capacity, failures during a recovery."""

    saving: Saving
    waiting: CapacityWait


LEFT_OUT = LeftOut(Saving(1.0, 1 / 60), CapacityWait(0.05, 4.0))
"""A checkpoint an hour that blocks for a minute; one failure in 20 finds no spare and waits four hours."""


def tables(left_out: LeftOut = LEFT_OUT) -> tuple[PlanTable, ...]:
    """The post's tables; the same with Holdfast's times; and both with what the post leaves out."""
    return (
        observed_rates(),
        cluster_mtbf(),
        removed("hyperpod_removed", "Share of the training time removed, % (the post's model)", WITH_HYPERPOD, None),
        example("hyperpod_example", "Worked example (the post's model)", WITH_HYPERPOD, None),
        removed("holdfast_removed", "The same from Holdfast's measured times, %", WITH_HOLDFAST, None),
        example("holdfast_example", "Worked example from Holdfast's measured times", WITH_HOLDFAST, None),
        removed("hyperpod_removed_all", "HyperPod's times, with what the post leaves out, %", WITH_HYPERPOD, left_out),
        removed("holdfast_removed_all", "Holdfast's times, with what the post leaves out, %", WITH_HOLDFAST, left_out),
        example(
            "hyperpod_example_all",
            "Worked example, HyperPod's times, with what the post leaves out",
            WITH_HYPERPOD,
            left_out,
        ),
        example(
            "holdfast_example_all",
            "Worked example, Holdfast's times, with what the post leaves out",
            WITH_HOLDFAST,
            left_out,
        ),
    )


def observed_rates() -> PlanTable:
    rows: list[tuple[Cell, ...]] = []
    for model, failures, instances, days in OBSERVED:
        rate = failure_rate.estimate(failures, instances * days * _DAY_H)
        per_hour = (rate.per_hour * 100, rate.low * 100, rate.high * 100)
        rows.append((model, failures, instances, days, *per_hour))
    columns = ("MODEL", "FAILURES", "INSTANCES", "DAYS", "%/INSTANCE-HOUR", "95 % FROM", "TO")
    return PlanTable(
        "observed_rates",
        "Failure rates that the post takes from published runs",
        columns,
        tuple(rows),
        ("failures / (instances x hours); the interval is not the post's: Poisson, exact",),
    )


def cluster_mtbf() -> PlanTable:
    rows = tuple((nodes, *(run_cost.cluster_mtbf_h(nodes, rate) for rate in MTBF_RATES)) for nodes in SIZES)
    columns = ("INSTANCES", *(percent(rate) for rate in MTBF_RATES))
    return PlanTable("cluster_mtbf", "Mean time between failures of the cluster, hours", columns, rows, ("1 / (N r)",))


def removed(name: str, title: str, with_it: Downtime, left_out: LeftOut | None) -> PlanTable:
    """Share of the time without it that is removed, by size and rate."""
    rows = tuple((nodes, *(_removed(nodes * rate, with_it, left_out) for rate in SHARE_RATES)) for nodes in SIZES)
    columns = ("INSTANCES", *(percent(rate) for rate in SHARE_RATES))
    return PlanTable(name, title, columns, rows, (_about(with_it, left_out),))


def _removed(cluster_rate: float, with_it: Downtime, left_out: LeftOut | None) -> float:
    with_share, without_share = (_slow(cluster_rate, d, left_out) for d in (with_it, WITHOUT))
    return 100 * run_cost.share_removed(without_share, with_share)


def _slow(cluster_rate: float, down: Downtime, left_out: LeftOut | None) -> float:
    if left_out is None:
        return run_cost.post_slowdown(cluster_rate, down.hours)
    waiting = run_cost.NO_WAITING if down == WITHOUT else left_out.waiting  # its replacement is such a wait already
    return run_cost.slowdown(cluster_rate, down.hours, left_out.saving, waiting)


def example(name: str, title: str, with_it: Downtime, left_out: LeftOut | None) -> PlanTable:
    """The post's worked example: 10 million GPU-hours on 256 instances of 8 GPUs, 0.05 % an hour, 5 $ a GPU-hour."""
    without, with_share = (_slow(EXAMPLE.cluster_rate, d, left_out) for d in (WITHOUT, with_it))
    got = run_cost.saved(EXAMPLE, without, with_share)
    rows: tuple[tuple[Cell, ...], ...] = (
        ("ideal, days", EXAMPLE.ideal_h / _DAY_H),
        ("failures in the ideal time", EXAMPLE.cluster_rate * EXAMPLE.ideal_h),
        ("without, days", got.without_h / _DAY_H),
        ("with, days", got.with_h / _DAY_H),
        ("lost without, days", (got.without_h - EXAMPLE.ideal_h) / _DAY_H),
        ("lost with, days", (got.with_h - EXAMPLE.ideal_h) / _DAY_H),
        ("saved, days", got.hours / _DAY_H),
        ("saved, GPU-hours", round(got.gpu_hours)),
        ("saved, million $", got.money(PRICE) / 1e6),
        ("time lost without, %", 100 * run_cost.share_lost(without)),
        ("time lost with, %", 100 * run_cost.share_lost(with_share)),
    )
    return PlanTable(name, title, ("WHAT", "VALUE"), rows, (_about(with_it, left_out),))


def _about(with_it: Downtime, left_out: LeftOut | None) -> str:
    base = f"a failure costs {with_it.minutes:g} min with it, {WITHOUT.minutes:g} min without"
    if left_out is None:
        return f"{base}; T = T0 (1 + N r d)"
    saving, waiting = left_out.saving, left_out.waiting
    return (
        f"{base}; a save each {saving.interval_h * 60:g} min that blocks {saving.cost_h * 60:g} min; the work since it is lost; "
        f"{100 * waiting.share:g} % of the failures wait {waiting.mean_h:g} h for a node (without it, that is in the 240 min); failures "
        "during a recovery"
    )
