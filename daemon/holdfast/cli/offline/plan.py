"""The verb that plans: what failures cost, how often to save, how many spares. It works without a controller."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.show import as_json, line, table
from holdfast.model.errors import Usage

if TYPE_CHECKING:
    from holdfast.planning.plan_table import Cell, PlanTable
    from holdfast.planning.run_cost import Downtime
    from holdfast.planning.site_plan import PlanInputs
    from holdfast.replay.trace import Trace

POST = "hyperpod-post"
_MOST_NODES = 1_000_000
_MOST_OUT = 0.5
_MOST_BYTES = 64 * 1024 * 1024
_V = TypeVar("_V", int, float)


def plan(
    nodes: Annotated[str, typer.Option("--nodes", help="Nodes of the job, one number or several: 64,128,256.")] = "256",
    gpus: Annotated[int, typer.Option("--gpus", min=1, max=1024, help="GPUs of a node.")] = 8,
    rate: Annotated[
        str, typer.Option("--rate", help="Failures in % per node-hour, one or several: 0.02,0.05.")
    ] = "0.05",
    failures: Annotated[
        int | None,
        typer.Option("--failures", min=0, max=1_000_000, help="In place of --rate: failures counted in --node-days.", show_default=False),
    ] = None,
    node_days: Annotated[
        float | None, typer.Option("--node-days", min=0.001, help="Nodes times days of --failures.", show_default=False)
    ] = None,
    from_history: Annotated[
        bool, typer.Option("--from-history", help="Nodes, failure rate and times as the controller has them on record.")
    ] = False,
    days: Annotated[float, typer.Option("--days", min=0.01, max=400, help="How far back --from-history reads.")] = 90.0,
    work: Annotated[float, typer.Option("--work", min=1, help="GPU-hours of the training without failures.")] = 10e6,
    with_minutes: Annotated[
        str, typer.Option("--with", help="With Holdfast: minutes to detect, to replace, to resume.")
    ] = "0.29,0.06,23.5",
    without_minutes: Annotated[str, typer.Option("--without", help="The same without it.")] = "10,240,30",
    save_seconds: Annotated[
        str, typer.Option("--save-seconds", help="How long saves block the training, as measured: one or several.")
    ] = "60",
    every: Annotated[
        float | None,
        typer.Option("--every", min=0.01, max=1e6, help="Minutes between two checkpoints; else the best.", show_default=False),
    ] = None,
    wait_hours: Annotated[
        float, typer.Option("--wait-hours", min=0, max=10_000, help="Wait for a node where no spare is left.")
    ] = 4.0,
    spares: Annotated[
        str | None,
        typer.Option("--spares", help="Spares that are there; with --replay several: 8,22,31. Else enough.", show_default=False),
    ] = None,
    repair_hours: Annotated[
        float, typer.Option("--repair-hours", min=0.001, max=100_000, help="Mean time (not the median) until a node is back.")
    ] = 24.0,
    probability: Annotated[
        float, typer.Option("--probability", min=0.5, max=0.99999, help="Share of the time in which spares are enough.")
    ] = 0.99,
    dispersion: Annotated[
        float, typer.Option("--dispersion", min=1, max=1000, help="Variance over mean of nodes out at once; 1: independent.")
    ] = 1.0,
    block: Annotated[
        int | None,
        typer.Option("--block", min=2, max=_MOST_NODES, help="Nodes of a block with its spares inside: 18.", show_default=False),
    ] = None,
    price: Annotated[float, typer.Option("--price", min=0, help="$ for a GPU-hour.")] = 5.0,
    as_post: Annotated[
        str | None, typer.Option("--as", help=f"{POST}: the tables of AWS's post of April 2025.", show_default=False)
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", dir_okay=False, help="Failures of --nodes as CSV node,start,end,cause: sets rate, repair time, dispersion.",
                     show_default=False),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", dir_okay=False, help="Such a CSV: what the rules for spares, brakes and lemons would have done.",
                     show_default=False),
    ] = None,
    release_minutes: Annotated[
        float, typer.Option("--release-minutes", min=0, max=100_000, help="With --replay: until an operator releases a brake.")
    ] = 30.0,
    svg: Annotated[
        Path | None, typer.Option("--svg", dir_okay=False, help="Also draw the curves into this file.", show_default=False)
    ] = None,
    url: Url = None,
    as_data: Json = False,
) -> None:  # fmt: skip
    """What failures cost a training run, how often to save, how many spares; by formulas, without a controller (docs/planning.md)."""
    if as_post is not None and as_post != POST:
        raise Usage(f"--as {as_post}: known is {POST}")
    if as_post is not None and replay is not None:
        raise Usage("--as and --replay are two different questions: ask one")
    if as_post is not None:
        _show(*_of_post(), svg, as_data)
        return
    from holdfast.planning.site_plan import PlanInputs  # noqa: PLC0415

    inputs = PlanInputs(
        sizes=numbers("--nodes", nodes, int, 1, _MOST_NODES),
        rates_per_hour=tuple(r / 100 for r in numbers("--rate", rate, float, 1e-7, 100)),
        gpus_per_node=gpus, gpu_hours=work, with_it=_downtime("--with", with_minutes), without=_downtime("--without", without_minutes),
        save_costs_s=numbers("--save-seconds", save_seconds, float, 0.001, 1e6), interval_min=every, wait_h=wait_hours,
        repair_h=repair_hours, probability=probability, dispersion=dispersion, block=block, price=price,
    )  # fmt: skip
    numbers_of_spares = numbers("--spares", spares, int, 0, _MOST_NODES) if spares is not None else None
    if replay is not None:
        _show(
            *_of_replay(read_file(replay), inputs, numbers_of_spares, timedelta(minutes=release_minutes)), svg, as_data
        )
        return
    if numbers_of_spares is not None:
        inputs = replace(inputs, spares=one("--spares", numbers_of_spares))
    inputs, extra = _known_rate(inputs, failures, node_days, (url, days) if from_history else None, trace)
    _show(*_of_site(inputs, extra), svg, as_data)


def _of_post() -> tuple[Sequence[PlanTable], Callable[[], str]]:
    from holdfast.planning import hyperpod_post, plan_curves  # noqa: PLC0415

    return hyperpod_post.tables(), plan_curves.of_post


def _of_site(inputs: PlanInputs, extra: Sequence[PlanTable]) -> tuple[Sequence[PlanTable], Callable[[], str]]:
    from holdfast.planning import plan_curves, site_plan  # noqa: PLC0415

    _plausible(inputs)
    return (*extra, *site_plan.tables(inputs)), lambda: plan_curves.of_site(inputs)


def _plausible(inputs: PlanInputs) -> None:
    """Raises Usage where most nodes would be out at once: the formulas say nothing about such a cluster."""
    rate = max(inputs.rates_per_hour)
    share = rate * inputs.repair_h
    if share > _MOST_OUT:
        raise Usage(
            f"with {rate * 100:g} % per node-hour and repairs of {inputs.repair_h:g} h more than half of the nodes would be out: "
            "check --rate and --repair-hours"
        )


def _known_rate(
    inputs: PlanInputs, failures: int | None, node_days: float | None, history: tuple[str | None, float] | None, trace: Path | None
) -> tuple[PlanInputs, list[PlanTable]]:  # fmt: skip
    """Where the failure rate comes from: one of a count, the controller's record and a trace; else it is given."""
    if (failures is None) is not (node_days is None):
        raise Usage("--failures and --node-days belong together: give both")
    if sum((failures is not None, history is not None, trace is not None)) > 1:
        raise Usage("--failures, --from-history and --trace each set the failure rate: give one")
    if failures is not None and node_days is not None:
        return _counted(inputs, failures, node_days * 24), []
    if history is not None:
        return _of_history(inputs, *history)
    return (_of_trace(inputs, read_file(trace)), []) if trace is not None else (inputs, [])


def _counted(inputs: PlanInputs, failures: int, node_hours: float) -> PlanInputs:
    from holdfast.planning import failure_rate  # noqa: PLC0415

    rate = failure_rate.estimate(failures, node_hours)
    rates = tuple(r for r in (rate.per_hour, rate.low, rate.high) if r > 0)
    return replace(inputs, rates_per_hour=rates, rate_estimate=rate)


def _of_history(inputs: PlanInputs, url: str | None, days: float) -> tuple[PlanInputs, list[PlanTable]]:
    from holdfast.cli.offline.plan_history import own_history  # noqa: PLC0415

    own = own_history(url, days)
    known = replace(
        _counted(inputs, own.rate.failures, own.rate.node_hours),
        sizes=(own.nodes,), gpus_per_node=own.gpus_per_node or inputs.gpus_per_node,
        with_it=own.downtime(inputs.with_it), repair_h=own.repair_h(inputs.repair_h),
    )  # fmt: skip
    return known, [own.table()]


def _of_trace(inputs: PlanInputs, trace: Trace) -> PlanInputs:
    nodes = at_least(trace, one("--nodes", inputs.sizes))
    lasted = [trace.lasted_h(f) for f in trace.failures]
    out = trace.out()
    counted = _counted(inputs, len(trace.failures), nodes * trace.hours)
    return replace(
        counted, sizes=(nodes,), repair_h=sum(lasted) / len(lasted), dispersion=max(out.dispersion, 1.0),
        measured_out=out, trace_nodes=nodes,
    )  # fmt: skip


def _of_replay(
    trace: Trace, inputs: PlanInputs, spares: Sequence[int] | None, release_after: timedelta
) -> tuple[Sequence[PlanTable], Callable[[], str]]:
    from holdfast.planning import nodes_out, plan_curves  # noqa: PLC0415
    from holdfast.planning.nodes_out import SpareMethod  # noqa: PLC0415
    from holdfast.replay import replay_tables  # noqa: PLC0415
    from holdfast.replay.drive import ReplayRules, replay  # noqa: PLC0415
    from holdfast.replay.repeat_offenders import score  # noqa: PLC0415

    nodes, out = at_least(trace, one("--nodes", inputs.sizes)), trace.out()
    wanted = spares or sorted(
        {nodes_out.quantile(out, SpareMethod.EMPIRICAL, q) for q in (0.5, 0.9, inputs.probability)}
    )
    if max(wanted) >= nodes:
        raise Usage(f"--spares {max(wanted)} of {nodes} nodes leave none to the job")
    rules = ReplayRules(nodes, inputs.with_it, release_after=release_after, gpus=inputs.gpus_per_node)
    found = [replay(trace, rules, number) for number in wanted]
    tables = (
        replay_tables.of_trace(trace, nodes),
        replay_tables.nodes_out_at_once(trace, nodes),
        replay_tables.outcome(found, rules),
        replay_tables.by_rule(found),
        replay_tables.brakes(trace, found[-1], rules),
        replay_tables.offenders(score(trace, nodes, rules.policy.history, rules.policy.repair)),
    )
    return tables, lambda: plan_curves.of_nodes_out(out)


def at_least(trace: Trace, nodes: int) -> int:
    """Raises Usage where the trace names more nodes than there are."""
    if len(trace.nodes) > nodes:
        raise Usage(
            f"the trace names {len(trace.nodes)} nodes, more than --nodes {nodes}: give the cluster's number of nodes"
        )
    return nodes


def read_file(path: Path) -> Trace:
    """Raises Usage for what cannot be read, or is no trace."""
    from holdfast.replay.trace import read_trace  # noqa: PLC0415

    try:
        if not path.is_file():  # a pipe would be waited for, a device has no end
            raise Usage(f"{path} is no file that can be read" if path.exists() else f"there is no file {path}")
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise Usage(f"{path} is longer than {_MOST_BYTES // 2**20} MiB")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise Usage(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Usage(f"{path} is no text in UTF-8: needed is CSV with node,start,end,cause") from None
    return read_trace(text.splitlines(), str(path))


def numbers(option: str, text: str, kind: Callable[[str], _V], low: float, high: float) -> tuple[_V, ...]:
    """One or several, apart by commas, in this order. Raises Usage."""
    try:
        found = tuple(kind(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(low <= value <= high for value in found):
        raise Usage(f"{option} {text!r}: needed are numbers from {low:g} to {high:,.0f}, apart by commas")
    return found


def one(option: str, values: Sequence[int]) -> int:
    if len(values) != 1:
        raise Usage(f"{option}: only one number here")
    return values[0]


def _downtime(option: str, text: str) -> Downtime:
    from holdfast.planning.run_cost import Downtime  # noqa: PLC0415

    found = numbers(option, text, float, 0, 1e6)
    if len(found) != 3:
        raise Usage(f"{option} {text!r}: needed are three numbers of minutes: to detect, to replace, to resume")
    return Downtime(*found)


def _show(tables: Sequence[PlanTable], drawn: Callable[[], str], svg: Path | None, as_data: bool) -> None:
    if svg is not None:
        try:
            svg.write_text(drawn(), encoding="utf-8")
        except OSError as error:
            raise Usage(f"{svg} cannot be written: {error.strerror}") from None
    if as_data:
        as_json(_json(tables))
        return
    from holdfast.planning.plan_table import shown  # noqa: PLC0415

    for each in tables:
        table(each.title, each.columns, [[shown(cell) for cell in row] for row in each.rows], f"{each.title}: none")
        for note in each.notes:
            line(f"  {note}")
        line("")


def _json(tables: Sequence[PlanTable]) -> object:
    from holdfast.cli.offline.plan_shape import PlanShape  # noqa: PLC0415

    plain = [replace(each, rows=tuple(tuple(map(_finite, row)) for row in each.rows)) for each in tables]
    return PlanShape.model_validate({"tables": plain}).model_dump(mode="json")


def _finite(cell: Cell) -> Cell:
    """JSON has no infinity."""
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
