"""Judge documents of EC2's instance metadata: shared by the ``cloud`` checks. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from holdfast_checks.per_host import bad, good, skipped, unknown, warning
from holdfast_checks.probes.imds import ImdsDocument
from holdfast_checks.registry import SampleChange
from holdfast_checks.result import Remedy, Result, Severity

INTERRUPTIONS = ("terminate", "stop", "hibernate")
KINDS = {
    "instance-reboot": "reboot",
    "system-reboot": "reboot",
    "instance-stop": "stop",
    "instance-retirement": "stop",
    "system-maintenance": "stop",
}
"""EC2's codes of scheduled events, and what becomes of the machine."""


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """One scheduled event that is still to come."""

    code: str
    kind: str
    at: datetime
    event_id: str
    text: str


def judge_interruption(check: str, change: SampleChange) -> tuple[Result, ...]:
    """``spot/instance-action``: exists only once an interruption is scheduled."""
    said = _parsed(check, change)
    if isinstance(said, Result):
        return (said,)
    if said is None:
        return (good(check, "no interruption is announced"),)
    action = said.get("action") if isinstance(said, Mapping) else None
    if action not in INTERRUPTIONS:
        return (unknown(check, f"an interruption of an unknown kind: {said!r}"),)
    at = _iso(said.get("time"))
    told = {"goes_at": at.isoformat()} if at is not None else {}
    when = f"{at:%H:%M:%S} UTC" if at is not None else "now"
    summary = f"EC2 takes this spot machine back: {action} at {when}"
    result = bad(check, str(action), Severity.FATAL, Remedy.REPLACE, summary, notice="interruption", **told)
    return (result,)


def judge_rebalance(check: str, change: SampleChange) -> tuple[Result, ...]:
    """``events/recommendations/rebalance``: an interruption has become likely; nothing is set."""
    said = _parsed(check, change)
    if isinstance(said, Result):
        return (said,)
    if said is None:
        return (good(check, "no interruption is likely"),)
    since = str(said.get("noticeTime", "")) if isinstance(said, Mapping) else ""
    text = "EC2 recommends to move away: an interruption is likely"
    return (warning(check, "rebalance", text, notice="rebalance", noticed_at=since),)


def judge_maintenance(check: str, change: SampleChange) -> tuple[Result, ...]:
    """``events/maintenance/scheduled``: the first that is to come counts; finished ones stay listed for a while."""
    said = _parsed(check, change)
    if isinstance(said, Result):
        return (said,)
    if said is not None and not isinstance(said, list):
        return (unknown(check, "scheduled events are not a list"),)
    events = sorted(_events(said or []), key=lambda e: e.at)
    if not events:
        return (good(check, "no maintenance is scheduled"),)
    first = events[0]
    summary = f"EC2 has scheduled {first.code} for {first.at:%Y-%m-%d %H:%M} UTC: {first.text}"
    told = {"notice": first.kind, "goes_at": first.at.isoformat(), "event_id": first.event_id}
    return (warning(check, first.code, summary, **told),)


def _events(said: list[Any]) -> Iterator[CloudEvent]:
    for raw in said:
        if not isinstance(raw, Mapping):
            continue
        code, text = str(raw.get("Code", "")), str(raw.get("Description", ""))
        at = _http_date(raw.get("NotBefore"))
        over = text.startswith("[") or str(raw.get("State", "active")).lower() != "active"
        if code in KINDS and at is not None and not over:
            yield CloudEvent(code, KINDS[code], at, str(raw.get("EventId", "")), text)


def _parsed(check: str, change: SampleChange) -> Any:
    """The document as data, None where there is none; a Result where it could not be read."""
    said: ImdsDocument = change.now.facts
    if said.why_not:
        return skipped(check, said.why_not)
    if said.document is None:
        return None
    try:
        return json.loads(said.document)
    except (ValueError, RecursionError):
        return unknown(check, "instance metadata answered with something that is no JSON")


def _iso(said: object) -> datetime | None:
    try:
        return _utc(datetime.fromisoformat(str(said)))
    except (ValueError, OverflowError):
        return None


def _http_date(said: object) -> datetime | None:
    """``21 Jan 2019 09:00:43 GMT``."""
    try:
        return _utc(parsedate_to_datetime(str(said)))
    except (ValueError, OverflowError):
        return None


def _utc(at: datetime) -> datetime:
    """A time without a zone is in UTC. Raises OverflowError at the ends of the calendar."""
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
