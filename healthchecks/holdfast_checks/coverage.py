"""Coverage of other tools' checks by ours (``catalog/coverage.json``): the table, and its page of the reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """One thing that a tool checks."""

    group: str
    what: str
    theirs: Mapping[str, str]
    """Tool → how it does it, with its default; a tool that does not is not there."""
    ours: tuple[str, ...]
    """Ids of our checks."""
    why: str
    """Why we have none, or how ours is meant."""


@cache
def tools() -> dict[str, str]:
    """Key of a tool → its name, in the order of the columns."""
    return dict(_raw()["tools"])


@cache
def table() -> tuple[CoverageRow, ...]:
    """Every row. Raises KeyError for a row without its words."""
    return tuple(
        CoverageRow(row["group"], row["what"], dict(row.get("tools", {})), tuple(row["ours"]), row.get("why", ""))
        for row in _raw()["rows"]
    )


def render() -> str:
    """The page as Markdown."""
    return "\n".join([*_head(), *_rows()]) + "\n"


def _head() -> Iterator[str]:
    filled = sum(bool(row.ours) for row in table())
    yield "# Coverage: other tools' checks and ours\n"
    yield "<!-- Written by docs/generate.py from the code; do not edit. -->\n"
    yield f"{filled} of the {len(table())} things that these tools look at have a check here; of the others the table says why not."
    yield "What ours do, with thresholds: [checks](checks.md).\n"
    yield f"Source: {_raw()['source']}. An empty cell of another tool: we found nothing there."


def _rows() -> Iterator[str]:
    group = ""
    for row in table():
        if row.group != group:
            group = row.group
            yield f"\n## {group}\n"
            yield f"| what | Holdfast | {' | '.join(tools().values())} |"
            yield "|---" * (2 + len(tools())) + "|"
        ours = ", ".join(f"`{name}`" for name in row.ours)
        cell = "; ".join(filter(None, (ours or "–", row.why)))
        yield _line(row.what, cell, *(row.theirs.get(tool, "") for tool in tools()))


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


@cache
def _raw() -> dict[str, Any]:
    text = files("holdfast_checks.catalog").joinpath("coverage.json").read_text(encoding="utf-8")
    raw: dict[str, Any] = json.loads(text)
    return raw
