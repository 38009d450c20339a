"""What a replay found, as tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from holdfast.planning import nodes_out
from holdfast.planning.nodes_out import NodesOut, SpareMethod
from holdfast.planning.plan_table import Cell, PlanTable
from holdfast.replay.drive import Replayed, ReplayRules, TrippedBrake
from holdfast.replay.repeat_offenders import OffenderScore
from holdfast.replay.trace import EPOCH, Trace

_QUANTILES = (0.5, 0.9, 0.99)


def of_trace(trace: Trace, nodes: int) -> PlanTable:
    lasted = [trace.lasted_h(f) for f in trace.failures]
    days = trace.hours / 24
    rows: tuple[tuple[Cell, ...], ...] = (
        ("nodes", nodes),
        ("nodes that failed", len(trace.nodes)),
        ("days", days),
        ("failures", len(trace.failures)),
        ("failures per 1,000 node-days", 1000 * len(trace.failures) / (nodes * days)),
        ("hours out, median", median(lasted)),
        ("hours out, mean", fmean(lasted)),
        ("still out at the end", sum(f.end is None for f in trace.failures)),
    )
    return PlanTable("trace", "The trace", ("WHAT", "VALUE"), rows)


def nodes_out_at_once(trace: Trace, nodes: int) -> PlanTable:
    """The measured number out at the same time against what each method says."""
    out, rate = trace.out(), len(trace.failures) / (nodes * trace.hours)
    lasted = [trace.lasted_h(f) for f in trace.failures]
    of_median = NodesOut(nodes_out.mean_out(nodes, rate, median(lasted)))
    kinds = (
        ("measured", out, SpareMethod.EMPIRICAL),
        ("negative binomial, measured mean and variance", out, SpareMethod.NEGATIVE_BINOMIAL),
        ("Poisson with the mean", NodesOut(out.mean), SpareMethod.POISSON),
        ("Poisson with the median repair (wrong)", of_median, SpareMethod.POISSON),
    )
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, o.mean, *(nodes_out.quantile(o, kind, q) for q in _QUANTILES)) for name, o, kind in kinds
    )
    notes = (f"variance {out.dispersion:.3g} times the mean: failures are not independent",)
    return PlanTable("nodes_out", "Nodes out at the same time", ("METHOD", "MEAN", "P50", "P90", "P99"), rows, notes)


def outcome(found: Sequence[Replayed], rules: ReplayRules) -> PlanTable:
    rows: list[tuple[Cell, ...]] = []
    for r in found:
        row = (r.spares, rules.nodes - r.spares, r.job_failures, r.taken, r.lemons_taken, r.waits, r.waited_h)
        rows.append((*row, r.down_h, 100 * r.down_share))
    columns = (
        "SPARES",
        "JOB NODES",
        "JOB FAILURES",
        "SPARE TAKEN",
        "A LEMON",
        "NO SPARE",
        "H WAITED",
        "H DOWN",
        "DOWN %",
    )
    notes = (
        f"one job on all nodes but the spares; a recovery takes {rules.downtime.minutes:g} min; the work since a checkpoint is not in it",
        "A LEMON: spares taken that were one, since no other was ready",
    )
    return PlanTable("replay", "What would have happened", columns, tuple(rows), notes)


def by_rule(found: Sequence[Replayed]) -> PlanTable:
    """Spares that the rule p99 of ``[spares] wanted`` asked for in the course of the trace."""
    rows = tuple((r.spares, min(r.wanted), round(median(r.wanted)), max(r.wanted)) for r in found if r.wanted)
    notes = (
        "asked once a day, from the history until then: Poisson with the mean repair, within at_least and at_most_share",
    )
    return PlanTable("spare_rule", "Spares by the rule p99", ("SPARES", "LEAST", "MEDIAN", "MOST"), rows, notes)


def brakes(trace: Trace, found: Replayed, rules: ReplayRules) -> PlanTable:
    rows = tuple((_when(trace, b), b.name, b.held, b.reason) for b in found.brakes)
    minutes = rules.release_after.total_seconds() / 60
    notes = (f"an operator releases each after {minutes:g} min; HELD: drains that waited until then",)
    return PlanTable("brakes", f"Brakes ({found.spares} spares)", ("AT", "BRAKE", "HELD", "REASON"), rows, notes)


def _when(trace: Trace, brake: TrippedBrake) -> str:
    if trace.begins == EPOCH:
        return f"day {(brake.at - trace.begins).total_seconds() / 86400:.3f}"
    return f"{brake.at:%Y-%m-%d %H:%M} UTC"


def offenders(got: OffenderScore) -> PlanTable:
    """Precision and recall of the verdict 'lemon'."""
    rows: tuple[tuple[Cell, ...], ...] = (
        ("verdicts", got.verdicts),
        ("node failed again while a lemon", got.right),
        ("precision, %", _percent(got.precision)),
        ("the same by lot, %", 100 * got.chance),
        ("repeated faults", got.repeats),
        ("of these, while a lemon", got.caught),
        ("recall, %", _percent(got.recall)),
        ("faults on a lemon, % of all", _percent(got.avoided)),
        ("node-days as a lemon, % of all", 100 * got.price),
    )
    notes = (
        "a verdict is right if the node fails again before it ends; one that the trace's end cuts off does not count",
        "repeated: within the time of a lemon after the return from another fault; causes are not distinguished",
    )
    return PlanTable("lemons", "Repeat offenders (lemons)", ("WHAT", "VALUE"), rows, notes)


def _percent(share: float | None) -> float | None:
    return 100 * share if share is not None else None
