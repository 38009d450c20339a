"""``holdfast node …`` and ``holdfast lemons``: what people see, exit statuses, CSV, Markdown."""

from __future__ import annotations

import csv
import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer

from holdfast.api.shown.history_shapes import NodeHealthShape, NodeSheetShape
from holdfast.cli.common.csv_rows import cell
from holdfast.cli.nodes import node as verbs
from holdfast.cli.nodes.node_sheet import markdown, plain

ID = "0h3k5d2m8x1q"
NOW = datetime(2026, 11, 26, 19, 30, tzinfo=UTC)


def test_a_note_and_the_history_that_shows_it(holdfast: Any, site: dict[str, str]) -> None:
    assert "noted on n1" in holdfast("node", "note", "n1", "fan ordered", "--ticket", "OPS-12", **site).out
    got = holdfast("node", "history", "n1", **site)
    assert (got.status, got.err) == (0, "")
    for word in ("note: fan ordered", "OPS-12", "op", ID, "incident opened"):
        assert word in got.out
    assert got.out.index("incident opened") < got.out.index("fan ordered"), "newest last"
    assert "OPS-12" in holdfast("incident", "show", ID, **site).out
    assert "nothing is on record in this time" in holdfast("node", "history", "n1", "--since", "2099-01-01", **site).out


def test_the_history_has_no_column_in_which_nothing_is(holdfast: Any, site: dict[str, str]) -> None:
    holdfast("node", "note", "n2", "fan ordered", **site)
    assert "TICKET" not in holdfast("node", "history", "n2", **site).out
    holdfast("node", "note", "n2", "fan ordered", "--ticket", "OPS-12", **site)
    assert "TICKET" in holdfast("node", "history", "n2", **site).out


def test_a_narrow_terminal_has_room_for_what_happened(
    holdfast: Any, site: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.views.reading.narrow", lambda: True)
    assert "INCIDENT" not in holdfast("node", "history", "n1", **site).out.splitlines()[2]


def test_the_history_as_csv_and_json(holdfast: Any, site: dict[str, str]) -> None:
    holdfast("node", "note", "n1", "=1+1", **site)
    found = list(csv.DictReader(io.StringIO(holdfast("node", "history", "n1", "--csv", **site).out)))
    assert found[0]["about"] == "incident"
    assert {row["reason"] for row in found} >= {"'=1+1"}
    shown = json.loads(holdfast("node", "history", "n1", "--json", "--limit", "1", **site).out)
    assert len(shown["entries"]) == 1
    assert shown["next_cursor"] is not None
    both = holdfast("node", "history", "n1", "--csv", "--json", **site)
    assert (both.status, "not both" in both.err) == (2, True)


def test_health_is_an_exit_status(holdfast: Any, site: dict[str, str]) -> None:
    bad = holdfast("node", "health", "n1", **site)
    assert (bad.status, "n1: unhealthy, out of service: gpu.xid 79" in bad.out) == (1, True)
    assert f"holdfast incident show {ID}" in bad.out
    unknown = holdfast("node", "health", "n2", **site)
    assert (unknown.status, "n2: not_evaluated, in service" in unknown.out) == (3, True)
    assert json.loads(holdfast("node", "health", "n1", "--json", **site).out)["health"] == "unhealthy"
    assert holdfast("node", "health", "n99", **site).status == 3


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("healthy", 0),
        ("degraded", 1),
        ("unhealthy", 1),
        ("unknown", 3),
        ("not_evaluated", 3),
        ("of a newer release", 3),
    ],
)
def test_each_verdict_has_its_status(monkeypatch: Any, capsys: Any, word: str, status: int) -> None:
    shape = NodeHealthShape(node="n1", health=word, reason="x", since=None, in_service=None, incident_id="")

    class Said:
        def __init__(self, _url: object) -> None: ...

        def get(self, _path: str) -> Any:
            return shape.model_dump(mode="json")

    monkeypatch.setattr(verbs, "ApiClient", Said)
    assert verbs.health("n1") == status
    assert word in capsys.readouterr().out


def test_orders_are_taken_down_or_refused_in_one_line(holdfast: Any, site: dict[str, str]) -> None:
    drained = holdfast("node", "drain", "n2", "-r", "swap", "-t", "OPS-1", "--wait", "0", **site)
    assert (drained.status, "operator op: swap [ticket OPS-1]" in drained.out) == (0, True)
    again = holdfast("node", "drain", "n1", "-r", "swap", "--wait", "0", **site)
    assert (again.status, again.err.count("\n")) == (1, 1)
    serves = holdfast("node", "release", "n2", "--note", "done", "--wait", "0", **site)
    assert (serves.status, "n2 is in service already" in serves.err) == (1, True)
    released = holdfast("node", "release", "n1", "--note", "done", "--wait", "0", **site)
    assert (released.status, f"(incident {ID})" in released.out) == (0, True)
    for wrong in (("node", "drain", "n1"), ("node", "release", "n1"), ("node", "note", "n1")):
        assert holdfast(*wrong, **site).status == 2
    assert holdfast("node", "note", "n1", "x", "--ticket", "a b", **site).status == 2


class Ordering:
    """An API that takes every order."""

    sent: ClassVar[list[tuple[str, Any]]] = []

    def __init__(self, _url: object) -> None: ...

    def post(self, path: str, body: Any) -> Any:
        self.sent.append((path, body))
        return {"order_id": ID, "text": "machine i-1 of n1 is replaced once no job holds the node"}


def test_a_replacement_is_of_the_machine_that_was_shown(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(verbs, "ApiClient", Ordering)
    monkeypatch.setattr(verbs, "_machine_of", lambda _client, _name: "i-1")
    monkeypatch.setattr(Ordering, "sent", [])
    assert verbs.replace("n1", "board", "OPS-1", "bad fan", yes=True) == 0
    body = {"reason": "board", "ticket": "OPS-1", "over": "bad fan", "machine": "i-1"}
    assert Ordering.sent == [("/v1/nodes/n1/replace", body)]
    shown = capsys.readouterr().out
    assert "machine i-1 and what is on it will be gone" in shown
    assert "ordered: machine i-1 of n1 is replaced" in shown


@pytest.mark.parametrize("answer", [True, False])
def test_a_replacement_is_asked_about(monkeypatch: Any, answer: bool) -> None:
    monkeypatch.setattr(verbs, "ApiClient", Ordering)
    monkeypatch.setattr(verbs, "_machine_of", lambda _client, _name: "i-1")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda _question: answer)
    monkeypatch.setattr(Ordering, "sent", [])
    assert verbs.replace("n1", "", "", "", yes=False) == (0 if answer else 1)
    assert len(Ordering.sent) == int(answer)


def test_a_replacement_is_refused_in_one_line(holdfast: Any, site: dict[str, str]) -> None:
    asked = holdfast("node", "replace", "n1", **site)
    assert (asked.status, asked.err.count("\n")) == (1, 1)
    assert "which machine serves n1 is not known" in asked.err
    refused = holdfast("node", "replace", "n9", "--yes", **site)
    assert (refused.status, refused.err.count("\n")) == (1, 1)


def test_an_order_is_waited_for(capsys: Any) -> None:
    class Acting:
        asked = 0

        def get(self, _path: str, **_query: Any) -> Any:
            self.asked += 1
            state = "done" if self.asked > 2 else "planned"
            key = "upkeep/DrainForOperator/n1.0000000000aa/1"
            planned = "2026-11-26T19:30:00Z"
            return {"actions": [{"key": key, "kind": "x", "state": state, "outcome": "drained", "planned_at": planned}]}

    assert verbs._outcome(Acting(), "0000000000aa", "n1 is drained", 30, lambda _s: None) == 0  # type: ignore[arg-type]
    assert "done: drained" in capsys.readouterr().out


def test_lemons(holdfast: Any, site: dict[str, str]) -> None:
    got = holdfast("lemons", **site)
    for word in ("n1", "1 fault in 28 days", "gpu.xid 79", "counts once", "2 faults in 7 days"):
        assert word in got.out
    assert json.loads(holdfast("lemons", "--json", **site).out)["lemons"][0]["node"] == "n1"


def test_the_sheet_as_markdown_and_json(holdfast: Any, site: dict[str, str], tmp_path: Path) -> None:
    target = tmp_path / "n1.md"
    assert holdfast("node", "sheet", "n1", "-o", str(target), **site).status == 0
    text = target.read_text(encoding="utf-8")
    for word in ("# Node n1", "## Hardware", f"## Incident {ID}", "### Found", "### Tried"):
        assert word in text
    assert holdfast("node", "sheet", "n1", "-o", str(target), **site).status == 2
    assert json.loads(holdfast("node", "sheet", "n1", "--incident", ID, "--json", **site).out)["node"] == "n1"


def test_nothing_of_an_agents_text_is_markdown() -> None:
    assert plain("a|b`c`\n<img> [x](y) \x1b[31m *z*") == r"a\|b\`c\` \<img\> \[x\](y)  \[31m \*z\*"
    made = NodeSheetShape(node="n1", made_at=NOW, health=None, machines=[], incidents=[], out=[], tickets=["A|B"])
    assert r"Tickets: A\|B" in "\n".join(markdown(made))


@pytest.mark.parametrize(
    ("value", "text"),
    [("=1", "'=1"), ("+a", "'+a"), ("@a", "'@a"), ("-a", "'-a"), (-1.5, "-1.5"), ("a\r\n\x1bb", "a   b"), (None, "")],
)
def test_a_cell_is_no_formula(value: object, text: str) -> None:
    assert cell(value) == text
