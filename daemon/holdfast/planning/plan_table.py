"""A table of results that programs and people can read. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

Cell = float | int | str | None


@dataclass(frozen=True, slots=True)
class PlanTable:
    """One table; units are part of the columns' names."""

    name: str
    """For programs; it does not change."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    """Formula, source, and what the numbers leave out."""


def shown(cell: Cell) -> str:
    """For people: four digits that matter, thousands apart."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return shown_number(cell)
    return f"{cell:,}" if isinstance(cell, int) else cell


def shown_number(value: float) -> str:
    if math.isinf(value):
        return "never"
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if abs(value) < 1000 else 0
    return f"{value:,.{min(digits, 6)}f}"


def percent(rate_per_hour: float) -> str:
    """A rate per node-hour as ``0.05 %/h``."""
    return f"{rate_per_hour * 100:.4g} %/h"
