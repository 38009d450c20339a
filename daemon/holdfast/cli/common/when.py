"""Times as an operator types them: ``yesterday``, ``18:00``, ``2h``, ``monday 09:00``, ISO 8601; shown in the terminal's zone and in UTC.

Words and times of day are of the terminal's zone (``TZ``). A date with a time and without an offset is UTC, as the tables print it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo

from holdfast.model.errors import Usage

EXAMPLES = "yesterday, 18:00, 'monday 09:00', 2h, 3d or 2026-01-31T12:00Z"
EVENING = time(18, 0)
"""Last night begins here."""
_DAY_S = 86_400
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": _DAY_S, "w": 7 * _DAY_S}
_AGO = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(s|m|h|d|w)[a-z]*(?:\s+ago)?", re.ASCII)
_UNIT_WORDS = re.compile(r"(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_EARLIEST_YEAR, _LATEST_YEAR = 1971, 8999


def parse_when(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """The time in UTC; times of day alone are the last ones that have passed. ``now``: aware. ``zone``: that of the words; None: the
    terminal's. Raises Usage."""
    said = " ".join(text.strip().lower().split())
    found = _ago(said, now) or _of_words(said, now, zone) or _iso(text.strip())
    if found is None:
        raise Usage(f"{text!r} is no time such as {EXAMPLES}")
    return found


def _ago(said: str, now: datetime) -> datetime | None:
    match = _AGO.fullmatch(said)
    if match is None or not _UNIT_WORDS.fullmatch(said[match.end(1) :].removesuffix("ago").strip()):
        return None
    span_s = float(match[1]) * _UNITS_S[match[2]]
    if span_s > 100 * 365 * _DAY_S:
        raise Usage(f"{said!r} is longer than 100 years")
    return (now - timedelta(seconds=span_s)).astimezone(UTC)


def _of_words(said: str, now: datetime, zone: tzinfo | None) -> datetime | None:
    """``[DAY] [HH:MM]``; of a day without a time its start."""
    wall = now.astimezone(zone).replace(tzinfo=None)
    word, _, rest = said.partition(" ")
    day = _day(word, wall)
    clock = _clock(rest if day is not None else said)
    if said == "now":
        return now.astimezone(UTC)
    if day is None:
        if clock is None:
            return None
        today = _aware(datetime.combine(wall.date(), clock), zone)
        return today if today <= now else _aware(datetime.combine(wall.date() - timedelta(days=1), clock), zone)
    if rest and clock is None:
        return None
    return _aware(datetime.combine(day, clock or time()), zone)


def _day(word: str, wall: datetime) -> datetime | None:
    """Today, yesterday, or the last such day of the week, which may be today."""
    near = {"today": 0, "yesterday": 1}.get(word)
    if near is None:
        named = [number for number, day in enumerate(_DAYS) if word in (day, day[:3])]
        if not named:
            return None
        near = (wall.weekday() - named[0]) % 7
    return wall - timedelta(days=near)


def _clock(text: str) -> time | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise Usage(f"{text!r} is no time of day: hours go from 0 to 23, minutes to 59")
    return time(hour, minute, second)


def _aware(wall: datetime, zone: tzinfo | None) -> datetime:
    """By the rules of the zone at that time, which may be those of another season."""
    return (wall.replace(tzinfo=zone) if zone is not None else wall.astimezone()).astimezone(UTC)


def _iso(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not _EARLIEST_YEAR <= found.year <= _LATEST_YEAR:
        raise Usage(f"{text!r} is not between {_EARLIEST_YEAR} and {_LATEST_YEAR}")
    return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).astimezone(UTC)


def last_evening(now: datetime, zone: tzinfo | None = None) -> datetime:
    """18:00 of yesterday, or twelve hours ago where it is evening already: when last night began."""
    wall = now.astimezone(zone).replace(tzinfo=None)
    if wall.time() >= EVENING:
        return (now - timedelta(hours=12)).astimezone(UTC)
    return _aware(datetime.combine(wall.date() - timedelta(days=1), EVENING), zone)


def both(at: datetime, zone: tzinfo | None = None) -> str:
    """``Wed 2026-01-28 18:00 CET (17:00 UTC)``; the date again where UTC has another one; UTC alone where the zone is UTC."""
    here, there = at.astimezone(zone), at.astimezone(UTC)
    if here.utcoffset() == timedelta():
        return f"{there:%a %Y-%m-%d %H:%M} UTC"
    other = f"{there:%H:%M}" if there.date() == here.date() else f"{there:%Y-%m-%d %H:%M}"
    return f"{here:%a %Y-%m-%d %H:%M} {here.tzname()} ({other} UTC)"


def clock(at: datetime, now: datetime, zone: tzinfo | None = None) -> str:
    """``02:13``, with the day of the week where it is another day: of the terminal's zone."""
    here = at.astimezone(zone)
    return f"{here:%H:%M}" if here.date() == now.astimezone(zone).date() else f"{here:%a %H:%M}"


def given(text: str | None) -> datetime | None:
    """What an option of this moment says, in UTC; None: it was not given. Raises Usage."""
    return None if text is None else parse_when(text, datetime.now(UTC))


def asked(at: datetime | None) -> str | None:
    """As the API takes it."""
    return None if at is None else at.isoformat()
