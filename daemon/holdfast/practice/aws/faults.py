"""Faults that the emulator answers with, on demand or by chance: pure book-keeping, table-tested."""

from __future__ import annotations

import random
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


@dataclass(frozen=True, slots=True)
class Weather:
    """Faults by chance, drawn for each call from one seeded generator: the same calls in the same order meet the same faults.

    The shares are of calls and add up to 1 at most. ``no_capacity`` is of the calls that need capacity alone."""

    seed: int = 0
    throttled: float = 0.0
    """Refused: too many requests."""
    errors: float = 0.0
    """Answered by an internal error, without effect."""
    lost_answers: float = 0.0
    """Carried out, and answered by an internal error."""
    no_capacity: float = 0.0
    stale_s: float = 0.0
    """Each describe shows the world as it was up to so long ago: states, tags, and which instances there are."""

    def __post_init__(self) -> None:
        shares = (self.throttled, self.errors, self.lost_answers)
        if min(*shares, self.no_capacity, self.stale_s) < 0 or sum(shares) > 1 or self.no_capacity > 1:
            raise ValueError(f"shares of weather lie within 0 and 1, together at most 1: {self}")

    def fault(self, action: str, chance: float, capacity: float) -> Fault | None:
        """What a call meets, by two numbers drawn from 0 to 1."""
        if action in NEED_CAPACITY and capacity < self.no_capacity:
            return Fault(action, "InsufficientInstanceCapacity", "No capacity: the weather of the practice.", 500)
        if chance < self.throttled:
            code = "ThrottlingException" if "Cluster" in action else "RequestLimitExceeded"
            return Fault(action, code, "Request limit exceeded: the weather of the practice.", 503)
        if chance < self.throttled + self.errors:
            return Fault(action, "InternalError", "An error: the weather of the practice.", 500)
        if chance < self.throttled + self.errors + self.lost_answers:
            return Fault(action, "InternalError", "A lost answer: the weather of the practice.", 500, after=True)
        return None


FAIR = Weather()
NEED_CAPACITY = ("RunInstances", "StartInstances")


class FaultBook:
    """The faults that are armed, in the order in which they were added, and the weather behind them."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []
        self.set_weather(FAIR)

    def add(self, fault: Fault) -> None:
        self._armed.append(fault)

    def clear(self) -> None:
        """No fault, and fair weather."""
        self._armed.clear()
        self.set_weather(FAIR)

    def set_weather(self, weather: Weather) -> None:
        """From now on, drawn from its seed anew."""
        self.weather = weather
        self._chance = random.Random(weather.seed)  # noqa: S311 - repeatable on purpose

    def lag_s(self) -> float:
        """How far behind the next describe is."""
        return self._chance.uniform(0, self.weather.stale_s) if self.weather.stale_s else 0.0

    def armed(self) -> tuple[Fault, ...]:
        return tuple(self._armed)

    def take(self, action: str, parameters: Mapping[str, str]) -> Fault | None:
        """The first armed fault that hits this call, counted down, else what the weather brings; None: the call goes through."""
        for index, fault in enumerate(self._armed):
            if not fault.hits(action, parameters):
                continue
            if fault.times == 1:
                del self._armed[index]
            elif fault.times != FOREVER:
                self._armed[index] = replace(fault, times=fault.times - 1)
            return fault
        if self.weather == FAIR:
            return None
        return self.weather.fault(action, self._chance.random(), self._chance.random())
