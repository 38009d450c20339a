"""The sheet that goes to the vendor with a node, as Markdown or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.show import json_text, line, moment, printable, seconds, write_new
from holdfast.cli.nodes.node import NodeArgument
from holdfast.model.errors import Usage

if TYPE_CHECKING:
    from holdfast.api.answers.shapes import FindingShape
    from holdfast.api.shown.history_shapes import HistoryEntryShape, MachineShape, NodeSheetShape, SheetIncidentShape

_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~])")


def sheet(
    name: NodeArgument,
    incident: Annotated[str | None, typer.Option(help="Only of this incident; default: of the newest ten.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; default: print it.")] = None,
    url: Url = None,
    as_data: Json = False,
) -> None:
    """What a vendor wants to know of a node, as Markdown: serials, what was found with its evidence, what was tried, tickets."""
    if output is not None and output.exists():
        raise Usage(f"{output} exists already: name another file with --output")
    got = ApiClient(url).get(f"/v1/nodes/{quote(name, safe='')}/sheet", incident=incident)
    from holdfast.api.shown.history_shapes import NodeSheetShape  # noqa: PLC0415

    made = read(NodeSheetShape, got)
    text = json_text(got) if as_data else "\n".join(markdown(made))
    if output is None:
        typer.echo(text)
        return
    write_new(output, f"{text}\n".encode())
    line(f"{output}: {len(made.incidents)} incidents of {name}")


def markdown(made: NodeSheetShape) -> Iterator[str]:
    """The sheet, line by line."""
    yield from (f"# Node {plain(made.node)}", "", f"Made {moment(made.made_at)[:19]} UTC. All times are UTC.", "")
    if made.health is not None:
        yield from (f"State: {plain(made.health.health)}: {plain(made.health.reason)}", "")
    if made.tickets:
        yield from (f"Tickets: {', '.join(map(plain, made.tickets))}", "")
    yield from ("## Hardware", "")
    for machine in made.machines:
        yield from _machine(machine)
    if not made.machines:
        yield from ("No hardware is on record.", "")
    for each in made.incidents:
        yield from _incident(each)
    yield from ("## Out of service", "")
    yield from _entries(made.out, "Nothing is on record.")


def _machine(machine: MachineShape) -> Iterator[str]:
    serving = "serves the node now" if machine.serving else "does not serve the node now"
    boot = f", boot {plain(machine.boot_id)}" if machine.boot_id else ""
    driver = f", NVIDIA driver {plain(machine.driver_version)}" if machine.driver_version else ""
    yield f"- Machine {plain(machine.instance_id)} ({serving}){boot}{driver}, reported {moment(machine.reported_at)[:19]}"
    yield from (f"  - {plain(key)}: {plain(value)}" for key, value in sorted(machine.detail.items()))
    yield ""
    if machine.gpus:
        rows = [(g.minor, g.uuid, g.serial or "not known", g.pci) for g in machine.gpus]
        yield from _table(("GPU", "UUID", "serial", "PCI address"), rows)


def _incident(each: SheetIncidentShape) -> Iterator[str]:
    i = each.incident
    closed = f", closed {moment(i.closed_at)[:19]}" if i.closed_at else ", open"
    yield from (f"## Incident {plain(i.id)}", "", f"{plain(i.headline)}", "")
    yield f"- {plain(i.severity)}, check {plain(i.check)}, fault at {moment(i.fault_at)[:19]}{closed}"
    yield f"- machine {plain(i.instance_id or 'not known')}, boot {plain(i.boot_id or 'not known')}"
    if i.note:
        yield f"- {plain(i.note)}"
    yield from ("", "### Found", "")
    rows = [_finding(f) for f in sorted(each.findings, key=lambda f: f.fault_at)]
    yield from (
        _table(("at", "check", "component", "what", "evidence"), rows) if rows else ("No finding is on record.", "")
    )
    yield from ("### Tried", "")
    yield from _entries(each.tried, "Nothing was tried by Holdfast.")


def _finding(f: FindingShape) -> tuple[object, ...]:
    evidence = "; ".join(f"{key}={value}" for key, value in sorted(f.evidence.items()))
    often = f", seen {f.repeats + 1} times" if f.repeats else ""
    return moment(f.fault_at)[:19], f"{f.check} {f.code}".strip(), f.component, f.summary + often, evidence[:500]


def _entries(entries: Iterable[HistoryEntryShape], empty: str) -> Iterator[str]:
    rows = [(moment(e.at)[:19], e.who, e.text, seconds(e.lasted_s) if e.lasted_s is not None else "") for e in entries]
    yield from _table(("at", "who", "what", "out for"), rows) if rows else (empty, "")


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    yield from (f"| {' | '.join(plain(cell) for cell in row)} |" for row in rows)
    yield ""


def plain(value: object) -> str:
    """One line of text in which nothing is Markdown: texts of agents and users are shown as they are."""
    text = "" if value is None else str(value)
    return _MARKS.sub(r"\\\1", printable(text, " "))
