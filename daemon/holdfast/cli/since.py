"""Times as operators type them: ``7d``, ``yesterday``, ``2026-11-26 14:00``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from holdfast.model.errors import Usage

_AGO = re.compile(r"(\d{1,6})\s*([mhdw])")
_UNIT = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_LONGEST = timedelta(days=10 * 365)


def since(text: str | None, now: datetime) -> str | None:
    """The time as the API reads it (ISO 8601, UTC); None for none. Days begin at midnight UTC. Raises Usage."""
    if text is None:
        return None
    said = text.strip().lower()
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = {"today": midnight, "yesterday": midnight - timedelta(days=1)}
    if said in days:
        return days[said].isoformat()
    if (ago := _AGO.fullmatch(said)) is not None:
        return (now.astimezone(UTC) - min(int(ago[1]) * _UNIT[ago[2]], _LONGEST)).isoformat()
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Usage(f"{text!r} is no time such as 7d, 12h, yesterday or 2026-11-26 14:00 (UTC)") from None
    return (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)).isoformat()
