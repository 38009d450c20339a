"""Verbs about proposals: what waits for an operator's accept, and the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, Reason, Url
from holdfast.cli.common.show import as_json, line, moment
from holdfast.cli.orders.suppressing import hours
from holdfast.cli.views.reading import listed
from holdfast.model.errors import Usage

if TYPE_CHECKING:
    from holdfast.api.answers.proposal_shapes import ProposalShape

_ID = re.compile(r"[0-9a-z]{12}\.[1-9][0-9]{0,5}")
_LONGEST_H = 7 * 24.0
COLUMNS = ("ID", "STEP", "NODE", "REASON", "SINCE", "EXPIRES", "NEXT STEP")
ProposalIds = Annotated[
    list[str],
    typer.Argument(metavar="ID...", help="One or more, as `holdfast proposals` shows them.", show_default=False),
]


def proposals(
    url: Url = None,
    as_data: Json = False,
    every: Annotated[bool, typer.Option("--all", help="Also answered and withdrawn ones of open incidents.")] = False,
) -> None:
    """Steps that wait for an operator's accept (mode propose): what would be done, to what, why, and until when it is asked."""
    got = ApiClient(url).get("/v1/proposals", all="true" if every else None)
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.proposal_shapes import ProposalsShape  # noqa: PLC0415

    found = read(ProposalsShape, got).proposals
    listed(COLUMNS, [proposal_row(p) for p in found], "no step waits for an operator", ("SINCE",))
    for proposal in found:
        line(f"{proposal.id}: {proposal.what}")


def proposal_row(p: ProposalShape) -> list[object]:
    job = f" (job {p.job_id})" if p.job_id is not None else ""
    until = "" if p.state == "expired" else moment(p.until)[:16]
    return [p.id, p.step, f"{p.node}{job}", p.reason, moment(p.since)[:16], until, next_step(p)]


def next_step(p: ProposalShape) -> str:
    """What an operator can do, or what was answered."""
    if p.state == "open":
        return f"holdfast accept {p.id} (or dismiss, snooze)"
    if p.state == "expired":
        return f"expired, nothing is done; holdfast reopen {p.id}"
    if p.state == "snoozed":
        return f"snoozed by {p.by}; holdfast accept {p.id}"
    return f"{p.state}{f' by {p.by}' if p.by else ''}{f': {p.why}' if p.why else ''}"


def accept(ids: ProposalIds, reason: Reason = "", url: Url = None) -> None:
    """Let proposed steps be done, once each, in the situation that was shown. Brakes and every other check still hold them."""
    for answered in _answers("accept", ids, {"reason": reason}, url):
        line(f"{answered.id} is accepted: {answered.what}; it may be begun until {moment(answered.until)[:16]} UTC")


def dismiss(ids: ProposalIds, reason: Reason = "", url: Url = None) -> None:
    """Never do proposed steps for these incidents, unless they become worse. Takes back an accept that was not used yet."""
    for answered in _answers("dismiss", ids, {"reason": reason}, url):
        line(f"{answered.id} is dismissed: {answered.what} is not done; `holdfast reopen {answered.id}` asks again")


def snooze(
    ids: ProposalIds,
    duration: Annotated[str, typer.Option("--for", help="How long: 30m, 2h, 1d; 7 days at most.")],
    reason: Reason = "",
    url: Url = None,
) -> None:
    """Ask about proposed steps again later; until then nothing is done."""
    body = {"hours": hours(duration, _LONGEST_H), "reason": reason}
    for answered in _answers("snooze", ids, body, url):
        line(f"{answered.id} is asked again at {moment(answered.until)[:16]} UTC; until then it is not done")


def reopen(ids: ProposalIds, reason: Reason = "", url: Url = None) -> None:
    """Have dismissed or expired steps proposed again, under a new id, if they are still called for."""
    for answered in _answers("reopen", ids, {"reason": reason}, url):
        line(f"{answered.id} is asked again under a new id if it is still called for: holdfast proposals")


def _answers(verb: str, ids: list[str], body: Mapping[str, object], url: str | None) -> list[ProposalShape]:
    """One call for each; the ids are checked before the first."""
    from holdfast.api.answers.proposal_shapes import ProposalShape  # noqa: PLC0415

    for name in ids:
        if not _ID.fullmatch(name):
            raise Usage(f"{name!r} is no proposal's id such as 0h3k5d2m8x1q.1; `holdfast proposals` shows them")
    client = ApiClient(url)
    return [read(ProposalShape, client.post(f"/v1/proposals/{quote(name, safe='')}/{verb}", body)) for name in ids]
