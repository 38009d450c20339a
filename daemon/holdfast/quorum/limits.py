"""How much one room may do: who holds its token, any process of its job, may send what it likes. Pure: every moment is handed in.

Far above what a job needs, whatever happens to it. What is refused is the room's own: no other room is slower for it, and neither the
database nor the log grows without end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.bucket import Bucket
from holdfast.quorum.nouns import Departure, RoomEvent, Rules

GROUP_BURST, GROUP_PER_S = 30, 0.1
"""New starts and Managers of one group: at once, and for ever. A group that ends in each first step starts again every few seconds."""
ROOM_BURST, ROOM_PER_S = 200, 1.0
"""Of all groups together; and twice the largest number of groups at once, so that a whole job may start again twice in a row."""
GROUPS_KEPT = 4096
"""Groups whose rate is remembered; names without number may be made where the job's groups are not known."""
CHANGES_BURST, CHANGES_PER_S, CHANGE_MEMBERS = 200, 5.0, 500
"""Quorums with other members (or after failed commits) that are written down, at once and for ever. So many members count as one more."""
RECORD_BURST, RECORD_PER_HOUR = 4000, 2000
"""Lines of the record that members cause, at once and an hour; those of verdicts are counted apart. A long one counts as several."""
LINE_CHARACTERS = 1000
OMITTED_EVERY_S = 600.0
"""Most often that the record says how much was left out."""
OMITTED = "omitted"
_VERDICTS = frozenset({Departure.EVICTED.value, "done"})


@dataclass(slots=True)
class Arrivals:
    """How often starts of groups may come into one room."""

    room: Bucket
    refused: int = 0
    """Arrivals that came too soon."""
    _groups: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    @classmethod
    def of(cls, rules: Rules) -> Arrivals:
        return cls(Bucket(_room_burst(rules), ROOM_PER_S))

    def fit(self, rules: Rules) -> None:
        """The room has other rules now; what was taken is taken."""
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
    """What of a room's events is recorded."""

    omitted: int = 0
    """Events that were left out, since the service started."""
    _untold: int = 0
    _told_s: float = float("-inf")
    _members: Bucket = field(default_factory=lambda: Bucket(RECORD_BURST, RECORD_PER_HOUR / 3600))
    _verdicts: Bucket = field(default_factory=lambda: Bucket(RECORD_BURST, RECORD_PER_HOUR / 3600))

    def keep(self, events: Iterable[RoomEvent], now_s: float) -> list[RoomEvent]:
        """Those that are recorded, with the number of the others now and then."""
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
