"""Rate limits of one rendezvous: any process of its job holds the token and may send anything. Pure: the caller passes every time.

The limits are far above what a job needs in any situation. They keep one rendezvous from slowing the others and from filling the
database or the log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.bucket import Bucket
from holdfast.quorum.nouns import Departure, RoomEvent, Rules

GROUP_BURST, GROUP_PER_S = 30, 0.1
"""New starts and Managers of one group: burst and sustained rate. A group that fails in each first step restarts every few seconds."""
ROOM_BURST, ROOM_PER_S = 200, 1.0
"""The same for all groups together. The burst is at least twice the largest number of groups: a whole job may restart twice in a row."""
GROUPS_KEPT = 4096
"""Number of groups whose rate is remembered: where the job's groups are not known, names can be invented without limit."""
CHANGES_BURST, CHANGES_PER_S, CHANGE_MEMBERS = 200, 5.0, 500
"""Quorums with changed members (or after failed commits) that are stored: burst and sustained rate. Each further block of this many
members counts as one more."""
RECORD_BURST, RECORD_PER_HOUR = 4000, 2000
"""Records that members cause: burst and per hour; records of verdicts are counted separately. A long one counts as several."""
LINE_CHARACTERS = 1000
OMITTED_EVERY_S = 600.0
"""Shortest interval between records that say how many were omitted."""
OMITTED = "omitted"
_VERDICTS = frozenset({Departure.EVICTED.value, "done"})


@dataclass(slots=True)
class Arrivals:
    """Rate limit of group starts that join one rendezvous."""

    room: Bucket
    refused: int = 0
    """Arrivals above the rate limit."""
    _groups: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    @classmethod
    def of(cls, rules: Rules) -> Arrivals:
        return cls(Bucket(_room_burst(rules), ROOM_PER_S))

    def fit(self, rules: Rules) -> None:
        """Apply changed rules; tokens already taken stay taken."""
        self.room.burst = _room_burst(rules)

    def allow(self, group: str, now_s: float) -> bool:
        mine = self._groups.setdefault(group, Bucket(GROUP_BURST, GROUP_PER_S))
        self._groups.move_to_end(group)
        while len(self._groups) > GROUPS_KEPT:
            self._groups.popitem(last=False)
        allowed = min(mine.left(now_s), self.room.left(now_s)) >= 1
        if allowed:
            mine.take(now_s)
            self.room.take(now_s)
        else:
            self.refused += 1
        return allowed


def _room_burst(rules: Rules) -> float:
    return ROOM_BURST + 2 * min(max(rules.max_groups, rules.groups), rules.members_max)


@dataclass(slots=True)
class RecordLimit:
    """Filter of the events of a rendezvous that are recorded."""

    omitted: int = 0
    """Events that were left out, since the service started."""
    _untold: int = 0
    _told_s: float = float("-inf")
    _members: Bucket = field(default_factory=lambda: Bucket(RECORD_BURST, RECORD_PER_HOUR / 3600))
    _verdicts: Bucket = field(default_factory=lambda: Bucket(RECORD_BURST, RECORD_PER_HOUR / 3600))

    def keep(self, events: Iterable[RoomEvent], now_s: float) -> list[RoomEvent]:
        """Events to record, from time to time with the number of those omitted."""
        kept: list[RoomEvent] = []
        for event in events:
            bucket = self._verdicts if event.kind in _VERDICTS else self._members
            if bucket.take(now_s, lines(event)):
                kept.append(event)
            else:
                self.omitted += 1
                self._untold += 1
        if self._untold and now_s - self._told_s >= OMITTED_EVERY_S:
            text = f"{self._untold} events left out: more than {RECORD_PER_HOUR} an hour"
            kept.append(RoomEvent(OMITTED, reason=text))
            self._untold, self._told_s = 0, now_s
        return kept


def lines(event: RoomEvent) -> float:
    """How many lines of the record an event counts as."""
    characters = len(event.who) + len(event.reason) + sum(map(len, event.members))
    return 1 + characters / LINE_CHARACTERS
