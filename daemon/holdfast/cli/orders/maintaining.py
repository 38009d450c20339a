"""The verb by which operators take nodes out of Holdfast's hands for a time, and give them back."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common import complete
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.show import as_json, counted, line, moment, table
from holdfast.cli.orders.suppressing import hours
from holdfast.model.errors import Rejected, Usage
from holdfast.model.slurm.hostlist import expand

LONGEST_H = 30 * 24.0


def maintain(
    nodes: Annotated[
        str | None,
        typer.Argument(
            metavar="NODES", help="A host list such as n[1-8]; none: list the windows.", autocompletion=complete.nodes
        ),
    ] = None,
    duration: Annotated[str, typer.Option("--for", help="How long: 30m, 4h, 2d; 30 days at most.")] = "",
    why: Annotated[str, typer.Option("--why", "-w", help="Why, for the next reader.")] = "",
    end: Annotated[bool, typer.Option("--end", help="End the maintenance of these nodes.")] = False,
    url: Url = None,
    as_data: Json = False,
) -> None:
    """Keep hands off nodes for a time: findings are recorded, nothing is done, no job starts there. Without nodes: list the windows."""
    if nodes is None:
        if duration or why or end:
            raise Usage("which nodes? Name them, such as n[1-8]")
        _list(url, as_data)
    elif end:
        _end(_checked(nodes), url)
    else:
        _begin(_checked(nodes), duration, why, url)


def _checked(nodes: str) -> str:
    """As Slurm writes it: without blanks behind commas. Raises Usage."""
    written = re.sub(r"\s*,\s*", ",", nodes.strip())
    try:
        expand(written)
    except Rejected as error:
        raise Usage(str(error)) from error
    return written


def _begin(nodes: str, duration: str, why: str, url: str | None) -> None:
    if not duration or not why:
        raise Usage("say how long and why: --for 4h --why TEXT")
    wanted = hours(duration, LONGEST_H)
    got = ApiClient(url).post("/v1/maintenance", {"nodes": nodes, "hours": wanted, "why": why})
    from holdfast.api.answers.operator_shapes import WindowShape  # noqa: PLC0415

    made = read(WindowShape, got)
    line(
        f"hands off {counted(len(made.nodes), 'node')} until {moment(made.until)} UTC; "
        f"`holdfast maintain --end {nodes}` ends it"
    )


def _end(nodes: str, url: str | None) -> None:
    from holdfast.api.answers.operator_shapes import WindowsShape  # noqa: PLC0415

    client = ApiClient(url)
    held = {n for w in read(WindowsShape, client.get("/v1/maintenance")).windows for n in w.nodes}
    client.post("/v1/maintenance/end", {"nodes": nodes})
    line(f"the maintenance of {nodes} is over: what is still wrong is acted upon")
    if others := [n for n in expand(nodes) if n not in held]:
        line(f"in no window before: {', '.join(others[:5])}{' …' if len(others) > 5 else ''}")


def _list(url: str | None, as_data: bool) -> None:
    got = ApiClient(url).get("/v1/maintenance")
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.operator_shapes import WindowsShape  # noqa: PLC0415

    columns = ("NODES", "SINCE (UTC)", "UNTIL (UTC)", "BY", "REASON")
    rows = [
        (",".join(w.nodes), moment(w.created_at)[:16], moment(w.until)[:16], w.by, w.why)
        for w in read(WindowsShape, got).windows
    ]
    table("", columns, rows, "no maintenance window of Holdfast's; for those in Slurm: scontrol show reservation")
