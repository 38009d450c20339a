"""The kernel's clock state (adjtimex), read and never changed. Standard library only."""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.registry import NotGathered

STA_UNSYNC = 0x40
_STA_NANO = 0x2000
TIME_ERROR = 5
"""adjtimex's return value for a clock that is not synchronised."""


@dataclass(frozen=True, slots=True)
class ClockState:
    """What adjtimex(2) says."""

    state: int
    """Its return value: 0 (TIME_OK) … 5 (TIME_ERROR)."""
    status: int
    """The STA_… bits."""
    offset_s: float
    """What ntpd or systemd-timesyncd still has to slew; chronyd leaves it 0."""
    max_error_s: float
    """Upper bound of the error; grows by 0.5 ms a second until the time service corrects it."""


class _Timex(ctypes.Structure):
    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    ]


def clock_state(file: Path | None = None) -> ClockState:
    """Ask the kernel (or a file that stands for it). Raises NotGathered."""
    return _asked() if file is None else _read(file)


def _asked() -> ClockState:
    timex = _Timex()  # modes 0: nothing is set
    call = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)
    if call is None:
        raise NotGathered("the C library has no adjtimex")
    state = call(ctypes.byref(timex))
    if state < 0:
        raise NotGathered(f"adjtimex: error {ctypes.get_errno()}")
    unit_s = 1e-9 if timex.status & _STA_NANO else 1e-6
    return ClockState(state, timex.status, timex.offset * unit_s, timex.maxerror * 1e-6)


def _read(file: Path) -> ClockState:
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        return ClockState(int(raw["state"]), int(raw["status"]), float(raw["offset_s"]), float(raw["max_error_s"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotGathered(f"{file}: {error}") from error
