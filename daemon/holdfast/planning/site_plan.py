"""The plan of one site: what failures cost, how often to save, how many spares. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from holdfast.planning import checkpoint_interval, hyperpod_post, nodes_out, run_cost
from holdfast.planning.failure_rate import RateEstimate
from holdfast.planning.nodes_out import NodesOut, SpareMethod
from holdfast.planning.plan_table import Cell, PlanTable, percent
from holdfast.planning.run_cost import CapacityWait, Downtime, Saving, TrainingRun

_DAY_H = 24.0


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What a site says of itself."""

    sizes: tuple[int, ...]
    """Numbers of nodes; each has a row."""
    rates_per_hour: tuple[float, ...]
    """Failures per node-hour that stop a job; each has its rows."""
    gpus_per_node: int = 8
    gpu_hours: float = hyperpod_post.EXAMPLE.gpu_hours
    with_it: Downtime = hyperpod_post.WITH_HOLDFAST
    without: Downtime = hyperpod_post.WITHOUT
    save_costs_s: tuple[float, ...] = (60.0,)
    """How long each measured save blocked the training; their mean counts."""
    interval_min: float | None = None
    """Between two saves; None: the best one of the way of recovery at hand."""
    wait_h: float = 4.0
    """Mean time until a node comes where no spare is left."""
    spares: int | None = None
    """Spares that are there; None: those of the table of spares."""
    repair_h: float = 24.0
    """Mean time from a node's way out to its return."""
    probability: float = 0.99
    dispersion: float = 1.0
    """Variance over mean of the number of nodes out; 1: independent failures."""
    measured_out: NodesOut | None = None
    """From a trace of ``trace_nodes`` nodes; its shares hold for that size alone."""
    trace_nodes: int = 0
    block: int | None = None
    """Nodes of a block whose spares must be inside; None: any spare will do."""
    price: float = hyperpod_post.PRICE
    """Money per GPU-hour."""
    rate_estimate: RateEstimate | None = None

    @property
    def save_cost_h(self) -> float:
        return fmean(self.save_costs_s) / 3600

    def out_of(self, nodes: int, rate: float) -> NodesOut:
        """Nodes out at the same time, by the closed form."""
        return NodesOut(nodes_out.mean_out(nodes, rate, self.repair_h), self.dispersion)

    @property
    def method(self) -> SpareMethod:
        return SpareMethod.NEGATIVE_BINOMIAL if self.dispersion > 1 else SpareMethod.POISSON


def tables(inputs: PlanInputs) -> tuple[PlanTable, ...]:
    found = [costs(inputs), intervals(inputs), spares(inputs)]
    if inputs.rate_estimate is not None:
        found.insert(0, estimated(inputs.rate_estimate))
    if inputs.block is not None:
        found.append(block_spares(inputs, inputs.block))
    return tuple(found)


def estimated(rate: RateEstimate) -> PlanTable:
    row = (rate.failures, rate.node_hours / _DAY_H, rate.per_hour * 100, rate.low * 100, rate.high * 100)
    columns = ("FAILURES", "NODE-DAYS", "%/NODE-HOUR", f"{100 * rate.confidence:g} % FROM", "TO")
    notes = (
        "Poisson, exact (Garwood 1936); failures in bursts vary more than that",
        "the plan uses the estimate and both limits",
    )
    return PlanTable("failure_rate", "Failure rate, estimated", columns, (row,), notes)


@dataclass(frozen=True, slots=True)
class Compared:
    """One size and rate, without Holdfast and with it."""

    run: TrainingRun
    without: float
    """Total over ideal time."""
    with_it: float

    @property
    def saved(self) -> run_cost.SavedTime:
        return run_cost.saved(self.run, self.without, self.with_it)


def compare(inputs: PlanInputs, nodes: int, rate: float) -> Compared:
    run = TrainingRun(nodes, inputs.gpus_per_node, rate, inputs.gpu_hours)
    out = inputs.out_of(nodes, rate)
    number = inputs.spares if inputs.spares is not None else nodes_out.quantile(out, inputs.method, inputs.probability)
    waiting = CapacityWait(nodes_out.no_spare_left(out, number, inputs.method), inputs.wait_h)
    saving = Saving(interval_h(inputs, nodes, rate), inputs.save_cost_h)
    return Compared(
        run,
        run_cost.slowdown(run.cluster_rate, inputs.without.hours, saving),
        run_cost.slowdown(run.cluster_rate, inputs.with_it.hours, saving, waiting),
    )


def interval_h(inputs: PlanInputs, nodes: int, rate: float) -> float:
    """Hours between two saves: what the site says, else the best; a day at most."""
    if inputs.interval_min is not None:
        return inputs.interval_min / 60
    mtbf_h = run_cost.cluster_mtbf_h(nodes, rate)
    return min(checkpoint_interval.best_h(inputs.save_cost_h, mtbf_h), _DAY_H)


def costs(inputs: PlanInputs) -> PlanTable:
    rows: list[tuple[Cell, ...]] = []
    for rate in inputs.rates_per_hour:
        for nodes in inputs.sizes:
            got = compare(inputs, nodes, rate)
            rows.append((
                percent(rate),
                nodes,
                run_cost.cluster_mtbf_h(nodes, rate),
                got.saved.without_h / _DAY_H,
                got.saved.with_h / _DAY_H,
                100 * run_cost.share_lost(got.without),
                100 * run_cost.share_lost(got.with_it),
                *_spared(got.saved, inputs.price),
            ))  # fmt: skip
    columns = (
        "RATE", "NODES", "MTBF H", "DAYS WITHOUT", "DAYS WITH", "LOST WITHOUT %", "LOST WITH %", "DAYS SAVED", "$ SAVED"
    )  # fmt: skip
    each = f"each {inputs.interval_min:g} min" if inputs.interval_min is not None else "at the best interval"
    notes = (
        f"{inputs.gpu_hours:,.0f} GPU-hours on {inputs.gpus_per_node} GPUs a node; a failure costs {inputs.without.minutes:g} min without, "
        f"{inputs.with_it.minutes:g} min with",
        f"saves {each}, {inputs.save_cost_h * 3600:.4g} s each; no spare left: {inputs.wait_h:g} h more (without: part of the replacement)",
        "Daly's complete model: lost work, saves, failures during a recovery",
    )
    return PlanTable("costs", "Training time and money", columns, tuple(rows), notes)


def _spared(saved: run_cost.SavedTime, price: float) -> tuple[Cell, Cell]:
    """Days and money; None: without it the run never ends, so that there is nothing to compare with."""
    return (saved.hours / _DAY_H, saved.money(price)) if math.isfinite(saved.hours) else (None, None)


def intervals(inputs: PlanInputs) -> PlanTable:
    cost_h = inputs.save_cost_h
    rows: list[tuple[Cell, ...]] = []
    for rate in inputs.rates_per_hour:
        for nodes in inputs.sizes:
            mtbf_h = run_cost.cluster_mtbf_h(nodes, rate)
            best = checkpoint_interval.best_h(cost_h, mtbf_h)
            young, daly = checkpoint_interval.young_h(cost_h, mtbf_h), checkpoint_interval.daly_h(cost_h, mtbf_h)
            lost = run_cost.share_lost(run_cost.slowdown(1 / mtbf_h, 0.0, Saving(best, cost_h)))
            rows.append((percent(rate), nodes, mtbf_h, young * 60, daly * 60, best * 60, 100 * lost))
    columns = ("RATE", "NODES", "MTBF H", "YOUNG MIN", "DALY MIN", "BEST MIN", "LOST AT BEST %")
    measured = f"mean of {len(inputs.save_costs_s)} saves" if len(inputs.save_costs_s) > 1 else "given"
    notes = (
        f"a save blocks the training for {cost_h * 3600:.3g} s ({measured})",
        "Young 1974, Daly 2006; best: the minimum of Daly's complete model; lost: by saves and lost work alone",
    )
    return PlanTable("intervals", "Best time between two checkpoints", columns, tuple(rows), notes)


def spares(inputs: PlanInputs) -> PlanTable:
    """Spares by each method that there is input for; the last column says what a Poisson with the median would hide."""
    rows: list[tuple[Cell, ...]] = []
    for rate in inputs.rates_per_hour:
        for nodes in inputs.sizes:
            out = inputs.out_of(nodes, rate)
            over = nodes_out.quantile(out, SpareMethod.NEGATIVE_BINOMIAL, inputs.probability)
            poisson = nodes_out.quantile(out, SpareMethod.POISSON, inputs.probability)
            rows.append((percent(rate), nodes, out.mean, poisson, over if inputs.dispersion > 1 else None))
    if inputs.measured_out is not None:
        rows.append(_of_trace(inputs.measured_out, inputs.trace_nodes, inputs.probability))
    columns = ("RATE", "NODES", "OUT, MEAN", "POISSON", "NEGATIVE BINOMIAL", "EMPIRICAL")
    notes = (
        f"not more nodes out at once in {100 * inputs.probability:g} % of the time; mean (not median) repair {inputs.repair_h:.4g} h",
        f"negative binomial: variance {inputs.dispersion:.3g} times the mean" if inputs.dispersion > 1 else
        "failures come in bursts: give --dispersion or --trace for the over-dispersed number",
    )  # fmt: skip
    return PlanTable(
        "spares", "Spares", columns, tuple((*row, *[None] * (len(columns) - len(row))) for row in rows), notes
    )


def _of_trace(out: NodesOut, nodes: int, probability: float) -> tuple[Cell, ...]:
    by = [nodes_out.quantile(out, method, probability) for method in SpareMethod]
    return ("trace", nodes, out.mean, *by)


def block_spares(inputs: PlanInputs, block: int) -> PlanTable:
    rows: list[tuple[Cell, ...]] = []
    for rate in inputs.rates_per_hour:
        for nodes in inputs.sizes:
            got = nodes_out.by_block(inputs.out_of(nodes, rate), nodes, block, inputs.method, inputs.probability)
            rows.append((percent(rate), nodes, got.blocks, got.each, got.total, got.each_for_all, got.total_for_all))
    columns = ("RATE", "NODES", "BLOCKS", "IN EACH", "TOTAL", "IN EACH, ALL ENOUGH", "TOTAL, ALL ENOUGH")
    notes = (
        f"blocks of {block} nodes whose spares must be inside; {inputs.method}",
        f"IN EACH: one block has enough in {100 * inputs.probability:g} % of the time; ALL ENOUGH: all blocks at once have",
    )
    return PlanTable("block_spares", "Spares by block", columns, tuple(rows), notes)
