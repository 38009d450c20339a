"""Machine checks and memory errors of the host."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_checks.kernel.rule import LineMeaning, rule, weighed
from holdfast_checks.result import Remedy, Severity

MACHINE_CHECK = "kernel.machine_check"
EDAC = "kernel.edac"

_UNCORRECTED = 1 << 61
"""MCi_STATUS.UC (Intel SDM volume 3, chapter 16; AMD APM volume 2, chapter 9)."""
_LOST_CONTEXT = 1 << 57
"""MCi_STATUS.PCC: what the CPU was doing cannot be trusted any more."""


def _bank(groups: Mapping[str, str]) -> LineMeaning:
    status = int(groups["status"], 16)
    bits = (("uncorrected", bool(status & _UNCORRECTED)), ("context_lost", bool(status & _LOST_CONTEXT)))
    if not status & _UNCORRECTED:
        return LineMeaning("corrected", Severity.WARNING, Remedy.NONE, "CPU {cpu} corrected an error", "cpu{cpu}", bits)
    what = "CPU {cpu}: uncorrected machine check in bank {bank}"
    return LineMeaning("uncorrected", Severity.FATAL, Remedy.STOP_START, what, "cpu{cpu}", bits)


def _amd(groups: Mapping[str, str]) -> LineMeaning:
    if groups["kind"] in ("Corrected error", "Deferred error"):
        return LineMeaning("corrected", Severity.WARNING, Remedy.NONE, "machine check: {kind}")
    return LineMeaning("uncorrected", Severity.FATAL, Remedy.STOP_START, "machine check: {kind}")


def _firmware(groups: Mapping[str, str]) -> LineMeaning | None:
    match groups["kind"]:
        case "fatal":
            return LineMeaning(
                "firmware_fatal", Severity.FATAL, Remedy.STOP_START, "the firmware reports a fatal error"
            )
        case "recoverable":
            return LineMeaning("firmware_recoverable", Severity.WARNING, Remedy.HUMAN, "the firmware reports an error")
        case "corrected":
            return LineMeaning("firmware_corrected", Severity.WARNING, Remedy.NONE, "the firmware corrected an error")
        case _:
            return None


def _page(groups: Mapping[str, str]) -> LineMeaning:
    if groups["outcome"] in ("Recovered", "Delayed"):
        return LineMeaning("memory_failure", Severity.DEGRADED, Remedy.STOP_START, "a page of memory broke: {outcome}")
    return LineMeaning("memory_failure", Severity.FATAL, Remedy.STOP_START, "a page of memory broke: {outcome}")


def _edac(groups: Mapping[str, str]) -> LineMeaning:
    if groups["kind"] == "UE":
        return LineMeaning("ue", Severity.FATAL, Remedy.STOP_START, "uncorrectable memory error on {label}", "{label}")
    # Flap control decides how many are too many: each DIMM is a separate component.
    return LineMeaning("ce", Severity.WARNING, Remedy.NONE, "{count} corrected memory errors on {label}", "{label}")


MEMORY_RULES = (
    weighed(
        MACHINE_CHECK,
        r"(?:mce: )?\[Hardware Error\]: CPU (?P<cpu>\d{1,5}): Machine Check(?: Exception)?: [0-9a-f]{1,16} "
        r"Bank (?P<bank>\d{1,4}): (?P<status>[0-9a-f]{16})\b",
        _bank,
    ),
    weighed(
        MACHINE_CHECK,
        r"(?:mce: )?\[Hardware Error\]: (?P<kind>Corrected error|Deferred error|Uncorrected, software (?:restartable|containable) error"
        r"|System Fatal error|Uncorrected error)\b",
        _amd,
    ),
    rule(
        MACHINE_CHECK,
        r"mce: \[Hardware Error\]: Machine check events logged",
        "logged",
        Severity.WARNING,
        Remedy.NONE,
        "the CPUs logged machine checks",
    ),
    weighed(
        MACHINE_CHECK,
        r"\{\d{1,6}\}\[Hardware Error\]: event severity: (?P<kind>fatal|recoverable|corrected|info)$",
        _firmware,
    ),
    weighed(
        MACHINE_CHECK,
        r"Memory failure: 0x(?P<page>[0-9a-f]{1,16}): recovery action for [\w -]{1,60}: (?P<outcome>Recovered|Delayed|Failed|Ignored)\b",
        _page,
    ),
    weighed(
        EDAC,
        r"EDAC MC(?P<controller>\d{1,4}): (?P<count>\d{1,9}) (?P<kind>CE|UE) (?:[A-Za-z][\w ,./-]{0,80} )?on "
        r"(?P<label>[\w#./-][\w#./ :-]{0,100}?) \((?:channel|csrow|branch|slot|page|memory|node|socket|card)\b",
        _edac,
    ),
)
