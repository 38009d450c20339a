"""The table of other tools' checks and ours: no row is empty without a reason, and none names a check that does not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_checks.coverage import CoverageRow, render, table, tools
from holdfast_checks.known import all_checks

CUSTOM = "custom."
ROWS = [pytest.param(row, id=row.what) for row in table()]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_a_check_or_a_reason(row: CoverageRow) -> None:
    assert row.ours or row.why
    assert set(row.ours) <= all_checks().keys()
    assert len(set(row.ours)) == len(row.ours)
    assert row.theirs.keys() <= tools().keys()
    assert all(row.theirs.values())
    assert row.what
    assert row.ours or row.theirs, "no tool checks it"


def test_every_check_of_ours_is_in_the_table() -> None:
    named = {name for row in table() for name in row.ours}
    assert sorted(name for name in all_checks().keys() - named if not name.startswith(CUSTOM)) == []


def test_no_row_twice_and_every_tool_in_some() -> None:
    assert len({row.what for row in table()}) == len(table())
    assert {tool for row in table() for tool in row.theirs} == set(tools())
    groups = [row.group for row in table()]
    assert groups == sorted(groups, key=list(dict.fromkeys(groups)).index), "the rows of a group stand together"


def test_rows_with_a_reason_alone_are_few() -> None:
    without = [row.what for row in table() if not row.ours]
    assert len(without) <= len(table()) // 5, without


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "coverage.md"
    assert page.read_text(encoding="utf-8") == render(), "run: ./dev docs"
