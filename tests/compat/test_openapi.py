"""Clients of the last release's API find everything that they rely on (docs/how-to-api.md).

Record a release's description when it is tagged: ``python tests/compat/test_openapi.py LABEL``. Never change one that is out."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from holdfast.api.app import create_app
from holdfast.api.deps import ApiDeps
from holdfast.clock import SystemClock
from support.api_compat import recorded, taken

FOLDER = Path(__file__).with_name("openapi")


def described() -> dict[str, Any]:
    """This tree's description: nothing behind the routes is asked for it."""
    deps = ApiDeps(MagicMock(), MagicMock(), SystemClock(), lambda: None, lambda: None, MagicMock(), lambda: None)
    found: dict[str, Any] = recorded(json.loads(json.dumps(create_app(deps).openapi())))
    return found


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return described()


@pytest.mark.parametrize("record", sorted(FOLDER.glob("*.json")), ids=lambda path: str(path.stem))
def test_nothing_is_taken_from_clients_of_a_release(record: Path, now: dict[str, Any]) -> None:
    before = json.loads(record.read_text(encoding="utf-8"))
    assert len(before["paths"]) > 20
    assert taken(before, now) == []


Change = Callable[[dict[str, Any]], Any]
_INCIDENTS = "/v1/incidents"


def fields(spec: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = spec["components"]["schemas"][name]
    return found


def parameters(spec: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spec["paths"][_INCIDENTS]["get"]["parameters"]
    return found


def parameter(spec: dict[str, Any], name: str) -> dict[str, Any]:
    return next(p for p in parameters(spec) if p["name"] == name)


BREAKING: list[tuple[str, Change]] = [
    ("GET /v1/incidents: removed", lambda s: s["paths"].pop(_INCIDENTS)),
    ("GET /v1/incidents: query limit: removed", lambda s: s["paths"][_INCIDENTS]["get"]["parameters"].remove(parameter(s, "limit"))),
    ("query limit: required now", lambda s: parameter(s, "limit").update(required=True)),
    ("query limit: maximum 1000 is 100 now", lambda s: parameter(s, "limit")["schema"].update(maximum=100)),
    ("query limit: integer is no longer accepted", lambda s: parameter(s, "limit")["schema"].update(type="string")),
    ("query x: new and required", lambda s: parameters(s).append({"name": "x", "in": "query", "required": True, "schema": {}})),
    ("incidents: removed", lambda s: fields(s, "IncidentsShape")["properties"].pop("incidents")),
    ("headline: removed", lambda s: fields(s, "IncidentShape")["properties"].pop("headline")),
    ("headline: may be missing now", lambda s: fields(s, "IncidentShape")["required"].remove("headline")),
    ("headline: may be null now", lambda s: fields(s, "IncidentShape")["properties"].update(headline={"type": ["string", "null"]})),
    ("headline: may be integer now", lambda s: fields(s, "IncidentShape")["properties"].update(headline={"type": "integer"})),
    ("no longer answers 200", lambda s: s["paths"][_INCIDENTS]["get"]["responses"].pop("200")),
    ("body.why: removed", lambda s: fields(s, "NewMaintenance")["properties"].pop("why")),
    ("body.x: required now", lambda s: fields(s, "NewMaintenance")["required"].append("x")),
    ("body.why: maxLength 500 is 10 now", lambda s: fields(s, "NewMaintenance")["properties"]["why"].update(maxLength=10)),
    ("body.hours: number is no longer accepted", lambda s: fields(s, "NewMaintenance")["properties"]["hours"].update(type="integer")),
    ("query kind[]: no longer accepts", lambda s: fields(s, "IncidentKind")["enum"].pop()),
]  # fmt: skip


@pytest.mark.parametrize(("says", "change"), BREAKING, ids=[says for says, _ in BREAKING])
def test_a_break_is_found(now: dict[str, Any], says: str, change: Change) -> None:
    after = copy.deepcopy(now)
    change(after)
    found = taken(now, after)
    assert any(says in line for line in found), found


ADDITIONS: list[Change] = [
    lambda s: s["paths"].update({"/v1/new": s["paths"][_INCIDENTS]}),
    lambda s: s["paths"][_INCIDENTS]["get"]["parameters"].append({"name": "x", "in": "query", "schema": {}}),
    lambda s: fields(s, "IncidentShape")["properties"].update(x={"type": "string"}),
    lambda s: fields(s, "IncidentState")["enum"].append("x"),
    lambda s: parameter(s, "limit")["schema"].update(maximum=10_000),
    lambda s: fields(s, "NewMaintenance")["properties"].update(x={"type": "string"}),
    lambda s: fields(s, "WindowShape")["required"].append("x"),
    lambda s: s["paths"][_INCIDENTS]["get"]["responses"].update({"418": {}}),
]


@pytest.mark.parametrize("change", ADDITIONS, ids=range(len(ADDITIONS)))
def test_an_addition_is_none(now: dict[str, Any], change: Change) -> None:
    after = copy.deepcopy(now)
    change(after)
    assert taken(now, after) == []


def test_a_shape_that_holds_itself_ends() -> None:
    shape = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/A"}}}
    ok = {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/A"}}}}}
    spec = {"paths": {"/a": {"get": {"responses": ok}}}, "components": {"schemas": {"A": shape}}}
    assert taken(spec, spec) == []


if __name__ == "__main__":
    (FOLDER / f"{sys.argv[1]}.json").write_text(
        json.dumps(described(), separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8"
    )
