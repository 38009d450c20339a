"""DCGM's error codes (``catalog/dcgm_errors.json``, from dcgm_errors.c of DCGM 4.6.0) and what each calls for here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from holdfast_checks.result import Remedy, Severity

ABORTED = "ABORTED"
"""The test was stopped by a signal: it has no result."""
SAYS_NOTHING = frozenset({ABORTED, "RETEST_REQUESTED"})
"""Errors after which a failed test is no evidence."""
NOT_APPLICABLE = frozenset(
    {"TEST_DISABLED", "TEST_SKIPPED", "ECC_UNSUPPORTED", "L1TAG_UNSUPPORTED", "CONCURRENT_GPUS", "EMPTY_GPU_LIST"}
)
"""The test has no subject on this GPU."""

SEVERITIES = {1: "monitor", 2: "isolate", 3: "unknown", 4: "triage", 5: "config", 6: "reset"}
"""dcgmErrorSeverity_t."""

_LOG = (Severity.WARNING, Remedy.NONE)
_PERSON = (Severity.DEGRADED, Remedy.HUMAN)
_RESET = (Severity.DEGRADED, Remedy.RESET_GPU)
_RESET_NOW = (Severity.FATAL, Remedy.RESET_GPU)
_REBOOT_NOW = (Severity.FATAL, Remedy.REBOOT)
_REPLACE_NOW = (Severity.FATAL, Remedy.REPLACE)

_BY_NAME: dict[str, tuple[Severity, Remedy]] = {
    # Other processes, settings and libraries of the node: the card has no fault.
    "GRAPHICS_PROCESSES": _LOG,
    "PERSISTENCE_MODE": _LOG,
    "BAD_CUDA_ENV": _LOG,
    # Read as states or events by separate checks (gpu.row_remap, gpu.xid), which decide.
    "UNCORRECTABLE_ROW_REMAP": _LOG,
    "XID_ERROR": _LOG,
    "CONTAINED_ERROR": (Severity.WARNING, Remedy.RESTART_JOB),
    # The software of the node that every job needs.
    "CUDA_FM_NOT_INITIALIZED": _PERSON,
    "FABRIC_MANAGER_TRAINING_ERROR": _PERSON,
    "FABRIC_PROBE_STATE": _PERSON,
    "DENYLISTED_DRIVER": _PERSON,
    "DEVICE_COUNT_MISMATCH": _PERSON,
    "CANNOT_OPEN_LIB": _PERSON,
    "NVML_LIB_BAD": _PERSON,
    "IMEX_UNHEALTHY": _PERSON,
    "PCIE_WIDTH": _PERSON,
    # Uncorrectable errors are what gpu.ecc reports too: repaired when the job ends.
    "VOLATILE_DBE_DETECTED": _RESET,
    "DBE_VIOLATION": _RESET,
    "DBE_THRESHOLD_VIOLATION": _RESET,
    "CUDA_DBE": _RESET,
    "SBE_VIOLATION": _LOG,
    "SBE_THRESHOLD_VIOLATION": _LOG,
    "UNCONTAINED_ERROR": _RESET_NOW,
    "NVLINK_ERROR_CRITICAL": _RESET,
    "NVLINK_ERROR_THRESHOLD": _RESET,
    "NVLINK_CRC_ERROR_THRESHOLD": _RESET,
    "NVLINK_DOWN": _RESET_NOW,
    "GPU_EXPECTED_NVLINKS_UP": _RESET_NOW,
    "NVSWITCH_FATAL_ERROR": _REBOOT_NOW,
    "SXID_ERROR": _REBOOT_NOW,
    "FALLEN_OFF_BUS": _REBOOT_NOW,
    # The driver's own verdict (facts 3.1), as gpu.recovery_action has it.
    "GPU_RECOVERY_RESET": _RESET_NOW,
    "GPU_RECOVERY_REBOOT": _REBOOT_NOW,
    "ROW_REMAP_FAILURE": _REPLACE_NOW,
    "UNCORRECTABLE_ROW_REMAP_LIMIT": (Severity.DEGRADED, Remedy.REPLACE),
    "RETIRED_PAGES_LIMIT": (Severity.DEGRADED, Remedy.REPLACE),
    "RETIRED_PAGES_DBE_LIMIT": (Severity.DEGRADED, Remedy.REPLACE),
    "EUD_TEST_FAILED": _REPLACE_NOW,
    "PCI_REPLAY_RATE": _PERSON,
    "PCIE_REPLAY_VIOLATION": _PERSON,
    "PCIE_REPLAY_THRESHOLD_VIOLATION": _PERSON,
    "PCIE_H_REPLAY_VIOLATION": _PERSON,
}

_TEXTS: tuple[tuple[str, str], ...] = (
    ("ROW_REMAP_FAILURE", r"row remapping failed"),
    ("PENDING_ROW_REMAP", r"row remappings are pending"),
    ("UNCORRECTABLE_ROW_REMAP_LIMIT", r"exceeded uncorrectable row remap limit"),
    ("UNCORRECTABLE_ROW_REMAP", r"rows were remapped"),
    ("FALLEN_OFF_BUS", r"fallen off the bus"),
    ("UNCONTAINED_ERROR", r"uncontained error"),
    ("CONTAINED_ERROR", r"\bcontained error"),
    ("GPU_RECOVERY_DRAIN_RESET", r"\(DRAIN_AND_RESET\)"),
    ("GPU_RECOVERY_DRAIN_P2P", r"\(DRAIN_P2P\)"),
    ("GPU_RECOVERY_REBOOT", r"\(NODE_REBOOT\)"),
    ("GPU_RECOVERY_RESET", r"\(GPU_RESET\)"),
    ("SRAM_THRESHOLD", r"SRAM Threshold Count exceeded"),
    ("VOLATILE_DBE_DETECTED", r"volatile double-bit ECC"),
    ("VOLATILE_SBE_DETECTED", r"single-bit ECC error"),
    ("DBE_PENDING_PAGE_RETIREMENTS", r"page retirements together with a DBE"),
    ("PENDING_PAGE_RETIREMENTS", r"pending retired page"),
    ("RETIRED_PAGES_DBE_LIMIT", r"retired pages due to DBEs"),
    ("RETIRED_PAGES_LIMIT", r"or more retired pages"),
    ("CORRUPT_INFOROM", r"corrupt InfoROM"),
    ("CLOCKS_EVENT_THERMAL", r"(clocks event|throttling) due to thermal"),
    ("CLOCKS_EVENT_POWER", r"(clocks event|throttling) due to power"),
    ("POWER_UNREADABLE", r"Cannot reliably read the power"),
    ("NVLINK_DOWN", r"NvLink link \d+ is currently down"),
    ("GPU_EXPECTED_NVLINKS_UP", r"NvLinks are up out of the expected"),
    ("NVLINK_ERROR_CRITICAL", r"NvLink errors .*should be 0"),
    ("NVLINK_CRC_ERROR_THRESHOLD", r"NvLink errors found occur?ing per second"),
    ("NVLINK_ERROR_THRESHOLD", r"NvLink errors .*exceeds\s+threshold"),
    ("NVLINK_EFFECTIVE_BER_THRESHOLD", r"effective BER"),
    ("NVLINK_SYMBOL_BER_THRESHOLD", r"symbol BER"),
    ("NVSWITCH_FATAL_ERROR", r"Detected fatal errors on NvSwitch"),
    ("NVSWITCH_NON_FATAL_ERROR", r"Detected nonfatal errors on NvSwitch"),
    ("PCI_REPLAY_RATE", r"PCIe replays per minute"),
    ("XID_ERROR", r"Detected XID \d+"),
    ("FABRIC_MANAGER_TRAINING_ERROR", r"Fabric Manager \("),
    ("FABRIC_PROBE_STATE", r"Fabric State is"),
    ("IMEX_UNHEALTHY", r"IMEX .* status is"),
)


@dataclass(frozen=True, slots=True)
class DcgmError:
    """One code, and what it calls for."""

    code: str
    """The number as text; of an error without one, its place (the test or the system)."""
    name: str
    """Without the prefix DCGM_FR_; empty: not in the table."""
    severity: Severity
    remedy: Remedy


def by_number(number: int, dcgm_severity: int | None = None) -> DcgmError:
    """``dcgm_severity``: what DCGM said of a code that is newer than the table; never trusted over it."""
    row = _table().get(number)
    if row is None:
        return DcgmError(str(number), "", *_of_kind(SEVERITIES.get(dcgm_severity or 0, "unknown"), ""))
    name, kind, category = row
    return DcgmError(str(number), name, *_BY_NAME.get(name, _of_kind(kind, category)))


def by_text(text: str, place: str) -> DcgmError:
    """An error of which DCGM gave the message alone (``dcgmi health``, and diag before 3.2); ``place`` names an unknown one."""
    for name, pattern in _TEXTS:
        if re.search(pattern, text, re.IGNORECASE):
            return by_number(_numbers()[name])
    return DcgmError(place, "", *_PERSON)


def _of_kind(kind: str, category: str) -> tuple[Severity, Remedy]:
    """awslabs' reading of DCGM's severities: isolate → replace, reset → reset, what needs triage goes to an operator."""
    if kind == "isolate":
        return _REPLACE_NOW if category.startswith("hardware") else _PERSON
    if kind == "reset":
        return _RESET
    if kind == "triage":
        return _LOG if category in ("software_other", "internal_other") else _PERSON
    return _LOG


@cache
def _table() -> dict[int, tuple[str, str, str]]:
    text = files("holdfast_checks.catalog").joinpath("dcgm_errors.json").read_text(encoding="utf-8")
    return {int(number): (name, kind, category) for number, (name, kind, category) in json.loads(text).items()}


@cache
def _numbers() -> dict[str, int]:
    return {row[0]: number for number, row in _table().items()}
