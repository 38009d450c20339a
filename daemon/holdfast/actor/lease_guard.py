"""A step of several calls must not go on once its controller no longer leads: another one may be at the same thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

READS = frozenset(
    {
        "view",
        "node",
        "job",
        "components",
        "jobs_on",
        "all_nodes",
        "all_reservations",
        "version",
        "config",
        "topology",
        "partitions",
        "reservation",
        "instance",
        "instance_of",
        "find_launched",
        "repairs_itself",
        "notices",
        "on_trial",
        "name",
        "can",
    }
)
"""What changes nothing outside, of a scheduler and of a provider; everything else is looked at before it is done."""


class WhileLeading:
    """A scheduler or provider that asks ``still_leading`` right before each call that changes something."""

    def __init__(self, port: Any, still_leading: Callable[[], None]) -> None:
        """``still_leading`` raises FencedOff when the lease was lost."""
        self._port = port
        self._still_leading = still_leading

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name in READS or not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            self._still_leading()
            return found(*args, **named)

        return call
