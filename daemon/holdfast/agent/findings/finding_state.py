"""Open findings of the node, and the changes to report after a new result. Pure: time is an argument.

Only an OK of the same check for the same component clears a finding; UNKNOWN and SKIPPED change nothing. A finding is reported again
only when it changed or as a reminder. A dump that cannot be read is logged in one line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.agent.findings.flaps import Flaps
from holdfast.agent.findings.trust import Weighed
from holdfast.agent.timing.schedule import Hysteresis
from holdfast_checks.result import Grade, Result, Severity, Verdict

log = logging.getLogger(__name__)

FindingKey = tuple[str, str, str]


def key_of(result: Result) -> FindingKey:
    """Check, component, code: what makes two results the same fault."""
    return (result.check, result.component, result.code)


@dataclass(frozen=True, slots=True)
class News:
    """Changes to report now."""

    findings: tuple[Weighed, ...] = ()
    clears: tuple[tuple[str, str], ...] = ()
    """(check, component)."""

    def __bool__(self) -> bool:
        return bool(self.findings or self.clears)


@dataclass(slots=True)
class _Said:
    grade: Grade
    at_s: float


@dataclass(slots=True)
class OpenFindings:
    """Open findings of periodic checks on this node."""

    reminder_s: float = 600.0
    expected: frozenset[str] = frozenset()
    """Ids of the checks that must answer before the node counts as all OK."""
    off: frozenset[str] = frozenset()
    """Ids of checks that are switched off: their open findings are kept, so that an OK clears them once they run again, and not named."""
    _said: dict[FindingKey, _Said] = field(default_factory=dict)
    _passed: dict[str, bool] = field(default_factory=dict)
    """Check → whether its latest run was all OK (or nothing applied)."""
    _readings: dict[FindingKey, Hysteresis] = field(default_factory=dict)
    _flaps: Flaps = field(default_factory=Flaps)

    def judge(self, run: Iterable[Weighed], now_s: float, hysteresis: tuple[int, int] = (1, 1)) -> News:
        """Process the results of one run of one check."""
        run = list(run)
        results = [weighed.result for weighed in run]
        for check in {result.check for result in results}:
            fine = (result.verdict in (Verdict.OK, Verdict.SKIPPED) for result in results if result.check == check)
            self._passed[check] = all(fine)
        findings: list[Weighed] = []
        clears: list[tuple[str, str]] = []
        bad_now = {key_of(result)[:2] for result in results if result.bad}
        for weighed in run:
            result = weighed.result
            if result.grade is not None:
                if self._counts(result, hysteresis) and self._worth_saying(result, result.grade, now_s):
                    findings.append(weighed)
            elif result.verdict is Verdict.OK and key_of(result)[:2] not in bad_now and self._all_good(result):
                clears += self._settle(result, now_s)
        return News(tuple(findings), tuple(clears))

    def _counts(self, result: Result, hysteresis: tuple[int, int]) -> bool:
        """Whether a bad reading counts by now; for the other faults of its component it is a good reading."""
        key = key_of(result)
        if hysteresis == (1, 1):
            return True
        self._readings.setdefault(key, Hysteresis(*hysteresis))
        return [readings.add(other == key) for other, readings in self._of(result)][-1] is True

    def _of(self, result: Result) -> list[tuple[FindingKey, Hysteresis]]:
        """Readings of the result's component, its own fault last."""
        key = key_of(result)
        found = [(other, readings) for other, readings in self._readings.items() if other[:2] == key[:2]]
        return sorted(found, key=lambda each: each[0] == key)

    def _all_good(self, result: Result) -> bool:
        """Whether an OK is accepted by now."""
        believed = [readings.add(False) is False for _key, readings in self._of(result)]
        return all(believed)

    def _worth_saying(self, result: Result, grade: Grade, now_s: float) -> bool:
        said = self._said.get(key_of(result))
        if said is None:
            self._flaps.turned_bad(key_of(result), now_s)
        else:
            self._flaps.still_bad(key_of(result))
        if said is not None and said.grade == grade and now_s < said.at_s + self.reminder_s:
            return False
        self._said[key_of(result)] = _Said(grade, now_s)
        return True

    def _settle(self, result: Result, now_s: float) -> list[tuple[str, str]]:
        """Clear the reported findings of the component; if it flaps, only once its OK has lasted."""
        place = (result.check, result.component)
        told = [key for key in self._said if key[:2] == place]
        believed = [self._flaps.believed(key, now_s) for key in told]  # for each: it records since when
        if not all(believed):
            return []
        for key in told:
            del self._said[key]
        return [place] if told else []

    @property
    def failing(self) -> tuple[str, ...]:
        """Ids of checks with an open finding."""
        return tuple(sorted({key[0] for key in self._said} - self.off))

    @property
    def fatal(self) -> tuple[str, ...]:
        """Open fatal findings, as ``check component code``."""
        grave = (key for key, said in self._said.items() if said.grade.severity is Severity.FATAL)
        told = sorted(key for key in grave if key[0] not in self.off)
        return tuple(" ".join(filter(None, key)) for key in told)

    @property
    def all_ok(self) -> bool:
        """Whether no finding is open and every check that applies has answered OK."""
        return not self.failing and all(self._passed.get(check, False) for check in self.expected - self.off)

    def dump(self) -> str:
        """State that must survive a restart, so that a fault that ended meanwhile is still cleared."""
        told = sorted((key, said.grade) for key, said in self._said.items())
        return json.dumps([[*key, f"{grade.verdict}/{grade.severity}/{grade.remedy}"] for key, grade in told])

    def load(self, text: str | None) -> None:
        """Load an earlier :meth:`dump`; open findings are reported again by their next run. Unreadable parts are left out: a fault that is
        still there is found again, one that has gone is not cleared."""
        try:
            kept = json.loads(text) if text else []
        except (ValueError, RecursionError) as error:
            kept = str(error)
        read = [entry for entry in kept if _is_entry(entry)] if isinstance(kept, list) else []
        if not isinstance(kept, list) or len(read) < len(kept):
            do = "nothing on this node; an incident that stays open for one of them is closed by an operator"
            log.error(
                "event=standing_unreadable read=%d text=%r effect='found again if there' do=%r",
                len(read),
                (text or "")[:200],
                do,
            )
        for check, component, code, words in read:
            self._said[(check, component, code)] = _Said(_grade(words), float("-inf"))


def _is_entry(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 4 and all(isinstance(word, str) for word in entry)


def _grade(words: str) -> Grade:
    """Parse ``failed/fatal/reboot``; a part that is missing or unknown to this release is read as the safe value."""
    verdict, severity, remedy = (*words.replace("None", "").split("/"), "", "")[
        :3
    ]  # None: written by an earlier release
    return Grade.read(verdict, severity, remedy) or Grade.of(Severity.WARNING)
