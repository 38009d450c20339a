"""The Xid table (``xid.json``): what each code means and calls for, as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast_checks.result import Remedy, Severity


class XidClass(StrEnum):
    """Class of an Xid."""

    FATAL = "fatal"
    """The GPU or its work is lost."""
    DEGRADED = "degraded"
    """The GPU works on; repair it when its job ends."""
    APP = "app"
    """The application's own fault, or one that affects only its job."""
    CONSEQUENCE = "consequence"
    """Follows another fault; never opens an incident."""
    STATE = "state"
    """Announces a state that another check reads from the hardware; that check decides."""
    ORDER = "order"
    """The driver's own verdict (154): the number in the line decides."""
    NVLINK = "nvlink"
    """NVLink 5: acts only where the line says Fatal."""
    PAGE = "page"
    """No known repair; an operator should check."""
    LOG = "log"
    """Recorded and watched."""
    UNKNOWN = "unknown"
    """Not in the table: recorded, never acted upon."""


@dataclass(frozen=True, slots=True)
class Xid:
    """One row of the table."""

    code: int
    meaning: str
    kind: XidClass
    severity: Severity
    remedy: Remedy
    note: str = ""


def lookup(code: int) -> Xid:
    """The row of a code; an unknown one is a warning without a remedy."""
    found = table().get(code)
    return found or Xid(code, "not in the catalogue", XidClass.UNKNOWN, Severity.WARNING, Remedy.NONE)


CLASS_TEXT = {
    XidClass.FATAL: "the GPU or its work is lost",
    XidClass.DEGRADED: "the GPU works on; repair it when its job ends",
    XidClass.APP: "the application's own fault, or one that only its job feels",
    XidClass.CONSEQUENCE: "follows another fault; never opens an incident",
    XidClass.STATE: "news of a state that another check reads from the hardware; that check decides",
    XidClass.ORDER: "the driver's own verdict; the number in the line decides",
    XidClass.NVLINK: "acts only where the line says Fatal, otherwise a warning",
    XidClass.PAGE: "not well understood; an operator should check it",
    XidClass.LOG: "recorded and watched",
    XidClass.UNKNOWN: "not in the table",
}
"""Each class in half a sentence."""


@cache
def table() -> dict[int, Xid]:
    """All rows by code."""
    return {row["code"]: _row(row) for row in _document()["xids"]}


def source() -> str:
    """Where the table comes from."""
    return str(_document()["source"])


def _document() -> dict[str, Any]:
    text = files("holdfast_checks.catalog").joinpath("xid.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _row(row: dict[str, str]) -> Xid:
    return Xid(
        code=int(row["code"]),
        meaning=row["meaning"],
        kind=XidClass(row["class"]),
        severity=Severity(row["severity"]),
        remedy=Remedy(row["remedy"]),
        note=row.get("note", ""),
    )


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """The driver's own verdict on a GPU: NVML field 230, and the numbers of Xid 154."""

    number: int
    meaning: str
    severity: Severity | None
    """None: no fault."""
    remedy: Remedy


_RECOVERY_ACTIONS = {
    action.number: action
    for action in (
        RecoveryAction(0, "none", None, Remedy.NONE),
        RecoveryAction(1, "reset the GPU", Severity.FATAL, Remedy.RESET_GPU),
        RecoveryAction(2, "reboot the node", Severity.FATAL, Remedy.REBOOT),
        RecoveryAction(3, "drain peer-to-peer traffic", Severity.DEGRADED, Remedy.RESET_GPU),
        RecoveryAction(4, "drain and reset the GPU", Severity.DEGRADED, Remedy.RESET_GPU),
        RecoveryAction(5, "recover the IMEX domain", Severity.DEGRADED, Remedy.HUMAN),
        RecoveryAction(6, "reset the bus", Severity.FATAL, Remedy.REBOOT),
        RecoveryAction(7, "reboot the system", Severity.FATAL, Remedy.REBOOT),
    )
}


def recovery_action(number: int) -> RecoveryAction:
    """What a recovery action calls for. A number that NVML has not defined yet is a warning and is never acted upon."""
    known = _RECOVERY_ACTIONS.get(number)
    return known or RecoveryAction(number, "not known to this version", Severity.WARNING, Remedy.NONE)
