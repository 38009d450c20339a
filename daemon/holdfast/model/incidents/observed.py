"""Severity and remedy that the finding of an observing check would have had. Standard library only.

Agent and controller use a type; on the wire and in stored rows it is keys of a finding's evidence: ``observe``, ``would_severity``,
``would_remedy``, and ``recorded_only`` where the finding would not count in full either if its check acted. Only this module writes
and reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast_checks.result import Grade, Remedy, Scalar, Severity
from holdfast_checks.words import known

_OBSERVE, _SEVERITY, _REMEDY, _RECORDED = "observe", "would_severity", "would_remedy", "recorded_only"
_KEYS = frozenset({_OBSERVE, _SEVERITY, _REMEDY, _RECORDED})


class WouldBe(NamedTuple):
    """Severity and remedy that a finding would have if its check did not only observe."""

    severity: Severity
    remedy: Remedy


def with_would_be(
    evidence: Mapping[str, Scalar], would: Grade | None, *, recorded_only: bool = False
) -> dict[str, Scalar]:
    """Evidence as the wire carries it. ``would`` None: the finding counts in full. ``recorded_only``: it does not, whether or not its
    check acts. The keys are never a check's own."""
    own = {key: value for key, value in evidence.items() if key not in _KEYS}
    if would is None:
        return own
    said: dict[str, Scalar] = {_OBSERVE: True, _SEVERITY: would.severity.value, _REMEDY: would.remedy.value}
    return own | said | ({_RECORDED: True} if recorded_only else {})


def never_in_full(evidence: Mapping[str, Scalar]) -> bool:
    """Whether the finding would not count in full either if its check acted, as its agent reports it."""
    return evidence.get(_OBSERVE) is True and evidence.get(_RECORDED) is True


def would_be(evidence: Mapping[str, Scalar], severity: Severity, remedy: Remedy) -> WouldBe | None:
    """Value read from the wire's evidence; None: the finding counts in full.

    ``severity`` and ``remedy``: the finding's own, where the evidence names none that this release knows."""
    if evidence.get(_OBSERVE) is not True:
        return None
    named, wanted = evidence.get(_SEVERITY), evidence.get(_REMEDY)
    return WouldBe(known(Severity, named) or severity, known(Remedy, wanted) or remedy)
