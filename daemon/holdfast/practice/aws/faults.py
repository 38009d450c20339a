"""Faults in the emulator's answers, on demand or at random: pure state, table-tested."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

FOREVER = -1
"""``times`` of a fault that lasts until the faults are cleared."""


@dataclass(frozen=True, slots=True)
class ApiFault:
    """One fault: which calls it affects, and how they are answered."""

    action: str = "*"
    """API action such as ``RunInstances``; ``*``: every action."""
    code: str = ""
    """Error code of the answer; empty: no error, only the delay."""
    message: str = "Injected by the practice."
    status: int = 400
    """HTTP status of the error."""
    times: int = 1
    """Number of calls that it affects; ``FOREVER``: until cleared."""
    delay_s: float = 0.0
    """Delay before the answer; if longer than the client's read timeout, the call times out."""
    after: bool = False
    """True: the call takes effect first and then its answer is lost in this fault."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Only calls whose parameters have these values (``InstanceType``, ``SubnetId``, …)."""

    def hits(self, action: str, parameters: Mapping[str, str]) -> bool:
        return self.action in ("*", action) and all(parameters.get(k) == v for k, v in self.where.items())


def fault_from_json(data: Mapping[str, Any]) -> ApiFault:
    """A fault from the control endpoint's JSON. Raises TypeError for an unknown key, ValueError for a bad value."""
    fault = ApiFault(**data)
    if not 400 <= fault.status <= 599:
        raise ValueError(f"status {fault.status} is no HTTP error")
    if not 0 <= fault.delay_s <= 600:
        raise ValueError(f"delay_s {fault.delay_s} is not within 0 to 600")
    return fault


@dataclass(frozen=True, slots=True)
class Weather:
    """Random faults, drawn for each call from one seeded generator: the same calls in the same order get the same faults.

    The shares are fractions of calls and add up to 1 at most. ``no_capacity`` applies only to calls that need capacity."""

    seed: int = 0
    throttled: float = 0.0
    """Refused: too many requests."""
    errors: float = 0.0
    """Answered by an internal error, without effect."""
    lost_answers: float = 0.0
    """Carried out, and answered by an internal error."""
    no_capacity: float = 0.0
    stale_s: float = 0.0
    """Each describe call shows a state up to this old: states, tags, and which instances exist."""

    def __post_init__(self) -> None:
        shares = (self.throttled, self.errors, self.lost_answers)
        if min(*shares, self.no_capacity, self.stale_s) < 0 or sum(shares) > 1 or self.no_capacity > 1:
            raise ValueError(f"shares of weather lie within 0 and 1, together at most 1: {self}")

    def fault(self, action: str, chance: float, capacity: float) -> ApiFault | None:
        """The fault of a call, chosen by two random numbers from 0 to 1."""
        if action in NEED_CAPACITY and capacity < self.no_capacity:
            return ApiFault(action, "InsufficientInstanceCapacity", "No capacity: the weather of the practice.", 500)
        if chance < self.throttled:
            code = "ThrottlingException" if "Cluster" in action else "RequestLimitExceeded"
            return ApiFault(action, code, "Request limit exceeded: the weather of the practice.", 503)
        if chance < self.throttled + self.errors:
            return ApiFault(action, "InternalError", "An error: the weather of the practice.", 500)
        if chance < self.throttled + self.errors + self.lost_answers:
            return ApiFault(action, "InternalError", "A lost answer: the weather of the practice.", 500, after=True)
        return None


FAIR = Weather()
NEED_CAPACITY = ("RunInstances", "StartInstances")


class FaultBook:
    """Armed faults, in the order in which they were added, and the random faults that apply to all other calls."""

    def __init__(self) -> None:
        self._armed: list[ApiFault] = []
        self.set_weather(FAIR)

    def add(self, fault: ApiFault) -> None:
        self._armed.append(fault)

    def clear(self) -> None:
        """Remove all faults, random ones included."""
        self._armed.clear()
        self.set_weather(FAIR)

    def set_weather(self, weather: Weather) -> None:
        """Set the random faults from now on, and reset the generator to the seed."""
        self.weather = weather
        self._chance = random.Random(weather.seed)  # noqa: S311 - repeatable on purpose

    def lag_s(self) -> float:
        """How far behind the next describe is."""
        return self._chance.uniform(0, self.weather.stale_s) if self.weather.stale_s else 0.0

    def armed(self) -> tuple[ApiFault, ...]:
        return tuple(self._armed)

    def take(self, action: str, parameters: Mapping[str, str]) -> ApiFault | None:
        """The first armed fault for this call, counted down, else a random one; None: the call runs normally."""
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
