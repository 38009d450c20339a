"""Weigh a result of one run: in full, as a warning, or not any more. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast_checks.cli.keep import KeptRuns
from holdfast_checks.cli.show import OK, WARNING, code_of
from holdfast_checks.registry import Check, Need
from holdfast_checks.result import Result, Severity, Verdict
from holdfast_checks.seen_right import SeenRight, recorded_only


@dataclass(frozen=True, slots=True)
class Counted:
    """A result, and what it counts for in the exit status."""

    result: Result
    code: int
    """Nagios exit code."""
    note: str = ""
    """Why it counts for less than it says."""

    @property
    def calls_for_service(self) -> bool:
        """The node is to be taken out of service: at once, or when its jobs end."""
        return self.result.bad and not self.note and self.result.severity in (Severity.FATAL, Severity.DEGRADED)


@dataclass(frozen=True, slots=True)
class Scales:
    """Who acts: as the agent of the same configuration would."""

    act_on: Sequence[str] = ()
    observe_only: Sequence[str] = ()
    seen_right: SeenRight = field(default_factory=SeenRight)
    """What earlier runs have seen in its place: as the agent does, one that never was is only recorded."""

    def acts(self, check: Check) -> bool:
        """Whether its findings count in full."""
        return check.acts(self.act_on, self.observe_only)


def weigh(check: Check, results: Sequence[Result], scales: Scales, kept: KeptRuns) -> list[Counted]:
    """The results of one run of one check. Records in ``kept`` what this run has seen."""
    if scales.seen_right.learn(results):
        kept.seen_right = scales.seen_right.dump()
    seen = {_place(result) for result in results if result.bad}
    _look(check, seen, kept)
    weighed = [_weigh(check, result, scales, kept) for result in results]
    if Need.KMSG in check.needs and all(result.verdict is not Verdict.UNKNOWN for result in results):
        kept.told = {name for name in kept.told if not name.startswith(f"{check.id} ")}
        kept.told |= {_event(result) for result in results if result.bad}
    return weighed


def _weigh(check: Check, result: Result, scales: Scales, kept: KeptRuns) -> Counted:
    code = code_of(result)
    if not result.bad or result.severity is Severity.WARNING:
        told = result.bad and Need.KMSG in check.needs and _event(result) in kept.told
        return Counted(result, OK if told else code, "reported before" if told else "")
    if Need.KMSG in check.needs and _event(result) in kept.told:
        return Counted(result, OK, "reported before")
    if not scales.acts(check):
        return Counted(result, WARNING, "observes")
    if place := scales.seen_right.unproven(result):
        return Counted(result, WARNING, recorded_only(place))
    k, n = check.hysteresis
    bad = sum(kept.looks.get(_place(result), [True]))
    if bad < k:
        return Counted(result, WARNING, f"bad in {bad} of the last {n} runs; counts from {k} on")
    return Counted(result, code)


def _look(check: Check, seen: set[str], kept: KeptRuns) -> None:
    """Count this run for everything that this check has ever found bad."""
    if check.hysteresis == (1, 1):
        return
    begun = {name for name in kept.looks if name.startswith(f"{check.id} ")}
    for name in begun | seen:
        looks = [*kept.looks.get(name, []), name in seen][-check.hysteresis[1] :]
        if any(looks):
            kept.looks[name] = looks
        else:
            kept.looks.pop(name, None)


def _place(result: Result) -> str:
    return f"{result.check} {result.component} {result.code}"


def _event(result: Result) -> str:
    """A line of the kernel log keeps its time in one boot."""
    return f"{_place(result)} {result.fault_monotonic_s}"
