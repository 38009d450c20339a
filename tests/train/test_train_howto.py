"""The page that makes a loop elastic shows the difference between the shipped examples, all of it and short."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def code(name: str) -> list[str]:
    return (
        (ROOT / "training" / "examples" / f"{name}.py").read_text().splitlines()[1:]
    )  # without what it says of itself


def test_the_page_shows_the_whole_difference_and_it_is_short() -> None:
    page = (ROOT / "docs" / "how-to-elastic-loop.md").read_text()
    shown = re.findall(r"^```diff\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    marked = [line for line in shown.splitlines() if line[:1] in ("+", "-")]
    differ = list(difflib.unified_diff(code("plain"), code("elastic"), n=0, lineterm=""))[2:]
    assert marked == [line for line in differ if not line.startswith("@@")]
    assert 0 < sum(line.startswith("+") for line in marked) < 15
