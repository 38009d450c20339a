"""Texts of agents, users and of what answers in the controller's place on an operator's terminal and in a spreadsheet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.api.client import _refusal
from holdfast.cli.app import run
from holdfast.cli.common import show
from holdfast.cli.common.csv_rows import cell
from holdfast.cli.nodes import node_sheet
from holdfast.model.errors import Rejected, Usage

HOSTILE = "a\x1b]0;title\x07b \x9b31m \u202e gnp.1 \u2066 \x7f \u2028 c"


def plain(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def test_no_text_moves_the_cursor_or_turns_the_order_round(capsys: pytest.CaptureFixture[str]) -> None:
    show.line(HOSTILE)
    show.table("", ("A", "STATE"), [[HOSTILE, HOSTILE]], "")
    show.as_json({HOSTILE: [HOSTILE]})
    shown = capsys.readouterr().out
    assert plain(shown)
    assert plain(cell(HOSTILE))
    assert plain(node_sheet.plain(HOSTILE))


def test_json_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    value = {HOSTILE: [HOSTILE, "größer 🙂 \U000e0041"]}
    show.as_json(value)
    shown = capsys.readouterr().out
    assert json.loads(shown) == value
    assert "größer 🙂" in shown


def test_no_error_of_a_controller_does(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    refused = _refusal(409, json.dumps({"error": {"message": HOSTILE}}).encode(), "")
    assert plain(str(refused))

    def fails(*_: object, **__: object) -> None:
        raise Rejected(HOSTILE)

    monkeypatch.setattr("holdfast.api.client.ApiClient.get", fails)
    monkeypatch.setenv("HOLDFAST_TOKEN", "t")
    assert run(["incidents"]) == 1
    assert plain(capsys.readouterr().err)


@pytest.mark.parametrize("text", ["=1+1", "  @SUM(A1)", "＝1+1", "\t=1", "-2+3"])
def test_no_text_is_a_formula(text: str) -> None:
    assert cell(text).startswith("'")
    assert cell(-2) == "-2"


def test_what_is_written_for_an_operator_follows_no_link_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "n1.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Usage):
        show.write_new(tmp_path / "n1.md", b"x")
    assert not (tmp_path / "elsewhere").exists()
