"""Verbs that answer what happened in a span of time, and what Holdfast has spared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, SinceOption, Url
from holdfast.cli.common.show import as_json, counted, line, span
from holdfast.cli.common.when import asked, both, clock, given, last_evening
from holdfast.cli.views.overview import OUTCOMES, said_of, totals
from holdfast.cli.views.reading import listed
from holdfast.model.errors import Usage
from holdfast.model.ids import abbreviated

if TYPE_CHECKING:
    from holdfast.api.answers.overview_shapes import NightLineShape, SavedShape

_COLUMNS = ("FAULT", "NODE", "ID", "OUTCOME", "NODE BACK IN", "JOBS BACK", "JOBS BACK IN", "GPU-HOURS LOST", "WHAT")
_SPARED = ("NODE BACK IN", "JOBS BACK IN", "GPU-HOURS LOST")


def night(
    since: SinceOption = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Not after this time; else now.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Incidents at most: the newest.")] = 50,
    url: Url = None,
    as_data: Json = False,
) -> None:
    """What happened since last evening (18:00), or since a time: each incident and what became of it; jobs, machines, GPU-hours in all."""
    now = datetime.now(UTC)
    start, end = given(since) or last_evening(now), given(until) or now
    if start >= end:
        raise Usage(f"--since {both(start)} is not before --until {both(end)}")
    got = ApiClient(url).get("/v1/night", since=asked(start), until=asked(end) if until is not None else None)
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.overview_shapes import NightShape  # noqa: PLC0415

    shown = read(NightShape, got)
    to = f" to {both(end)}" if until is not None else ""
    line(f"since {both(start)}{to}: {totals(shown)}")
    rows = [night_row(each, end) for each in [*shown.lines][-limit:]]
    listed(_COLUMNS, rows, "no incident in this time", _SPARED)
    if len(shown.lines) > limit:
        line(f"{len(shown.lines) - limit:,} earlier ones are not shown: --limit {len(shown.lines)}")


def night_row(each: NightLineShape, now: datetime) -> list[object]:
    outcome = OUTCOMES.get(each.outcome, each.outcome) + (", machine replaced" if each.replaced else "")
    return [
        clock(each.at, now),
        each.node,
        each.incident_id,
        outcome,
        span(each.returned_s) if each.returned_s is not None else "",
        f"{each.jobs_back} of {each.jobs}" if each.jobs else "",
        span(each.running_s) if each.running_s is not None else "",
        f"{each.lost_gpu_hours:.1f}"
        if each.jobs and each.lost_gpu_hours is not None
        else "unknown"
        if each.jobs
        else "",
        abbreviated(said_of(each)),
    ]


def saved(
    since: SinceOption = None,
    manual_minutes: Annotated[
        float | None,
        typer.Option(
            "--manual-minutes",
            min=1,
            max=10_080,
            help="Your own figure: minutes from a failure to training again, by hand; else a published one.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    as_data: Json = False,
) -> None:
    """An estimate of what recoveries without an operator have spared, in the last 30 days or since a time: hours of downtime and of GPUs,
    against a figure for the same work by hand, whose source is named."""
    got = ApiClient(url).get("/v1/saved", since=asked(given(since)), manual_minutes=manual_minutes)
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.overview_shapes import SavedShape  # noqa: PLC0415

    for sentence in saved_lines(read(SavedShape, got)):
        line(sentence)


def saved_lines(got: SavedShape) -> list[str]:
    head = f"since {both(got.since)}: {counted(got.jobs, 'job')} recovered without an operator, in {counted(got.incidents, 'incident')}"
    if not got.incidents:
        return [head]
    less = "spared" if got.saved_s >= 0 else "more than by hand"
    return [
        head,
        f"measured: {span(got.down_s)} from the faults to all jobs running again, {span(got.down_s / got.incidents)} an incident",
        f"by hand:  {span(got.manual_s)}, {got.manual_minutes:g} min an incident ({got.source})",
        f"estimate: {abs(got.saved_s) / 3600:,.1f} hours of downtime and {abs(got.saved_gpu_hours):,.1f} GPU-hours {less}",
        "It is an estimate: the first figure is measured here, the second is not. Give your own with --manual-minutes.",
    ]
