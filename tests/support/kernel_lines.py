"""Lines of the kernel log in the kernel's own wording, and what each is read as (``tests/checks/captured/kernel``)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_CAPTURED = Path(__file__).parents[1] / "checks" / "captured" / "kernel"


class Line(NamedTuple):
    """A line and what it is read as."""

    check: str
    code: str
    component: str
    severity: str
    remedy: str
    text: str


def _faults() -> tuple[Line, ...]:
    rows = (_CAPTURED / "faults.tsv").read_text(encoding="utf-8").splitlines()
    return tuple(Line(*row.split("\t")) for row in rows if not row.startswith("#"))


LINES = _faults()
ORDINARY = (*(_CAPTURED / "ordinary.txt").read_text(encoding="utf-8").splitlines(), "", "N", "\x00\x01")
"""Lines that report no fault."""
