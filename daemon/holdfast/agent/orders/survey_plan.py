"""When this agent reads which checkpoint directory. Pure but for the clock and the chance that are handed in.

The controller names the directories of the jobs whose first node this is, with each answer to a heartbeat. Each is read once soon, then now
and then; a file system that is slow is left alone for ever longer, and a user whose file system hangs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from holdfast.agent.sending.statements import Malformed, absolute_path, whole_number
from holdfast.model.said import RESTARTS_MAX

MOST = 64
"""Jobs of one node whose directories are read: more are a mistake, the rest is left out."""
_LEAST_S, _MOST_S = 1.0, 86_400.0
"""Bounds of the pause that a controller may name."""
_FIRST_S = 2.0
"""A new job's directory is read within this."""
_SLOW_S = 3.0
"""A read that takes longer is slow: the next one comes after twice the pause."""
_DOUBLED = 6
"""So many times the pause is doubled at most: from ten minutes to ten hours."""
_HUNG_S = 600.0
"""Nothing of a user's is read for this long after a read of theirs hung, by order either: each may leave a process behind in the kernel."""


@dataclass(frozen=True, slots=True)
class Target:
    """One run of a job, and the directory that it registered."""

    job_id: int
    uid: int
    restarts: int
    directory: str


@dataclass(frozen=True, slots=True)
class _Turn:
    every_s: float
    due_s: float
    slow: int = 0
    """Slow reads in a row."""


def target_of(raw: object) -> Target:
    """A target as the controller names it. Raises Malformed."""
    if not isinstance(raw, dict):
        raise Malformed("not an object")
    directory = absolute_path(raw.get("dir"))
    if directory is None:
        raise Malformed("dir is missing")
    restarts = whole_number(raw, "restarts", default=0, high=RESTARTS_MAX)
    return Target(whole_number(raw, "job_id", low=1), whole_number(raw, "uid", high=2**32 - 2), restarts, directory)


class SurveyPlan:
    """Which directories are read, and when next. Not safe for threads."""

    def __init__(self, chance: Callable[[float, float], float]) -> None:
        """``chance`` draws a number between two others: agents that were named a job at the same moment do not read at the same one."""
        self._chance = chance
        self._turns: dict[Target, _Turn] = {}
        self._hung_s: dict[int, float] = {}
        """By uid: when a read last hung. Kept although the job is named no more: its user may start another."""

    def told(self, named: object, now_s: float) -> None:
        """What the controller named; anything else than a list of targets says nothing. What is not named any more is forgotten."""
        if not isinstance(named, list):
            return
        wanted = dict(filter(None, map(_read, named[:MOST])))
        kept = {target: self._turns[target] for target in wanted if target in self._turns}
        for target, every_s in wanted.items():
            old = kept.get(target)
            if old is None:
                kept[target] = self._new(target, every_s, now_s)
            elif old.every_s != every_s:
                sooner_s = now_s + self._chance(0.5, 1.0) * every_s * 2**old.slow
                kept[target] = replace(old, every_s=every_s, due_s=min(old.due_s, sooner_s))
        self._turns = kept

    def _new(self, target: Target, every_s: float, now_s: float) -> _Turn:
        """Another run of a job that is known inherits how slow its directory is."""
        same = [turn for known, turn in self._turns.items() if known.directory == target.directory]
        slow = max((turn.slow for turn in same), default=0)
        return _Turn(every_s, now_s + self._chance(0.0, _FIRST_S), slow)

    def due(self, now_s: float) -> list[Target]:
        """Those to be read now; each is given out once."""
        ready = [each for each, turn in self._turns.items() if turn.due_s <= now_s and self.may_read(each, now_s)]
        for target in ready:
            self._turns[target] = replace(self._turns[target], due_s=float("inf"))
        return ready

    def put_off(self, target: Target, now_s: float) -> None:
        """It could not be read now: its user's other directory, or enough others, are being read."""
        if target in self._turns:
            self._turns[target] = replace(self._turns[target], due_s=now_s + self._chance(1.0, _FIRST_S * 2))

    def next_s(self) -> float | None:
        """When the first is due; None: none is."""
        times = (max(turn.due_s, self._hung_until_s(each.uid)) for each, turn in self._turns.items())
        return min(times, default=None)

    def may_read(self, target: Target, now_s: float) -> bool:
        """Whether no read of its user's hung lately; asked also before one out of turn, by order."""
        return now_s >= self._hung_until_s(target.uid)

    def _hung_until_s(self, uid: int) -> float:
        return self._hung_s.get(uid, float("-inf")) + _HUNG_S

    def read(self, target: Target, took_s: float, now_s: float, *, hung: bool) -> None:
        """A read is over; ``hung``: it did not end by itself."""
        self._hung_s = {uid: at_s for uid, at_s in self._hung_s.items() if now_s < at_s + _HUNG_S}
        if hung:
            self._hung_s[target.uid] = now_s
        old = self._turns.get(target)
        if old is None:
            return
        slow = min(old.slow + 1, _DOUBLED) if hung or took_s > _SLOW_S else 0
        pause_s = old.every_s * 2**slow * self._chance(0.75, 1.25)
        self._turns[target] = _Turn(old.every_s, now_s + pause_s, slow)


def _read(raw: object) -> tuple[Target, float] | None:
    every_s = raw.get("every_s") if isinstance(raw, Mapping) else None
    if isinstance(every_s, bool) or not isinstance(every_s, int | float) or not _LEAST_S <= every_s <= _MOST_S:
        return None
    try:
        return target_of(raw), float(every_s)
    except Malformed:
        return None
