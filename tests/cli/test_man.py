"""Manual pages: one for each command, without a warning of roff."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.man import main, pages, plain

TEXTS = [
    ("a-b", "a\\-b"),
    ("`holdfast nodes` lists", "\\fBholdfast nodes\\fR lists"),
    (".leading", "\\&.leading"),
    ("C:\\x", "C:\\ex"),
    ("a → b", "a \\[u2192] b"),
]


@pytest.mark.parametrize(("text", "roff"), TEXTS)
def test_text_is_literal(text: str, roff: str) -> None:
    assert plain(text) == roff


def test_each_command_has_a_page_with_its_options() -> None:
    found = pages()
    for name in (
        "holdfast",
        "holdfast-nodes",
        "holdfast-incident",
        "holdfast-incident-show",
        "holdfast-practice-inject",
    ):
        assert f"{name}.1" in found
    nodes = found["holdfast-nodes.1"]
    for words in (
        ".SH NAME",
        "\\-\\-bad",
        "\\-\\-watch [SECONDS]",
        "EXIT STATUS",
        "HOLDFAST_URL",
        "\\fBholdfast\\fR(1)",
    ):
        assert words in nodes
    assert "budget extend" in found["holdfast-budget.1"]
    assert all("None" not in text.split(".SH EXIT STATUS")[0].split("\n")[1] for text in found.values())


def test_they_are_written_into_a_folder(tmp_path: Path) -> None:
    assert main([str(tmp_path / "man1")]) == 0
    assert {path.name for path in (tmp_path / "man1").iterdir()} == set(pages())
    assert main([]) == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff-base is not installed")
def test_roff_has_no_warning(tmp_path: Path) -> None:
    main([str(tmp_path)])
    for page in sorted(tmp_path.iterdir()):
        done = subprocess.run(
            ["groff", "-ww", "-rF0", "-man", "-Tutf8", "-P-cbou", str(page)], capture_output=True, text=True, check=True
        )
        assert done.stderr == "", page.name
        assert "SYNOPSIS" in done.stdout
