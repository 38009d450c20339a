"""Rows for spreadsheets."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence

from holdfast.cli.common.show import printable

_FORMULA = tuple("=+-@＝＋－＠")
"""Spreadsheets of some languages take the wide forms, too."""


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write CSV with a head. A text that a spreadsheet would take for a formula begins with an apostrophe."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(each) for each in row] for row in rows)


def cell(value: object) -> str:
    text = "" if value is None else printable(str(value), " ")
    number = isinstance(value, int | float)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) and not number else text
