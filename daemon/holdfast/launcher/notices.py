"""Requests to leave: converted from a signal or an agent's event into a line of the file that the training reads."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

_LEAST_S, _MOST_S = 1.0, 86_400.0
_TEXT_MAX = 100


@dataclass(frozen=True, slots=True)
class LeaveNotice:
    """One request to leave."""

    reason: str
    deadline: datetime
    """After this the group is ended by force."""
    target: int | None = None
    """Number of groups that the job is to have afterwards, where known."""

    def left_s(self, now: datetime) -> float:
        """Seconds until the deadline. At least one: a deadline in the past most likely comes from another clock."""
        return min(max((self.deadline - now).total_seconds(), _LEAST_S), _MOST_S)

    @property
    def line(self) -> str:
        """The line for HOLDFAST_EVENT_FILE."""
        told = {"reason": self.reason, "deadline": self.deadline.isoformat(), "target": self.target}
        return json.dumps(told, separators=(",", ":")) + "\n"


def notice_of_event(said: Mapping[str, Any], now: datetime, deadline_s: float) -> LeaveNotice | None:
    """Parse an event; None: the message is no event. An event without a readable deadline gets the launcher's own."""
    if said.get("kind") != "event":
        return None
    reason, target = said.get("reason"), said.get("target")
    told = " ".join(reason.split())[:_TEXT_MAX] if isinstance(reason, str) and reason.isprintable() else ""
    return LeaveNotice(
        told or "event",
        _moment(said.get("deadline")) or now + timedelta(seconds=deadline_s),
        target if type(target) is int and target >= 0 else None,
    )


def notice_of_signal(number: signal.Signals, now: datetime, deadline_s: float) -> LeaveNotice:
    return LeaveNotice(number.name, now + timedelta(seconds=deadline_s))


def append(path: Path, notice: LeaveNotice) -> None:
    """Append the notice. Raises OSError; a line that was written only in part is terminated by the next one."""
    with path.open("a", encoding="utf-8") as file:
        file.write(notice.line)


def _moment(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
