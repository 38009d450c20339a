"""Faults that the emulator answers with on demand: pure book-keeping, table-tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

FOREVER = -1
"""``times`` of a fault that holds until the faults are cleared."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: which calls it hits, what they get."""

    action: str = "*"
    """API action such as ``RunInstances``; ``*``: every action."""
    code: str = ""
    """Error code of the answer; empty: no error, only the delay."""
    message: str = "Injected by the practice."
    status: int = 400
    """HTTP status of the error."""
    times: int = 1
    """Calls that it hits before it is used up; ``FOREVER`` until cleared."""
    delay_s: float = 0.0
    """Time before the answer; longer than the client's read time-out it is a time-out."""
    after: bool = False
    """True: the call takes effect first and then its answer is lost in this fault."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Only calls whose parameters have these values (``InstanceType``, ``SubnetId``, …)."""

    def hits(self, action: str, parameters: Mapping[str, str]) -> bool:
        return self.action in ("*", action) and all(parameters.get(k) == v for k, v in self.where.items())


def fault_from_json(data: Mapping[str, Any]) -> Fault:
    """A fault from the control endpoint's JSON. Raises TypeError for an unknown key, ValueError for a bad value."""
    fault = Fault(**data)
    if not 400 <= fault.status <= 599:
        raise ValueError(f"status {fault.status} is no HTTP error")
    if not 0 <= fault.delay_s <= 600:
        raise ValueError(f"delay_s {fault.delay_s} is not within 0 to 600")
    return fault


class FaultBook:
    """The faults that are armed, in the order in which they were added."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []

    def add(self, fault: Fault) -> None:
        self._armed.append(fault)

    def clear(self) -> None:
        self._armed.clear()

    def armed(self) -> tuple[Fault, ...]:
        return tuple(self._armed)

    def take(self, action: str, parameters: Mapping[str, str]) -> Fault | None:
        """The first fault that hits this call, counted down; None: the call goes through."""
        for index, fault in enumerate(self._armed):
            if not fault.hits(action, parameters):
                continue
            if fault.times == 1:
                del self._armed[index]
            elif fault.times != FOREVER:
                self._armed[index] = replace(fault, times=fault.times - 1)
            return fault
        return None
