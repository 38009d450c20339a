"""The reference pages match the code: they are what the generator writes now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("holdfast_docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(generator().PAGES))
def test_the_page_is_up_to_date(page: str) -> None:
    written = (DOCS / "reference" / page).read_text(encoding="utf-8")
    assert written == generator().PAGES[page](), "run: python docs/generate.py"


@pytest.mark.parametrize("page", sorted(generator().PARTS))
def test_the_generated_part_of_the_page_is_up_to_date(page: str) -> None:
    written = (DOCS / page).read_text(encoding="utf-8")
    assert written == generator().with_parts(written, generator().PARTS[page]), "run: python docs/generate.py"


@pytest.mark.slow
def test_nothing_is_without_a_word() -> None:
    for page in generator().PAGES.values():
        text = page()
        empty = [line for line in text.splitlines() if line.startswith("| `") and line.rstrip().endswith("|  |")]
        assert empty == []
