"""Orders that a client repeats: what is kept of the first one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

KEPT = timedelta(hours=24)
"""How long a key and its answer are kept: longer than a client tries again, shorter than anyone reuses a name by hand."""
MOST_KEYS = 10_000
"""Of one token within that time."""


@dataclass(frozen=True, slots=True)
class FirstOrder:
    """The order that used a key first."""

    request: str
    """Digest of its method, path and body."""
    at: datetime
    status: int | None = None
    """HTTP status of its answer; None: it runs, or was cut off before its answer was recorded."""
    answer: str = ""
