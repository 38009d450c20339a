"""Lease guard: stops a step of several calls once its controller no longer leads, because another one may be doing the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from holdfast.ports import reading

_Port = TypeVar("_Port")


def while_leading(port: type, adapter: _Port, still_leading: Callable[[], None]) -> _Port:
    """The scheduler or provider, which asks ``still_leading`` right before each call that its port does not mark as reading.

    ``still_leading`` raises LeaderFencedOff when the lease was lost."""
    return cast("_Port", _WhileLeading(reading(port), adapter, still_leading))


class _WhileLeading:
    def __init__(self, reads: frozenset[str], adapter: object, still_leading: Callable[[], None]) -> None:
        self._reads, self._adapter, self._still_leading = reads, adapter, still_leading

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._adapter, name)
        if name in self._reads or not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            self._still_leading()
            return found(*args, **named)

        return call
