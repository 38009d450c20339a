"""Tolerant parser for outbox rows read back from disk: another release or a bad disk may have written one."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_checks.result import Remedy, Severity, Verdict

COLUMNS = "seq, boot_id, monotonic_s, wall_s, size, body, report, key"
CANNOT_BE_READ = "its record in the agent's memory cannot be read"
DO = (
    "an agent of the release that wrote it may read it; else nothing is left to do on this node:"
    " DELETE FROM items WHERE lane = 2 in agent.db ends this notice"
)


@dataclass(frozen=True, slots=True)
class KeptItem:
    """One waiting item. Only its body is required; an invalid time counts as now."""

    seq: int
    boot_id: str
    monotonic_s: float
    wall_s: float
    size: int
    body: Mapping[str, Any] | None
    """None: it cannot be read."""
    report: int | None
    """Number of the sealed report that contains it."""
    key: str

    @classmethod
    def read(cls, row: Any, boot_id: str) -> KeptItem:
        """Parse a row. ``boot_id``: of this boot, for a row without one."""
        seq, of_boot, monotonic_s, wall_s, size, body, report, key = row
        placed = is_placed(of_boot, monotonic_s)
        return cls(
            seq=seq,
            boot_id=of_boot if placed else boot_id,
            monotonic_s=_number(monotonic_s) or 0.0 if placed else time.monotonic(),
            wall_s=_number(wall_s) or time.time(),
            size=whole(size),
            body=_object(body),
            report=report if isinstance(report, int) else None,
            key=key if isinstance(key, str) else "",
        )

    def wire(self, boot_id: str) -> dict[str, Any]:
        """The wire item with its current age. ``boot_id``: of this boot, whose monotonic clock is running."""
        age_s = time.monotonic() - self.monotonic_s if self.boot_id == boot_id else time.time() - self.wall_s
        return {**(self.body or {}), "age_s": round(max(0.0, age_s), 4)}


def instead(key: str) -> dict[str, Any] | None:
    """Replacement finding for a fault whose item cannot be read, for an operator. None: the row was not about a fault."""
    kind, _, rest = key.partition("/")
    check, _, rest = rest.partition("/")
    component, _, code = rest.rpartition("/")  # a component may hold a slash
    if kind != "finding" or not check:
        return None
    return {
        "kind": "finding",
        "check": check,
        "component": component,
        "code": code,
        "verdict": Verdict.DEGRADED.value,
        "severity": Severity.DEGRADED.value,
        "remedy": Remedy.HUMAN.value,
        "summary": CANNOT_BE_READ,
    }


def is_placed(of_boot: object, monotonic_s: object) -> bool:
    """Whether the row has a valid time: the boot, and the time within it."""
    return isinstance(of_boot, str) and of_boot != "" and _number(monotonic_s) is not None


def whole(value: object) -> int:
    """A size in bytes; 0 for an invalid value."""
    return value if isinstance(value, int) and value > 0 else 0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _object(body: object) -> dict[str, Any] | None:
    """The item if it has a kind."""
    try:
        found = json.loads(body) if isinstance(body, str) else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("kind"), str) else None
