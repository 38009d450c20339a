"""Verbs about one node: its history, its health, notes, and orders to drain it, to release it and to replace its machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.csv_rows import as_csv
from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.problems import Exit
from holdfast.cli.common.show import as_json, counted, line, moment, seconds
from holdfast.cli.common.when import parse_when
from holdfast.cli.views.reading import listed
from holdfast.model.errors import HoldfastError, Rejected, Unavailable, Usage
from holdfast.model.ids import abbreviated

if TYPE_CHECKING:
    from holdfast.api.answers.shapes import ActionShape
    from holdfast.api.shown.history_shapes import HistoryEntryShape, MachineShape, NodeHistoryShape

NodeArgument = Annotated[str, typer.Argument(metavar="NAME", help="The node's name in Slurm.")]
TicketId = Annotated[str, typer.Option("--ticket", "-t", help="Id of a ticket in your own system, for the record.")]
Wait = Annotated[float, typer.Option("--wait", min=0, max=600, help="Seconds to wait until it is done; 0: not at all.")]
_EVERY_S = 0.5
_PAGE = 1000
CSV_COLUMNS = (
    "at",
    "about",
    "kind",
    "who",
    "text",
    "reason",
    "category",
    "ticket",
    "incident_id",
    "job",
    "lasted_s",
    "id",
)


def history(
    name: NodeArgument,
    since: Annotated[
        str | None, typer.Option(help="Not before: 7d, 12h, yesterday, or a time (ISO 8601, UTC).")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many entries at most; the newest.")] = 200,
    url: Url = None,
    as_data: Json = False,
    as_table: Annotated[bool, typer.Option("--csv", help="CSV for spreadsheets.")] = False,
) -> None:
    """Everything that happened to a node, newest last: each drain and its end, who and why, machines, incidents, checks, jobs, notes."""
    if as_data and as_table:
        raise Usage("--json or --csv, not both")
    begin = parse_when(since, datetime.now(UTC)).isoformat() if since is not None else None
    shown = _pages(ApiClient(url), name, begin, limit)
    if as_data:
        as_json(shown.model_dump(mode="json"))
        return
    if as_table:
        as_csv(CSV_COLUMNS, ([getattr(e, column) for column in CSV_COLUMNS] for e in shown.entries))
        return
    for sentence in head_lines(shown):
        line(sentence)
    columns = ("AT (UTC)", "WHO", "WHAT", "OUT FOR", "TICKET", "INCIDENT")
    rows = [entry_row(e) for e in shown.entries]
    empty = [name for index, name in enumerate(columns) if index > 2 and not any(row[index] for row in rows)]
    listed(columns, rows, "nothing is on record in this time", ("INCIDENT",), never=empty)
    if shown.next_cursor is not None:
        line(
            f"older entries: --limit {limit * 2}, or --json, whose next_cursor GET /v1/nodes/{name}/history takes as cursor"
        )


def _pages(client: ApiClient, name: str, since: str | None, limit: int) -> NodeHistoryShape:
    """The newest entries of several answers, as one: several events may be one entry, so an answer may have fewer than asked for."""
    from holdfast.api.shown.history_shapes import NodeHistoryShape  # noqa: PLC0415

    def page(cursor: int | None) -> NodeHistoryShape:
        path = f"/v1/nodes/{quote(name, safe='')}/history"
        return read(NodeHistoryShape, client.get(path, since=since, cursor=cursor, limit=min(limit, _PAGE)))

    found = page(None)
    while found.next_cursor is not None and len(found.entries) < limit:
        older = page(found.next_cursor)
        merged = {"entries": [*older.entries, *found.entries], "next_cursor": older.next_cursor}
        found = found.model_copy(update=merged)
    return found


def head_lines(shown: NodeHistoryShape) -> Iterator[str]:
    """The node's machines, and since when others' drains are on record."""
    for machine in shown.machines:
        yield machine_line(machine)
    if shown.recorded_since is not None:
        yield f"drains of others are on record since {moment(shown.recorded_since)[:16]} UTC"


def machine_line(machine: MachineShape) -> str:
    serials = ", ".join(g.serial or abbreviated(g.uuid) for g in machine.gpus)
    gpus = f", {counted(len(machine.gpus), 'GPU')}: {serials}" if machine.gpus else ""
    now = "serves now" if machine.serving else "does not serve now"
    driver = f", driver {machine.driver_version}" if machine.driver_version else ""
    reported = f", hardware reported {moment(machine.reported_at)[:16]} UTC" if machine.reported_at else ""
    return f"machine {machine.instance_id} ({now}), boot {machine.boot_id or '?'}{driver}{gpus}{reported}"


def entry_row(e: HistoryEntryShape) -> list[object]:
    lasted = seconds(e.lasted_s) if e.lasted_s is not None else ""
    category = f" ({e.category})" if e.category and e.category not in e.text else ""
    return [moment(e.at)[:19], e.who, abbreviated(e.text) + category, lasted, e.ticket, e.incident_id]


def health(name: NodeArgument, url: Url = None, as_data: Json = False) -> int:
    """One verdict on a node, for scripts. Exit status: 0 healthy; 1 degraded or unhealthy; 3 unknown, not evaluated, or no answer."""
    try:
        got = ApiClient(url).get(f"/v1/nodes/{quote(name, safe='')}/health")
    except Rejected as error:  # no such node, for example: no verdict, and never "unhealthy"
        raise Unavailable(str(error)) from None
    from holdfast.api.shown.history_shapes import NodeHealthShape  # noqa: PLC0415

    shown = read(NodeHealthShape, got)
    if as_data:
        as_json(got)
    else:
        since = f", since {moment(shown.since)[:19]} UTC" if shown.since else ""
        served = {True: "in service", False: "out of service", None: "whether it is in service is not known"}
        line(f"{shown.node}: {shown.health}, {served[shown.in_service]}: {shown.reason}{since}")
        if shown.incident_id:
            line(f"holdfast incident show {shown.incident_id}")
    return int(_STATUS.get(str(shown.health), Exit.UNREACHABLE))


_STATUS = {"healthy": Exit.OK, "degraded": Exit.PROBLEM, "unhealthy": Exit.PROBLEM}


def note(
    name: NodeArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="For the next reader.")],
    ticket: TicketId = "",
    url: Url = None,
) -> None:
    """Put a note on a node's record; it changes nothing else."""
    got = ApiClient(url).post(f"/v1/nodes/{quote(name, safe='')}/notes", {"text": text, "ticket": ticket})
    line(_ordered(got)[1])


def drain(
    name: NodeArgument,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why: it becomes a part of Slurm's reason.")],
    ticket: TicketId = "",
    wait: Wait = 15.0,
    url: Url = None,
) -> int:
    """Drain a node as your own drain: jobs on it continue, and Holdfast never takes it back on its own (holdfast node release does)."""
    client = ApiClient(url)
    got = client.post(f"/v1/nodes/{quote(name, safe='')}/drain", {"reason": reason, "ticket": ticket})
    return _outcome(client, *_ordered(got), wait)


def release(
    name: NodeArgument,
    note: Annotated[str, typer.Option("--note", "-n", help="What was done to it, for the record.")],
    ticket: TicketId = "",
    despite_repair: Annotated[
        bool, typer.Option("--despite-repair", help="Also while Holdfast repairs it: the repair ends.")
    ] = False,
    wait: Wait = 15.0,
    url: Url = None,
) -> int:
    """Put a drained or DOWN node back into service: one that an operator, another tool or Holdfast took out."""
    client = ApiClient(url)
    body = {"note": note, "ticket": ticket, "despite_repair": despite_repair}
    got = client.post(f"/v1/nodes/{quote(name, safe='')}/release", body)
    return _outcome(client, *_ordered(got), wait)


def replace(
    name: NodeArgument,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, for the record.")] = "",
    ticket: TicketId = "",
    over: Annotated[
        str, typer.Option("--over", help="Take over another operator's drain: its reason, word for word.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether this machine is to go.")] = False,
    url: Url = None,
) -> int:
    """Replace a node's machine: it is drained, its jobs run to their end, then another machine takes its place and is tested."""
    client = ApiClient(url)
    machine = _machine_of(client, name)
    line(f"{name}: machine {machine} and what is on it will be gone; no job is stopped for it")
    if not (yes or _agreed(f"replace machine {machine} of {name}?")):
        line("nothing is ordered")
        return int(Exit.PROBLEM)
    body = {"reason": reason, "ticket": ticket, "over": over, "machine": machine}
    got = client.post(f"/v1/nodes/{quote(name, safe='')}/replace", body)
    line(f"ordered: {_ordered(got)[1]}")
    line(f"holdfast node history {name} shows how it goes, and why if it is dropped")
    return int(Exit.OK)


def _machine_of(client: ApiClient, name: str) -> str:
    """The machine that serves the node. Raises Rejected where it is not known."""
    from holdfast.api.answers.node_shapes import NodeStory  # noqa: PLC0415

    shown = read(NodeStory, client.get(f"/v1/nodes/{quote(name, safe='')}"))
    if not shown.instance_id:
        raise Rejected(f"which machine serves {name} is not known: its agent has to report first (holdfast doctor)")
    return shown.instance_id


def _agreed(question: str) -> bool:
    """Raises Usage where no one can be asked."""
    if not sys.stdin.isatty():
        raise Usage("there is no terminal to ask at: add --yes if this machine is to go")
    return typer.confirm(question)


def _ordered(got: Any) -> tuple[str, str]:
    from holdfast.api.shown.history_shapes import Ordered  # noqa: PLC0415

    order = read(Ordered, got)
    return order.order_id, order.text + (f" (incident {order.incident_id})" if order.incident_id else "")


def _outcome(
    client: ApiClient, order_id: str, text: str, wait_s: float, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Show what is to happen, and what came of it within this time."""
    line(f"ordered: {text}")
    until_s = time.monotonic() + wait_s
    while time.monotonic() < until_s:
        found = _step_of(client, order_id)
        if found is not None and (
            found.state in ("done", "refused") or (found.state == "failed" and not found.retryable)
        ):
            line(f"{found.state}: {found.outcome or '-'}")
            return int(Exit.OK if found.state == "done" else Exit.PROBLEM)
        sleep(_EVERY_S)
    if wait_s:
        line(
            "not done yet: it is carried out within ten minutes or dropped; see holdfast node history and holdfast status"
        )
    return int(Exit.OK)


def _step_of(client: ApiClient, order_id: str) -> ActionShape | None:
    """The newest attempt of the order; None: it is not planned yet, or the controller did not answer just now."""
    from holdfast.api.answers.shapes import ActionsShape  # noqa: PLC0415

    try:
        actions = read(ActionsShape, client.get("/v1/actions", incident="upkeep", limit=200)).actions
    except HoldfastError:
        return None
    return next((a for a in reversed(actions) if f".{order_id}/" in a.key), None)
