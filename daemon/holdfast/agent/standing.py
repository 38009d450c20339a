"""Which findings stand, and what of a new result is worth reporting. Pure: time comes in as an argument.

Only an OK of the same check for the same component clears; UNKNOWN and SKIPPED change nothing; what has been said is said again
only when it changed or as a reminder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast_checks.result import Result, Verdict

Key = tuple[str, str, str]
SAME_EVENT_S = 5.0
"""Kernel log and NVML tell of one Xid; within this they are one event (facts: NVML event, deduplicated by address, Xid, 5 s)."""
_EVENTS_KEPT = 1000


def key_of(result: Result) -> Key:
    """Check, component, code: what makes two results the same fault."""
    return (result.check, result.component, result.code)


@dataclass(frozen=True, slots=True)
class News:
    """What is to be reported now."""

    findings: tuple[Result, ...] = ()
    clears: tuple[tuple[str, str], ...] = ()
    """(check, component)."""

    def __bool__(self) -> bool:
        return bool(self.findings or self.clears)


@dataclass(slots=True)
class _Said:
    shape: str
    at_s: float


@dataclass(slots=True)
class Standing:
    """The findings of periodic checks that stand on this node."""

    reminder_s: float = 600.0
    _said: dict[Key, _Said] = field(default_factory=dict)
    _verdicts: dict[tuple[str, str], Verdict] = field(default_factory=dict)

    def judge(self, results: Iterable[Result], now_s: float) -> News:
        """Take in the results of one run of checks."""
        findings: list[Result] = []
        clears: list[tuple[str, str]] = []
        results = list(results)
        bad_now = {key_of(result) for result in results if result.bad}
        for result in results:
            self._verdicts[(result.check, result.component)] = result.verdict
            if result.bad and self._worth_saying(result, now_s):
                findings.append(result)
            elif result.verdict is Verdict.OK and self._settle(result, bad_now):
                clears.append((result.check, result.component))
        return News(tuple(findings), tuple(clears))

    def _worth_saying(self, result: Result, now_s: float) -> bool:
        shape = f"{result.verdict}/{result.severity}/{result.remedy}"
        said = self._said.get(key_of(result))
        if said is not None and said.shape == shape and now_s < said.at_s + self.reminder_s:
            return False
        self._said[key_of(result)] = _Said(shape, now_s)
        return True

    def _settle(self, result: Result, bad_now: set[Key]) -> bool:
        if any(key[:2] == (result.check, result.component) for key in bad_now):
            return False  # the same run also found something bad there: not a clean bill
        told = [key for key in self._said if key[:2] == (result.check, result.component)]
        for key in told:
            del self._said[key]
        return bool(told)

    @property
    def failing(self) -> tuple[str, ...]:
        """Ids of checks with a standing finding."""
        return tuple(sorted({key[0] for key in self._said}))

    @property
    def all_ok(self) -> bool:
        """Nothing stands, and every check that applies has answered OK."""
        return not self._said and all(v in (Verdict.OK, Verdict.SKIPPED) for v in self._verdicts.values())

    def dump(self) -> str:
        """What must survive a restart, so that a fault that ended meanwhile is still cleared."""
        return json.dumps([[*key, said.shape] for key, said in sorted(self._said.items())])

    def load(self, text: str | None) -> None:
        """Take up an earlier :meth:`dump`; standing findings are reported anew by their next run."""
        for check, component, code, shape in json.loads(text) if text else ():
            self._said[(check, component, code)] = _Said(str(shape), float("-inf"))


@dataclass(slots=True)
class Events:
    """Recent events (Xids), so that one that is told twice is reported once."""

    _seen_s: dict[Key, float] = field(default_factory=dict)

    def fresh(self, result: Result, at_s: float) -> bool:
        """Whether this event at ``at_s`` (when it happened) was not told within :data:`SAME_EVENT_S` already."""
        key = key_of(result)
        last_s = self._seen_s.get(key)
        if last_s is not None and abs(at_s - last_s) < SAME_EVENT_S:
            return False
        self._seen_s[key] = at_s
        if len(self._seen_s) > _EVENTS_KEPT:
            del self._seen_s[min(self._seen_s, key=self._seen_s.__getitem__)]
        return True
