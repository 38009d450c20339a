"""Guard the agent against an operator's own check: count its misbehaviours, and wrap a check from a Python package."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Any

from holdfast_checks.custom_answer import MOST_LINE, MOST_NAME, evidence, text
from holdfast_checks.registry import Check, Context, Cost, NotApplicable, NotGathered, SampleChange
from holdfast_checks.result import NODE_COMPONENT, Remedy, Result, Severity

log = logging.getLogger(__name__)

GROUP = "holdfast.checks"
"""Entry point group; each of its objects is a :class:`~holdfast_checks.registry.Check` whose id begins with ``custom.``."""
PREFIX = "custom."
DISABLED = "disabled"
"""Code of the finding that a check does not run any more."""
_PACKAGE_GIVES_UP_AFTER = 3


@dataclass(frozen=True, slots=True)
class CustomResults:
    """The facts of a custom check: results as they are."""

    results: tuple[Result, ...]


class CustomCheckTrust:
    """Counts misbehaviours in a row, and says when it is enough."""

    def __init__(self, check: str, limit: int) -> None:
        self.check, self.limit = check, limit
        self.last = ""
        self._count = 0

    @property
    def lost(self) -> bool:
        return self._count >= self.limit

    def kept(self) -> None:
        """It did what it should, or is another one now."""
        self._count = 0

    def hurt(self, reason: str) -> tuple[Result, ...]:
        """It misbehaved: UNKNOWN, or (the last time) that it is disabled."""
        self._count += 1
        self.last = reason
        if self.lost:
            log.error("event=custom_check_disabled check=%s misbehaviours=%d last=%r", self.check, self._count, reason)
            return self.sentence()
        log.warning("event=custom_check_misbehaved check=%s count=%d reason=%r", self.check, self._count, reason)
        return (Result.unknown(self.check, summary=reason[:240], sticky=True),)

    def sentence(self) -> tuple[Result, ...]:
        """The finding that it is disabled."""
        summary = f"disabled after {self._count} misbehaviours in a row, until its file changes or the agent restarts: {self.last}"
        return (
            Result.finding(
                self.check,
                Severity.WARNING,
                code=DISABLED,
                summary=summary[:240],
                evidence={"misbehaviours": self._count},
                sticky=True,
            ),
        )


def of_package(point: EntryPoint) -> Check:
    """A check from a Python package, wrapped so that it cannot harm the agent."""
    try:
        check = point.load()
        if not isinstance(check, Check) or not check.id.startswith(PREFIX):
            raise TypeError(f"{point.value} is no Check whose id begins with {PREFIX}")
    except (Exception, SystemExit) as fault:
        log.exception("event=custom_check_not_loaded entry_point=%s", point.value)
        return _broken(point, _said(fault))
    guard = _Guard(check)
    return replace(check, gather=guard.gather, judge=guard.judge)


def _broken(point: EntryPoint, reason: str) -> Check:
    name = re.sub(r"[^a-z0-9_-]", "-", point.name.lower())[:40]
    trust = CustomCheckTrust(f"{PREFIX}{name}", 1)
    trust.hurt(f"{point.value} cannot be loaded: {reason}")
    return Check(
        id=trust.check,
        title=f"Check of a package that cannot be loaded ({point.value})",
        needs=frozenset(),
        interval_s=300.0,
        cost=Cost.PASSIVE,
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        gather=lambda _context: CustomResults(trust.sentence()),
        judge=lambda told: told.results,
        observe=False,
    )


class _Guard:
    """Runs a package's check; what it raises is a misbehaviour."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._trust = CustomCheckTrust(check.id, _PACKAGE_GIVES_UP_AFTER)

    def gather(self, context: Context) -> Any:
        """The check's own facts; :class:`CustomResults` where it misbehaves or is disabled. Raises NotApplicable, NotGathered, OSError."""
        if self._trust.lost:
            return CustomResults(self._trust.sentence())
        return self._guarded(lambda: self._check.gather(context))

    def judge(self, facts: Any) -> tuple[Result, ...]:
        """The check's own results, or that it misbehaved."""
        if isinstance(facts, SampleChange):
            if isinstance(facts.now.facts, CustomResults):
                return facts.now.facts.results
            if facts.before is not None and isinstance(facts.before.facts, CustomResults):
                facts = replace(facts, before=None)
        if isinstance(facts, CustomResults):
            return facts.results
        judged = self._guarded(lambda: _checked(self._check, self._check.judge(facts)))
        if isinstance(judged, CustomResults):
            return judged.results
        self._trust.kept()
        found: tuple[Result, ...] = judged
        return found

    def _guarded(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (NotApplicable, NotGathered, OSError):
            raise
        except BaseException as fault:
            if isinstance(fault, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # a person at a terminal
            return CustomResults(self._trust.hurt(_said(fault)))


def _checked(check: Check, found: Any) -> tuple[Result, ...]:
    """Raises TypeError for what is not a tuple of this check's own results."""
    told = tuple(found)
    if not all(isinstance(result, Result) and result.check == check.id for result in told):
        raise TypeError("judge returned something else than results of this check")
    return tuple(_sound(result) for result in told)


def _sound(result: Result) -> Result:
    """As the agent can keep and send it: one printable line each, evidence without anything nested. Raises TypeError, Misbehaved."""
    for name, kind in (("gpu_uuid", str), ("gpu_minor", int), ("pci", str)):
        value = getattr(result, name)
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}, not {kind.__name__}")
    at_s = result.fault_monotonic_s
    if at_s is not None and not (isinstance(at_s, int | float) and math.isfinite(at_s)):
        raise TypeError(f"fault_monotonic_s is {at_s!r}, no number of seconds")
    return replace(
        result,
        component=text(result.component, "component")[:MOST_NAME] or NODE_COMPONENT,
        code=text(result.code, "code")[:MOST_NAME],
        summary=text(result.summary, "summary")[:MOST_LINE],
        evidence=evidence(dict(result.evidence)),
        consequence=bool(result.consequence),
        sticky=bool(result.sticky),
    )


def _said(fault: BaseException) -> str:
    try:
        return f"{type(fault).__name__}: {fault}"
    except Exception:  # noqa: BLE001 - its own __str__ raises
        return type(fault).__name__
