"""Verbs by which operators give Holdfast orders."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import IncidentIdArgument, Reason, Url
from holdfast.cli.common.show import line
from holdfast.model.errors import Usage


def pause(reason: Reason = "", url: Url = None) -> None:
    """Do nothing outside until resumed; faults are still recorded."""
    ApiClient(url).post("/v1/pause", {"reason": reason})
    line("paused; `holdfast resume` ends it")


def resume(reason: Reason = "", url: Url = None) -> None:
    """End a pause."""
    ApiClient(url).post("/v1/resume", {"reason": reason})
    line("resumed")


def release(
    kind: Annotated[
        str, typer.Argument(help="drains, job_stops, planned_stops or task_drains; of one node set: drains@SET.")
    ],
    reason: Reason = "",
    url: Url = None,
) -> None:
    """Let a tripped brake go: what it holds back now, which is shown, is done at once. What comes later is counted from zero."""
    from holdfast.api.answers.node_shapes import ClusterShape  # noqa: PLC0415
    from holdfast.model.book import BrakeKind  # noqa: PLC0415

    if kind.partition("@")[0] not in tuple(BrakeKind):
        raise Usage(f"{kind!r} is none of the brakes: {', '.join(BrakeKind)}; of one node set: drains@SET")
    client = ApiClient(url)
    holding = [b for b in read(ClusterShape, client.get("/v1/nodes")).brakes if b.kind == kind]
    client.post(f"/v1/brakes/{quote(kind, safe='')}/release", {"reason": reason})
    for brake in holding:
        line(brake.reason)
    line(
        f"the brake {kind} is released: what it alone held back is done now; what is found from here on is counted from zero"
    )


def ack(incident_id: IncidentIdArgument, reason: Reason = "", url: Url = None) -> None:
    """Take an incident over: recorded, never acted upon by Holdfast."""
    _incident("acknowledge", incident_id, reason, url)


def close(incident_id: IncidentIdArgument, reason: Reason = "", url: Url = None) -> None:
    """Close an incident by hand; of an order to replace a machine that has not begun: withdraw it, and the node is put back."""
    _incident("close", incident_id, reason, url)


def retry(incident_id: IncidentIdArgument, reason: Reason = "", url: Url = None) -> None:
    """Continue the repair of an incident that waits for an operator: the node gets another machine (to keep it, resume the node in
    Slurm)."""
    _incident("retry", incident_id, reason, url)


def _incident(verb: str, incident_id: str, reason: str, url: str | None) -> None:
    got = ApiClient(url).post(f"/v1/incidents/{quote(incident_id, safe='')}/{verb}", {"reason": reason})
    from holdfast.api.answers.operator_shapes import Done  # noqa: PLC0415

    after = read(Done, got).incident
    line(f"{after.id} is {after.state}: {after.note}" if after is not None else f"{incident_id}: done")
