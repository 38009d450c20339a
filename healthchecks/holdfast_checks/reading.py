"""One number from NVML, or why there is none. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """One number from NVML, or why there is none."""

    value: int | None = None
    unsupported: bool = False
    """The driver or the hardware does not know it: never a fault, and apart from an error."""
    error: str = ""

    @classmethod
    def from_wire(cls, raw: Any) -> NvmlReading:
        """From the child's form: a number, ``{"u": 1}``, or ``{"e": code, "t": text}``; anything else is an error."""
        if isinstance(raw, int):
            return cls(value=int(raw))
        if isinstance(raw, Mapping) and raw.get("u"):
            return cls(unsupported=True)
        if isinstance(raw, Mapping) and "e" in raw:
            return cls(error=f"{raw.get('t', 'error')} ({raw['e']})")
        return cls(error="missing in the answer")


UNREAD = NvmlReading()
"""Not read yet."""
