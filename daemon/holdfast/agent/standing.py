"""Which findings stand, and what of a new result is worth reporting. Pure: time comes in as an argument.

Only an OK of the same check for the same component clears; UNKNOWN and SKIPPED change nothing; what has been said is said again
only when it changed or as a reminder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.agent.flaps import Flaps
from holdfast.agent.schedule import Hysteresis
from holdfast_checks.result import Result, Severity, Verdict

Key = tuple[str, str, str]


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
    expected: frozenset[str] = frozenset()
    """Ids of the checks that must answer before the node counts as all OK."""
    _said: dict[Key, _Said] = field(default_factory=dict)
    _passed: dict[str, bool] = field(default_factory=dict)
    """Check → whether its latest run found nothing but OK (or nothing that applies)."""
    _readings: dict[Key, Hysteresis] = field(default_factory=dict)
    _flaps: Flaps = field(default_factory=Flaps)

    def judge(self, results: Iterable[Result], now_s: float, hysteresis: tuple[int, int] = (1, 1)) -> News:
        """Take in the results of one run of one check."""
        results = list(results)
        for check in {result.check for result in results}:
            fine = (result.verdict in (Verdict.OK, Verdict.SKIPPED) for result in results if result.check == check)
            self._passed[check] = all(fine)
        findings: list[Result] = []
        clears: list[tuple[str, str]] = []
        bad_now = {key_of(result)[:2] for result in results if result.bad}
        for result in results:
            if result.bad:
                if self._counts(result, hysteresis) and self._worth_saying(result, now_s):
                    findings.append(result)
            elif result.verdict is Verdict.OK and key_of(result)[:2] not in bad_now and self._all_good(result):
                clears += self._settle(result, now_s)
        return News(tuple(findings), tuple(clears))

    def _counts(self, result: Result, hysteresis: tuple[int, int]) -> bool:
        """Whether a bad reading counts by now; for the other faults of its component it is a good one."""
        key = key_of(result)
        if hysteresis == (1, 1):
            return True
        self._readings.setdefault(key, Hysteresis(*hysteresis))
        return [readings.add(other == key) for other, readings in self._of(result)][-1] is True

    def _of(self, result: Result) -> list[tuple[Key, Hysteresis]]:
        """Readings of the result's component, its own fault last."""
        key = key_of(result)
        found = [(other, readings) for other, readings in self._readings.items() if other[:2] == key[:2]]
        return sorted(found, key=lambda each: each[0] == key)

    def _all_good(self, result: Result) -> bool:
        """Whether an OK is believed by now."""
        believed = [readings.add(False) is False for _key, readings in self._of(result)]
        return all(believed)

    def _worth_saying(self, result: Result, now_s: float) -> bool:
        shape = f"{result.verdict}/{result.severity}/{result.remedy}"
        said = self._said.get(key_of(result))
        if said is None:
            self._flaps.turned_bad(key_of(result), now_s)
        else:
            self._flaps.still_bad(key_of(result))
        if said is not None and said.shape == shape and now_s < said.at_s + self.reminder_s:
            return False
        self._said[key_of(result)] = _Said(shape, now_s)
        return True

    def _settle(self, result: Result, now_s: float) -> list[tuple[str, str]]:
        """What was told of the component is over; of one that flaps only once its OK has lasted."""
        place = (result.check, result.component)
        told = [key for key in self._said if key[:2] == place]
        believed = [self._flaps.believed(key, now_s) for key in told]  # of each: it notes since when
        if not all(believed):
            return []
        for key in told:
            del self._said[key]
        return [place] if told else []

    @property
    def failing(self) -> tuple[str, ...]:
        """Ids of checks with a standing finding."""
        return tuple(sorted({key[0] for key in self._said}))

    @property
    def fatal(self) -> tuple[str, ...]:
        """Fatal findings that stand, as ``check component code``."""
        told = sorted(key for key, said in self._said.items() if said.shape.split("/")[1:2] == [Severity.FATAL])
        return tuple(" ".join(filter(None, key)) for key in told)

    @property
    def all_ok(self) -> bool:
        """Nothing stands, and every check that applies has answered OK."""
        return not self._said and all(self._passed.get(check, False) for check in self.expected)

    def dump(self) -> str:
        """What must survive a restart, so that a fault that ended meanwhile is still cleared."""
        return json.dumps([[*key, said.shape] for key, said in sorted(self._said.items())])

    def load(self, text: str | None) -> None:
        """Take up an earlier :meth:`dump`; standing findings are reported anew by their next run."""
        for check, component, code, shape in json.loads(text) if text else ():
            self._said[(check, component, code)] = _Said(str(shape), float("-inf"))
