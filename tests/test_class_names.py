"""Each public class of the product has a unique name, so that a search for it, or for a name in a log, finds one place."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = (
    "daemon/holdfast",
    "healthchecks/holdfast_checks",
    "training/holdfast_checkpoint",
    "training/holdfast_train",
)
"""Packages that are installed. Not ``training/examples``: each of these programs is read, and copied, alone."""


def declared(source: str) -> Iterator[tuple[str, int]]:
    """Public classes, also within functions, and type aliases at the top level of a module, with their lines. A name that is imported is
    not declared."""
    module = ast.parse(source)
    inner = (n for n in ast.walk(module) if isinstance(n, ast.ClassDef) and n not in module.body)
    for node in (*module.body, *inner):
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name.isupper():  # a constant, or a type variable
                    continue
            case _:
                continue
        if name[0].isupper():
            yield name, node.lineno


def repeated(sources: Iterable[tuple[str, str]]) -> list[str]:
    """One line for each name that more than one place declares."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, source in sources:
        for name, line in declared(source):
            places[name].append(f"{path}:{line}")
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


@pytest.mark.slow
def test_no_class_of_the_product_has_the_name_of_another() -> None:
    paths = sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))
    assert len(paths) > 500
    found = repeated((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths)
    assert not found, (
        "classes or type aliases with the same name: name each after its subject (HostDiskFacts, not Facts), or put a "
        "leading underscore before one that only its own module uses:\n" + "\n".join(found)
    )


def test_what_counts_as_a_declaration() -> None:
    one = "from x import Far\nclass Near: pass\nPair = tuple[str, str]\nclass _Own: pass\nT = TypeVar('T')\nLIMIT = 3\n"
    two = "class Far: pass\nclass _Own: pass\nclass Pair: pass\nNear: TypeAlias = int\nT = TypeVar('T')\nLIMIT = 4\n"
    assert repeated([("one.py", one), ("two.py", two)]) == ["Near: one.py:2, two.py:4", "Pair: one.py:3, two.py:3"]
