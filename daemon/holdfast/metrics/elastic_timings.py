"""Interruption of an incident's elastic jobs, from the record of their rendezvous. Pure.

A job whose group was evicted continues, smaller, with the next quorum of its rendezvous. It is complete with the first one that has as many
groups as before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from holdfast.model.event import Event, EventKind


def meeting_again(
    events: Sequence[Event], opened_at: datetime | None
) -> tuple[float | None, float | None, float | None]:
    """Times of one incident from its events (ordered by time), in seconds: incident opened → first group evicted; that → the others met
    again; that → as many as before. With several rendezvous, the last two are those of the one that took longest. None: not recorded
    (yet)."""
    shut_out = _shut_out(events)
    first = min((e.at for e in shut_out.values()), default=None)
    evict_s = None if first is None or opened_at is None else max((first - opened_at).total_seconds(), 0.0)
    return evict_s, _longest_s(events, shut_out, full=False), _longest_s(events, shut_out, full=True)


def _shut_out(events: Iterable[Event]) -> dict[str, Event]:
    """The first eviction of each rendezvous."""
    found: dict[str, Event] = {}
    for event in events:
        if event.kind is EventKind.QUORUM_EVICTED:
            found.setdefault(str(event.detail.get("room")), event)
    return found


def _longest_s(events: Sequence[Event], shut_out: Mapping[str, Event], *, full: bool) -> float | None:
    spans_s = []
    for room, gone in shut_out.items():
        met_at = (
            gone.at if gone.detail.get("went_on") is True and not full else _met_at(events, room, gone.at, full=full)
        )
        if met_at is None:
            return None
        spans_s.append((met_at - gone.at).total_seconds())
    return max(spans_s, default=None)


def _met_at(events: Iterable[Event], room: str, since: datetime, *, full: bool) -> datetime | None:
    for event in events:
        there = event.kind is EventKind.QUORUM_FORMED and event.detail.get("room") == room and event.at >= since
        if there and (event.detail.get("full") is True or not full):
            return event.at
    return None
