"""Schedule for reading checkpoint directories. Pure except for the clock and the random function that are passed in.

With each answer to a heartbeat, the controller names the directories of the jobs whose first node this is. Each is read once soon, then
periodically. The pause doubles while a file system is slow. After a read hung, that user's files are not read for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from holdfast.agent.sending.statements import Malformed, absolute_path, whole_number
from holdfast.model.jobs.said import RESTARTS_MAX

MOST = 64
"""Maximum number of jobs of one node whose directories are read; more are a mistake, and the rest is ignored."""
_LEAST_S, _MOST_S = 1.0, 86_400.0
"""Limits of the pause that a controller may request."""
_FIRST_S = 2.0
"""A new job's directory is read within this."""
_SLOW_S = 3.0
"""A read that takes longer is slow: the pause before the next one is doubled."""
_DOUBLED = 6
"""Maximum number of doublings of the pause: from ten minutes to ten hours."""
_HUNG_S = 600.0
"""After a read of a user's files hung, none of that user's are read for this long, even by order: each may leave a process behind in the
kernel."""


@dataclass(frozen=True, slots=True)
class SurveyTarget:
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
    """Consecutive slow reads."""


def target_of(raw: object) -> SurveyTarget:
    """Parse a target from the controller. Raises Malformed."""
    if not isinstance(raw, dict):
        raise Malformed("not an object")
    directory = absolute_path(raw.get("dir"))
    if directory is None:
        raise Malformed("dir is missing")
    restarts = whole_number(raw, "restarts", default=0, high=RESTARTS_MAX)
    return SurveyTarget(
        whole_number(raw, "job_id", low=1), whole_number(raw, "uid", high=2**32 - 2), restarts, directory
    )


class SurveyPlan:
    """Directories to read, and when next. Not thread-safe."""

    def __init__(self, chance: Callable[[float, float], float]) -> None:
        """``chance`` draws a random number between two others, so that agents that get a job at the same moment read at different times."""
        self._chance = chance
        self._turns: dict[SurveyTarget, _Turn] = {}
        self._hung_s: dict[int, float] = {}
        """By uid: when a read last hung. Kept even when the job is no longer named: its user may start another."""

    def told(self, named: object, now_s: float) -> None:
        """Process the targets from the controller; anything but a list is ignored. Targets that are no longer named are dropped."""
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

    def _new(self, target: SurveyTarget, every_s: float, now_s: float) -> _Turn:
        """Add a target; a new run of a known job keeps the count of slow reads."""
        same = [turn for known, turn in self._turns.items() if known.directory == target.directory]
        slow = max((turn.slow for turn in same), default=0)
        return _Turn(every_s, now_s + self._chance(0.0, _FIRST_S), slow)

    def due(self, now_s: float) -> list[SurveyTarget]:
        """Targets to read now; each is returned once."""
        ready = [each for each, turn in self._turns.items() if turn.due_s <= now_s and self.may_read(each, now_s)]
        for target in ready:
            self._turns[target] = replace(self._turns[target], due_s=float("inf"))
        return ready

    def put_off(self, target: SurveyTarget, now_s: float) -> None:
        """Postpone a target that could not be read now: another directory of its user, or enough others, are being read."""
        if target in self._turns:
            self._turns[target] = replace(self._turns[target], due_s=now_s + self._chance(1.0, _FIRST_S * 2))

    def next_s(self) -> float | None:
        """Time when the next target is due; None: there is none."""
        times = (max(turn.due_s, self._hung_until_s(each.uid)) for each, turn in self._turns.items())
        return min(times, default=None)

    def may_read(self, target: SurveyTarget, now_s: float) -> bool:
        """Whether no read of its user's files hung recently; checked also before a read by order."""
        return now_s >= self._hung_until_s(target.uid)

    def _hung_until_s(self, uid: int) -> float:
        return self._hung_s.get(uid, float("-inf")) + _HUNG_S

    def read(self, target: SurveyTarget, took_s: float, now_s: float, *, hung: bool) -> None:
        """Record the end of a read; ``hung``: it did not end on its own."""
        self._hung_s = {uid: at_s for uid, at_s in self._hung_s.items() if now_s < at_s + _HUNG_S}
        if hung:
            self._hung_s[target.uid] = now_s
        old = self._turns.get(target)
        if old is None:
            return
        slow = min(old.slow + 1, _DOUBLED) if hung or took_s > _SLOW_S else 0
        pause_s = old.every_s * 2**slow * self._chance(0.75, 1.25)
        self._turns[target] = _Turn(old.every_s, now_s + pause_s, slow)


def _read(raw: object) -> tuple[SurveyTarget, float] | None:
    every_s = raw.get("every_s") if isinstance(raw, Mapping) else None
    if isinstance(every_s, bool) or not isinstance(every_s, int | float) or not _LEAST_S <= every_s <= _MOST_S:
        return None
    try:
        return target_of(raw), float(every_s)
    except Malformed:
        return None
