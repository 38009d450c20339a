"""Log of every API call that reached the emulator; tests count effects in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(slots=True)
class Call:
    """One call. ``effects`` is empty for a failure, a describe, and a repeat that changed nothing."""

    number: int
    """Counts from 1 and never repeats within a process."""
    at: str
    action: str
    parameters: dict[str, str]
    status: int = 0
    """HTTP status that the client got; 0 while the call is under way."""
    error: str = ""
    injected: bool = False
    """The answer came from an armed fault."""
    effects: list[str] = field(default_factory=list)
    """Ids of the instances that it launched, ended, rebooted, stopped or started."""
    replayed: bool = False
    """Whether the call was replayed from the journal at start."""


class CallLog:
    def __init__(self) -> None:
        self._calls: list[Call] = []

    def begin(self, action: str, parameters: Mapping[str, str], at: float, *, replayed: bool) -> Call:
        text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        call = Call(len(self._calls) + 1, text, action, dict(parameters), replayed=replayed)
        self._calls.append(call)
        return call

    @property
    def count(self) -> int:
        """Number of calls so far, which is the number of the newest."""
        return len(self._calls)

    def select(self, action: str = "", since: int = 0) -> Iterable[dict[str, Any]]:
        """Calls with a number above ``since``, of one action or of all, as JSON-ready objects."""
        return [asdict(c) for c in self._calls[since:] if action in ("", c.action)]
