"""The verb that shows on one screen what Holdfast does, how its parts are, what waits for an operator, and what happened last night."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, SinceOption, Url
from holdfast.cli.common.problems import Exit
from holdfast.cli.common.restraints import held_lines, mode_line
from holdfast.cli.common.show import as_json, line, lines, table, width
from holdfast.model.errors import NotFound

if TYPE_CHECKING:
    from holdfast.api.answers.status_shapes import StatusShape


def status(
    url: Url = None,
    as_data: Json = False,
    parts: Annotated[bool, typer.Option("--parts", help="Each part with its figure, and what to do.")] = False,
    since: SinceOption = None,
) -> None:
    """One screen: what Holdfast does now and why, whether it is well itself, what waits for you and the command that answers it, and what
    happened since last evening. Exit status 1 when a part has failed; a pause or a brake is no failure."""
    client = ApiClient(url)
    got = client.get("/v1/status") if parts else _overview(client, since)
    from holdfast.api.answers.status_shapes import StatusShape  # noqa: PLC0415
    from holdfast.model.parts import Condition  # noqa: PLC0415

    shown = read(StatusShape, got)
    if as_data:
        as_json(got)
    elif parts or "sentence" not in got:
        _parts(shown)
    else:
        _screen(got)
    failed = any(p.condition == Condition.FAILED for p in shown.parts)
    raise typer.Exit(Exit.PROBLEM if failed else Exit.OK)


def _overview(client: ApiClient, since: str | None) -> Any:
    """``/v1/status`` of a controller that has no overview: the release before this one."""
    from datetime import UTC, datetime  # noqa: PLC0415

    from holdfast.cli.common.when import last_evening, parse_when  # noqa: PLC0415

    now = datetime.now(UTC)
    start = parse_when(since, now) if since is not None else last_evening(now)
    try:
        return client.get("/v1/overview", since=start.isoformat())
    except NotFound:
        return client.get("/v1/status")


def _screen(got: Any) -> None:
    from holdfast.api.answers.overview_shapes import OverviewShape  # noqa: PLC0415
    from holdfast.cli.views.overview import screen, utc_now  # noqa: PLC0415

    shown = read(OverviewShape, got)
    lines(screen(shown, shown.at or utc_now(), width()))


def _parts(shown: StatusShape) -> None:
    line(first_line(shown))
    line(mode_line(shown))
    for sentence in held_lines(shown) or [_not_held(shown)]:
        line(sentence)
    rows = [(p.name, p.condition, p.text, p.next_step) for p in shown.parts]
    table("", ("PART", "STATE", "REASON", "NEXT STEP"), rows, "the controller names no parts")


def _not_held(got: StatusShape) -> str:
    from holdfast.model.parts import Condition  # noqa: PLC0415

    failed = ", ".join(str(p.name) for p in got.parts if p.condition == Condition.FAILED)
    return f"no pause, no brake; failed: {failed}" if failed else "nothing holds it back: no pause, no brake"


def first_line(got: StatusShape) -> str:
    """Whether it is ready, and why not."""
    return f"release {got.release or '?'}: " + ("ready" if got.ready else f"not ready: {got.why or '?'}")
