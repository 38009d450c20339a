"""Rows for spreadsheets."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Sequence

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_FORMULA = ("=", "+", "-", "@")


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write CSV with a head. A text that a spreadsheet would take for a formula begins with an apostrophe."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(each) for each in row] for row in rows)


def cell(value: object) -> str:
    text = "" if value is None else _CONTROL.sub(" ", str(value))
    number = isinstance(value, int | float)
    return f"'{text}" if text.startswith(_FORMULA) and not number else text
