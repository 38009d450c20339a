"""The budgets on machines, and more of one for a time."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.restraints import machines
from holdfast.cli.common.show import as_json, line, moment, table
from holdfast.cli.orders.suppressing import hours
from holdfast.model.errors import Usage

_COUNTS = {
    "ended": "terminated, replaced in place",
    "cycled": "rebooted, stopped and started",
    "bought": "launched",
}


def _named(kind: str) -> str:
    counts = _COUNTS.get(kind.partition("@")[0])
    return f"{kind} ({counts})" if counts is not None else kind


def show(url: Url = None, as_data: Json = False) -> None:
    """Machines that may still be ended, cycled (rebooted, stopped and started) and bought, within an hour and a day."""
    got = ApiClient(url).get("/v1/budgets")
    if as_data:
        as_json(got)
        return
    from holdfast.api.orders.budgets import BudgetsShape  # noqa: PLC0415

    rows = [
        (
            _named(b.kind),
            f"{b.hour_spent} of {b.hour_most}",
            f"{b.day_spent} of {b.day_most}",
            f"{b.nodes_taken} of {b.nodes_most}",
            str(b.left),
            f"{machines(b.plus, b.plus_nodes)} until {moment(b.until)} UTC by {b.by}: {b.reason}"
            if b.until is not None
            else "",
        )
        for b in read(BudgetsShape, got).budgets
    ]
    table(
        "",
        ("BUDGET", "MACHINES THIS HOUR", "THIS DAY", "NODES THIS DAY", "LEFT NOW", "EXTENDED BY"),
        rows,
        "the control loop has not turned yet",
    )


def extend(
    kind: Annotated[str, typer.Argument(help="ended, cycled or bought.")],
    plus: Annotated[int, typer.Option("--plus", help="Machines more, within an hour and within a day.")],
    duration: Annotated[str, typer.Option("--for", help="How long: 4h, 2d; 7 days at most.")],
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, for the record.")],
    nodes: Annotated[
        int, typer.Option("--nodes", help="Different nodes more, within a day; without it their limit remains.")
    ] = 0,
    url: Url = None,
) -> None:
    """Allow more machines for a time. The limit of different nodes a day, a share of the cluster, remains unless --nodes lifts it.
    A new extension takes the place of the one before."""
    from holdfast.model.actions.budgets import LONGEST_H, MOST_PLUS, BudgetKind  # noqa: PLC0415

    if kind not in tuple(BudgetKind):
        raise Usage(f"{kind!r} is none of the budgets: {', '.join(BudgetKind)}")
    if not 0 < plus <= MOST_PLUS:
        raise Usage(f"--plus {plus} is not between 1 and {MOST_PLUS}")
    if not 0 <= nodes <= MOST_PLUS:
        raise Usage(f"--nodes {nodes} is not between 0 and {MOST_PLUS}")
    wanted_h = hours(duration, LONGEST_H)
    body = {"plus": plus, "nodes": nodes, "hours": wanted_h, "reason": reason}
    from holdfast.api.orders.budgets import ExtendedShape  # noqa: PLC0415

    made = read(ExtendedShape, ApiClient(url).post(f"/v1/budgets/{quote(kind, safe='')}/extend", body))
    more = machines(made.plus, made.plus_nodes)
    line(
        f"budget {made.kind} is extended by {more} until {moment(made.until)} UTC; `holdfast budget show` shows what is left"
    )
