"""Marks that a test file's text decides, so that a file of which no test can be selected by ``-m`` is not imported.

Every process of pytest-xdist imports all files that it collects, and with them what they import.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_SIMULATED = re.compile(r"^from support\.simulated[\w.]* import .*\b[A-Za-z]\w*[a-z]", re.MULTILINE)
"""Names that do more than constants, which are in capitals: with constants alone a test runs no control loop."""
_ALL_OF_IT = re.compile(r"^pytestmark = (\[.*?\]$|.*?$)", re.MULTILINE | re.DOTALL)
_LISTED = re.compile(r"(?:^pytestmark = \[?|^    |, )pytest\.mark\.(\w+)", re.MULTILINE)
SAMPLED = "sampled"
"""Mark of a test whose cases are in part for the soak alone (``support/sampling.py``)."""
_NAMED_IN_THE_FILE = {"slurm": ("mark.slurm",), "soak": ("mark.soak", f"mark.{SAMPLED}")}
"""Marks that tests get only from the text of their file, with the texts; others may come from a fixture or its parameters."""


@functools.cache
def of_file(path: Path) -> Mapping[str, bool]:
    """By mark: whether all of this file's tests have it, or none. A mark that is not listed is known only after the import."""
    text = path.read_text(encoding="utf-8")
    found = {name: False for name, texts in _NAMED_IN_THE_FILE.items() if not any(each in text for each in texts)}
    if (listed := _ALL_OF_IT.search(text)) is not None:
        found |= dict.fromkeys(_LISTED.findall(listed[0]), True)
    if _SIMULATED.search(text) is not None:
        found["loop"] = True
    return found


def selects_none(expression: str, known: Mapping[str, bool]) -> bool:
    """Whether ``-m`` with this expression selects no test of a file of which these marks are known."""
    try:
        return bool(expression) and _holds(ast.parse(expression.strip(), mode="eval").body, known) is False
    except SyntaxError:
        return False  # pytest says what is wrong with it


def contradicted(known: Mapping[str, bool], marks: Iterable[str]) -> list[str]:
    """Marks that the file's text declares but its tests do not have, or the reverse."""
    its_own = set(marks)
    return [name for name, has in known.items() if has != (name in its_own)]


def _holds(part: ast.expr, known: Mapping[str, bool]) -> bool | None:
    """None: not known."""
    match part:
        case ast.Name(id=name):
            return known.get(name)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            holds = _holds(operand, known)
            return None if holds is None else not holds
        case ast.BoolOp(op=op, values=values):
            decisive = isinstance(op, ast.Or)
            parts = [_holds(value, known) for value in values]
            return decisive if decisive in parts else None if None in parts else not decisive
        case _:
            return None
