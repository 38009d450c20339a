"""The verb that shows which operator did what, when and why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, SinceOption, Url
from holdfast.cli.common.show import as_json, line, moment
from holdfast.cli.common.when import asked, both, given
from holdfast.cli.views.reading import listed
from holdfast.model.event import EventKind

if TYPE_CHECKING:
    from holdfast.api.answers.shapes import EventShape

KINDS = (EventKind.OPERATOR, EventKind.PAUSED, EventKind.RESUMED, EventKind.BRAKE_RELEASED)
"""What an operator did through the API. Each has verb, who, target and reason in its detail."""
_SPAN = timedelta(days=7)
_PAGE = 1000
_MOST_PAGES = 100


def audit(
    since: SinceOption = None,
    who: Annotated[str | None, typer.Option("--who", help="Only what this operator did (the name of a token).")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most: the newest.")] = 100,
    url: Url = None,
    as_data: Json = False,
) -> None:
    """Which operator did what, and why: the last 7 days or since a time, newest first."""
    from holdfast.api.answers.shapes import EventsShape  # noqa: PLC0415

    start = given(since) or datetime.now(UTC) - _SPAN
    found = [e for e in _events(ApiClient(url), start) if who in (None, e.get("detail", {}).get("who"))][-limit:]
    if as_data:
        as_json({"events": found})
        return
    about = f" by {who}" if who is not None else ""
    line(f"since {both(start)}{about}")
    events = read(EventsShape, {"events": found}).events
    columns = ("AT (UTC)", "WHO", "DID", "NODE", "REASON")
    listed(columns, [audit_row(e) for e in reversed(events)], "no operator did anything in this time", ())


def audit_row(event: EventShape) -> list[object]:
    """An event of a release that recorded no detail is shown by its text."""
    said = event.detail
    if not said.get("who"):
        return [moment(event.at)[:19], "", event.text, event.node, ""]
    did = f"{said.get('verb', event.kind)} {said.get('target', '')}".strip()
    return [moment(event.at)[:19], said.get("who"), did, event.node, said.get("reason")]


def _events(client: ApiClient, since: datetime) -> Iterator[Any]:
    """Oldest first, page by page, as the controller sent them."""
    after_id = 0
    for _ in range(_MOST_PAGES):
        query = {"since": asked(since), "kind": [k.value for k in KINDS], "after_id": after_id or None, "limit": _PAGE}
        got = client.get("/v1/events", **query)
        page = got.get("events", []) if isinstance(got, dict) else []
        yield from page
        if len(page) < _PAGE:
            return
        after_id = got.get("next_after_id", 0)
