"""The verb that shows the worst nodes, and why they are that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.show import as_json, line, moment, table
from holdfast.model.ids import abbreviated

if TYPE_CHECKING:
    from holdfast.api.shown.history_shapes import LemonShape


def lemons(url: Url = None, as_data: Json = False) -> None:
    """The worst nodes: their score, each fault that counts and until when, and when a lemon ends to be one."""
    got = ApiClient(url).get("/v1/lemons")
    if as_data:
        as_json(got)
        return
    from holdfast.api.shown.history_shapes import LemonsShape  # noqa: PLC0415

    shown = read(LemonsShape, got)
    if shown.history_read_at is None:
        line("the history has not been read yet: it is read every few minutes")
        return
    line(f"as read at {moment(shown.history_read_at)[:19]} UTC; {'; '.join(shown.rules)}")
    rows = [row for lemon in shown.lemons for row in lemon_rows(lemon)]
    table(
        "", ("NODE", "SCORE", "LEMON UNTIL", "FAULT (UTC)", "COUNTS", "WHAT"), rows, "no node has a fault that counts"
    )


def lemon_rows(lemon: LemonShape) -> list[list[object]]:
    """A row with the verdict, then one for each fault."""
    until = moment(lemon.until)[:10] if lemon.until else ""
    head: list[object] = [lemon.node, lemon.score, until, "", "", "; ".join(lemon.reasons)]
    faults: list[list[object]] = []
    for fault in lemon.faults:
        counts = f"{fault.weight} until {moment(fault.until)[:10]}" if fault.until else "0"
        named = f" (incident {fault.outage.incident_id})" if fault.outage.incident_id else ""
        what = f"{abbreviated(fault.outage.what)}{named}: {fault.why}"
        faults.append(["", "", "", moment(fault.outage.out_at)[:19], counts, what])
    return [head, *faults]
