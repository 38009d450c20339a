"""Noise suppression: flapping components, and cards that log thousands of events. Pure: time is an argument.

A flapping component stays bad until it has been good for a while, so that its node does not go in and out of service. A storm of one event
is reported a few times and then rarely, with the number of events left out (facts: one card logged 38,000 in a day)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from holdfast_checks.result import Result

TURNS = 3
WINDOW_S = 3600.0
"""Flapping: this many changes to bad within an hour (gpud: three drops; NVSentinel: three in an hour)."""
QUIET_S = 600.0
"""How long the OK of a flapping component must last (gpud's sticky window for InfiniBand drops: ten minutes)."""
SAME_EVENT_S = 5.0
"""Kernel log and NVML both report an Xid; within this time they are one event (facts: NVML event, deduplicated by address, Xid, 5 s)."""
STORM = 10
"""Storm: this many reports of one event within :data:`STORM_S`."""
STORM_S = 600.0
_KEPT = 1000


@dataclass(slots=True)
class _Turns:
    at_s: deque[float] = field(default_factory=lambda: deque(maxlen=TURNS))
    ok_since_s: float | None = None


@dataclass(slots=True)
class Flaps:
    """State changes of each component, by any key."""

    _turns: dict[Hashable, _Turns] = field(default_factory=dict)

    def turned_bad(self, place: Hashable, now_s: float) -> None:
        """Record a change from good or unknown to bad."""
        turns = self._turns.setdefault(place, _Turns())
        turns.at_s.append(now_s)
        turns.ok_since_s = None
        _forget_oldest(self._turns)

    def still_bad(self, place: Hashable) -> None:
        """Record that an OK that was not accepted yet has not lasted."""
        if place in self._turns:
            self._turns[place].ok_since_s = None

    def flapping(self, place: Hashable, now_s: float) -> bool:
        turns = self._turns.get(place)
        return turns is not None and len(turns.at_s) == TURNS and now_s - turns.at_s[0] <= WINDOW_S

    def believed(self, place: Hashable, now_s: float) -> bool:
        """Whether an OK that is read now counts. Called for each one while the place is bad."""
        if not self.flapping(place, now_s):
            return True
        turns = self._turns[place]
        if turns.ok_since_s is None:
            turns.ok_since_s = now_s
        return now_s - turns.ok_since_s >= QUIET_S


@dataclass(slots=True)
class _Seen:
    told_s: deque[float]
    """Times of the last reports."""
    last_s: float
    """Time of the last event, reported or not."""
    storm: bool = False
    """From the tenth report within ten minutes until there was none for ten minutes."""
    left_out: int = 0


@dataclass(slots=True)
class Events:
    """Recent events (Xids and other kernel lines), so that a duplicate is reported once, and a storm rarely."""

    _seen: dict[Hashable, _Seen] = field(default_factory=dict)

    def admit(self, result: Result, at_s: float) -> Result | None:
        """The event as it is to be reported, or None. ``at_s``: when it happened. ``left_out`` in its evidence says how many of the same
        were not reported since the last one was."""
        key = (result.check, result.component, result.code)
        seen = self._seen.get(key)
        if seen is None:
            self._seen[key] = _Seen(deque([at_s], maxlen=STORM), at_s)
            _forget_oldest(self._seen)
            return result
        since_s, quiet_s = at_s - seen.told_s[-1], at_s - seen.last_s
        seen.last_s = max(at_s, seen.last_s)
        full = len(seen.told_s) == STORM and seen.told_s[-1] - seen.told_s[0] < STORM_S
        seen.storm = full or (seen.storm and quiet_s < STORM_S)
        if abs(since_s) < SAME_EVENT_S or (seen.storm and since_s < STORM_S):
            seen.left_out += 1
            return None
        seen.told_s.append(at_s)
        left_out, seen.left_out = seen.left_out, 0
        return replace(result, evidence={**result.evidence, "left_out": left_out}) if left_out else result


def _forget_oldest(kept: dict[Hashable, _Turns] | dict[Hashable, _Seen]) -> None:
    if len(kept) > _KEPT:
        del kept[next(iter(kept))]
