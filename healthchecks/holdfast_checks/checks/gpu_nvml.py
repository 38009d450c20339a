"""``gpu.nvml``: the driver answers NVML. A hang is a separate finding, once it repeats."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.registry import (
    Check,
    Context,
    Cost,
    Need,
    NotApplicable,
    NotGathered,
    Threshold,
    expected_gpus,
    without_gpus,
)
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import (
    NVML_DRIVER_NOT_LOADED,
    NVML_LIB_RM_VERSION_MISMATCH,
    NVML_LIBRARY_NOT_FOUND,
    NvmlFailure,
    Snapshot,
)

CHECK_ID = "gpu.nvml"
HANG_MISSES = 3

_FAULTS = {
    NVML_LIB_RM_VERSION_MISMATCH: ("mismatch", "library and driver are of different versions", Remedy.REBOOT),
    NVML_DRIVER_NOT_LOADED: ("driver", "the driver is not loaded", Remedy.REBOOT),
    NVML_LIBRARY_NOT_FOUND: ("library", "NVML's library is not installed", Remedy.HUMAN),
}
"""Reported once."""

_REPEATED_FAULTS = {
    4: ("permission", "NVML may not be asked: no permission", Remedy.HUMAN),
    8: ("power", "a GPU has no external power", Remedy.HUMAN),
    11: ("irq", "a GPU's interrupts do not arrive", Remedy.REBOOT),
    13: ("symbol", "NVML's library lacks a function that every driver has", Remedy.HUMAN),
    14: ("inforom", "a GPU has a corrupted infoROM", Remedy.REBOOT),
    15: ("lost", "NVML does not start: a GPU is lost", Remedy.REBOOT),
    16: ("reset", "NVML does not start: a GPU must be reset", Remedy.REBOOT),
    17: ("system", "the operating system blocks NVML", Remedy.REBOOT),
    999: ("unknown", "the driver answers with an unknown error", Remedy.REBOOT),
}
"""Return codes that may pass: as many misses in a row as make a hang. Any other failure that repeats is a warning."""


@dataclass(frozen=True, slots=True)
class GpuNvmlFacts:
    """NVML's answer, whether GPUs are expected here, and how many misses make a hang."""

    answer: Snapshot | NvmlFailure
    gpus_expected: bool
    hang_misses: int = HANG_MISSES


def gather(context: Context) -> GpuNvmlFacts:
    """Raises NotApplicable on a node without GPUs and without NVML."""
    answer = context.nvml
    if answer is None:
        raise NotGathered("NVML was not asked")
    expected = bool(expected_gpus(context.settings) or context.inventory.gpus)
    if without_gpus(context):
        raise NotApplicable("this node has neither GPUs nor NVML")
    return GpuNvmlFacts(answer, expected, context.settings.nvml_hang_misses)


def judge(facts: GpuNvmlFacts) -> tuple[Result, ...]:
    """Degraded at most: running jobs may continue; a job that needs the driver fails anyway."""
    answer = facts.answer
    if isinstance(answer, Snapshot):
        return (Result.ok(CHECK_ID, summary=f"driver {answer.driver_version}", sticky=True),)
    if answer.hang and answer.misses >= facts.hang_misses:
        return (_finding("hang", f"NVML hangs: no answer {answer.misses} times in a row", Remedy.REBOOT, answer),)
    if answer.code in _FAULTS and facts.gpus_expected:
        code, summary, remedy = _FAULTS[answer.code]
        return (_finding(code, summary, remedy, answer),)
    if not answer.hang and answer.misses >= facts.hang_misses and facts.gpus_expected:
        return (_repeated(answer),)
    return (Result.unknown(CHECK_ID, summary=answer.text, sticky=True),)


def _repeated(answer: NvmlFailure) -> Result:
    known = _REPEATED_FAULTS.get(answer.code) if answer.code is not None else None
    if known is not None:
        code, summary, remedy = known
        return _finding(code, summary, remedy, answer)
    summary = f"NVML fails {answer.misses} times in a row: {answer.text}"
    return _finding("failing", summary[:300], Remedy.NONE, answer, Severity.WARNING)


def _finding(
    code: str, summary: str, remedy: Remedy, failure: NvmlFailure, severity: Severity = Severity.DEGRADED
) -> Result:
    return Result.finding(
        CHECK_ID,
        severity,
        remedy,
        code=code,
        summary=summary,
        evidence={"text": failure.text, "misses": failure.misses},
        sticky=True,
    )


CHECK = Check(
    id=CHECK_ID,
    title="NVML answers",
    needs=frozenset({Need.NVML}),
    interval_s=15,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    observe=False,
    thresholds=(
        Threshold("misses, or failures, in a row", HANG_MISSES, "requests", "NVSentinel's watchdog: 3 intervals"),
    ),
)
