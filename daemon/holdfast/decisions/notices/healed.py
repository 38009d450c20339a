"""Notices of faults that were repaired without an operator, and the daily summary. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo

from holdfast.decisions.common.wording import counted
from holdfast.model.book import Book
from holdfast.model.incidents.incident import Incident, IncidentState, Recovery, RecoveryPhase
from holdfast.model.notice import Matter, NoticeLevel, NoticeState, Topic

_LISTED = 15
DAY = timedelta(days=1)  # rule undeclared-window: read from the record, not from the state snapshot
"""What a daily summary covers."""


def healed(book: Book, since: datetime) -> tuple[Matter, ...]:
    """Incidents closed after ``since`` whose node was repaired, proved itself and serves again."""
    over = (i for i in book.incidents.values() if i.closed_at is not None and i.closed_at > since and _healed(i))
    return tuple(_matter(book, each) for each in sorted(over, key=lambda i: (i.closed_at or since, i.id)))


def _healed(incident: Incident) -> bool:
    return not incident.open and incident.validated_at is not None and not incident.acknowledged


def _matter(book: Book, incident: Incident) -> Matter:
    jobs = [r for r in book.recoveries.values() if r.incident_id == incident.id]
    lines = [f"Fault: {incident.headline} at {incident.fault_at:%Y-%m-%d %H:%M:%S} UTC", incident.note]
    lines += [_job(each) for each in sorted(jobs, key=lambda r: r.id)]
    return Matter(
        Topic.HEALED,
        incident.id,
        f"{incident.node} is back in service: {incident.headline}",
        NoticeLevel.HEALED,
        "\n".join(line for line in lines if line),
        incident.id,
        (incident.node,),
        incident.closed_at,
    )


def _job(recovery: Recovery) -> str:
    return f"job {recovery.job} of {recovery.user}: {recovery.phase.value}" + (
        f" ({recovery.note})" if recovery.note else ""
    )


def digest_due(at: time, zone: tzinfo, last: datetime | None, now: datetime) -> bool:
    """Whether the summary of the last day is to be made. ``last``: when the one before was; None: none was."""
    local = now.astimezone(zone)
    today = local.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    latest = today if today <= local else today - DAY
    return last is not None and last < latest


@dataclass(frozen=True, slots=True)
class DigestDay:
    """What a daily summary is made from."""

    now: datetime
    incidents: tuple[Incident, ...]
    """Opened within the last day, and every open one."""
    recoveries: tuple[Recovery, ...]
    """Of the last day."""
    state: NoticeState
    book: Book


def digest(day: DigestDay) -> Matter:
    """The daily summary."""
    since = day.now - DAY
    opened = [i for i in day.incidents if i.opened_at >= since]
    repaired = [i for i in opened if _healed(i)]
    waits = [i for i in day.incidents if i.state is IncidentState.AWAITING_HUMAN]
    going = [i for i in day.incidents if i.open and i not in waits]
    back = sum(r.phase in (RecoveryPhase.RUNNING, RecoveryPhase.RESUMED) for r in day.recoveries)
    subject = (
        f"{counted(len(opened), 'incident')} in 24 h, {len(repaired)} repaired; "
        f"{counted(len(waits), 'incident')} waiting for an operator, {back} of {counted(len(day.recoveries), 'job')} run again"
    )
    held = [f"brake {b.name} holds: {b.reason}" for b in day.book.brakes.values() if b.released_at is None]
    late = [
        f"not delivered: {p.message.subject} ({w.address})" for p in day.state.outbox for w in p.waits if w.attempts
    ]
    sections = (
        ("Wait for an operator", [f"{i.node}: {i.note or i.headline} (incident {i.id})" for i in waits]),
        ("In progress", [f"{i.node}: {i.state.value}, {i.headline} (incident {i.id})" for i in going]),
        ("Repaired", [f"{i.node}: {i.headline}" for i in repaired]),
        ("Brakes", held),
        ("Messages", late),
    )
    body = "\n".join(line for title, lines in sections for line in _section(title, lines))
    return Matter(Topic.DIGEST, f"{day.now:%Y-%m-%d}", f"{subject}", NoticeLevel.DIGEST, body, since=day.now)


def _section(title: str, lines: Iterable[str]) -> list[str]:
    all_lines = list(lines)
    if not all_lines:
        return []
    more = [f"- and {len(all_lines) - _LISTED} more"] if len(all_lines) > _LISTED else []
    return [f"{title}:", *(f"- {line}" for line in all_lines[:_LISTED]), *more]
