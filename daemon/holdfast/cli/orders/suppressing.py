"""Verbs by which operators say that findings are known: they lead to nothing for a while."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.show import as_json, line, moment, table
from holdfast.model.errors import Usage

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([mhd])")
_HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0}
_ID = re.compile(r"[0-9a-z]{12}")
LONGEST_H = 90 * 24.0


def suppress(
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, for the next reader.")],
    duration: Annotated[str, typer.Option("--for", help="How long: 30m, 8h, 3d; 90 days at most.")],
    node: Annotated[str, typer.Option(help="Node, or a pattern such as 'n1?'.")] = "*",
    check: Annotated[str, typer.Option(help="Check, or a pattern such as 'net.*'.")] = "*",
    component: Annotated[str, typer.Option(help="GPU UUID, device or mount point, or a pattern.")] = "*",
    url: Url = None,
) -> None:
    """Findings of this kind open no incident for a while. What is still so at the end counts then."""
    body = {"node": node, "check": check, "component": component, "hours": hours(duration), "reason": reason}
    from holdfast.api.answers.operator_shapes import SuppressionShape  # noqa: PLC0415

    made = read(SuppressionShape, ApiClient(url).post("/v1/suppressions", body))
    line(f"{made.id} holds until {moment(made.until)} UTC; `holdfast unsuppress {made.id}` ends it")


def hours(text: str, longest_h: float = LONGEST_H) -> float:
    """``30m``, ``8h`` or ``3d`` in hours. Raises Usage for what is none, or is longer than ``longest_h``."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise Usage(f"{text!r} is no duration such as 30m, 8h or 3d")
    wanted = float(found[1]) * _HOURS[found[2]]
    if not 0 < wanted <= longest_h:
        raise Usage(f"{text} is not more than nothing and at most {longest_h / 24:.0f}d")
    return wanted


def suppressions(url: Url = None, as_data: Json = False) -> None:
    """What is suppressed, by whom, why, and until when."""
    got = ApiClient(url).get("/v1/suppressions")
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.operator_shapes import SuppressionsShape  # noqa: PLC0415

    columns = ("ID", "NODE", "CHECK", "COMPONENT", "UNTIL (UTC)", "BY", "REASON")
    rows = [
        (s.id, s.node, s.check, s.component, moment(s.until), s.by, s.reason)
        for s in read(SuppressionsShape, got).suppressions
    ]
    table("", columns, rows, "nothing is suppressed")


def unsuppress(
    suppression_id: Annotated[str, typer.Argument(metavar="ID", help="As `holdfast suppressions` shows it.")],
    url: Url = None,
) -> None:
    """End a suppression now."""
    if not _ID.fullmatch(suppression_id):
        raise Usage(f"{suppression_id!r} is no suppression's id; `holdfast suppressions` shows them")
    ApiClient(url).delete(f"/v1/suppressions/{quote(suppression_id, safe='')}")
    line(f"{suppression_id} is over: what it covered counts again")
