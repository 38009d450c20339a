"""`holdfast runbook`: the page that a message names, from the package itself, without the controller."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.offline import runbooks

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["no-actor", "no-actor.md", "docs/runbooks/no-actor.md", "../no-actor.md#look"])
def test_a_page_by_each_of_its_names(holdfast: Any, name: str) -> None:
    got = holdfast("runbook", name)
    assert (got.status, got.err) == (0, "")
    assert got.out == (DOCS / "runbooks" / "no-actor.md").read_text(encoding="utf-8")


def test_other_pages_and_the_list(holdfast: Any) -> None:
    assert holdfast("runbook", "safety").out == (DOCS / "safety.md").read_text(encoding="utf-8")
    listed = holdfast("runbook").out
    assert all(page.stem in listed for page in (DOCS / "runbooks").glob("[a-z]*.md"))


@pytest.mark.parametrize(("name", "says"), [("no-acter", "did you mean no-actor?"), ("../../etc/passwd", "lists them")])
def test_a_wrong_name_is_one_line(holdfast: Any, name: str, says: str) -> None:
    got = holdfast("runbook", name)
    assert got.status == 2
    assert got.err.count("\n") == 1
    assert says in got.err


def test_an_installed_package_prints_its_own(holdfast: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runbooks, "_SOURCE", tmp_path / "no")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert "install the controller's package again" in holdfast("runbook", "brake").err
    page = tmp_path / "share" / "holdfast" / "docs" / "runbooks" / "brake.md"
    page.parent.mkdir(parents=True)
    page.write_text("# A brake\n")
    assert holdfast("runbook", "brake").out == "# A brake\n"
