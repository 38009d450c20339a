"""The verb that shows the state of each part of Holdfast and of what it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.answers import read
from holdfast.cli.options import Json, Url
from holdfast.cli.problems import Exit
from holdfast.cli.restraints import held_lines, mode_line
from holdfast.cli.show import as_json, line, table

if TYPE_CHECKING:
    from holdfast.api.status_shapes import StatusShape


def status(url: Url = None, as_data: Json = False) -> None:
    """Whether it acts, what holds it back (pause, brakes), extended budgets; each part: store, disk, loop, lease, actor, notifier, Slurm,
    provider, agents, certificate, connections. Exit status 1 when a part has failed; a pause or a brake is no failure."""
    got = ApiClient(url).get("/v1/status")
    from holdfast.api.status_shapes import StatusShape  # noqa: PLC0415
    from holdfast.model.parts import Condition  # noqa: PLC0415

    shown = read(StatusShape, got)
    if as_data:
        as_json(got)
    else:
        line(first_line(shown))
        line(mode_line(shown))
        for sentence in held_lines(shown) or [_not_held(shown)]:
            line(sentence)
        rows = [(p.name, p.condition, p.text, p.next_step) for p in shown.parts]
        table("", ("PART", "STATE", "REASON", "NEXT STEP"), rows, "the controller names no parts")
    failed = any(p.condition == Condition.FAILED for p in shown.parts)
    raise typer.Exit(Exit.PROBLEM if failed else Exit.OK)


def _not_held(got: StatusShape) -> str:
    from holdfast.model.parts import Condition  # noqa: PLC0415

    failed = ", ".join(str(p.name) for p in got.parts if p.condition == Condition.FAILED)
    return f"no pause, no brake; failed: {failed}" if failed else "nothing holds it back: no pause, no brake"


def first_line(got: StatusShape) -> str:
    """Whether it is ready, and why not."""
    return f"release {got.release or '?'}: " + ("ready" if got.ready else f"not ready: {got.why or '?'}")
