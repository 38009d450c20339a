"""Each command that prints JSON of the controller has a schema, and what it prints conforms to it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from holdfast.cli.app import command
from holdfast.cli.offline.schema import SHAPES, schema_of

OF_THIS_RELEASE_ALONE = {
    "checkpoint latest",
    "checkpoint list",
    "checkpoint verify",
    "doctor",
    "practice faults",
    "practice status",
    "submit",
    "tls show",
    "token list",
}
"""Their JSON is made by the command line itself."""
ID = "0h3k5d2m8x1q"
ARGUMENTS = {
    "incident show": ("incident", "show", ID),
    "node health": ("node", "health", "n1"),
    "node history": ("node", "history", "n1"),
    "node sheet": ("node", "sheet", "n1"),
    "policy diff": ("policy", "diff", os.devnull),
    "nodes NODE": ("nodes", "n1"),
    "why": ("why", "7"),
}


def with_json(found: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if any("--json" in p.opts for p in found.params):
        yield " ".join(path)
    for name, inner in getattr(found, "commands", {}).items():
        yield from with_json(inner, (*path, name))


def reading(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Commands that may be watched: those that read."""
    if any("--watch" in p.opts for p in found.params):
        yield " ".join(path), found
    for name, inner in getattr(found, "commands", {}).items():
        yield from reading(inner, (*path, name))


def test_each_command_with_json_has_a_schema_or_a_reason() -> None:
    shown = {name.partition(" --")[0].removesuffix(" NODE") for name in SHAPES}
    assert set(with_json(command())) == shown | OF_THIS_RELEASE_ALONE


def test_each_command_that_reads_has_json() -> None:
    found = dict(reading(command()))
    assert {"nodes", "status", "night", "audit", "incident show", "suppressions"} <= set(found)
    assert [name for name, each in found.items() if not any("--json" in p.opts for p in each.params)] == []


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_printed_conforms(holdfast: Any, site: dict[str, str], name: str) -> None:
    got = holdfast(*ARGUMENTS.get(name, tuple(name.split())), "--json", **site)
    assert got.status in (0, 1), got.err
    schema = schema_of(name)
    validator = jsonschema_rs.Draft202012Validator(schema)
    sent = json.loads(got.out)
    if name == "audit":
        sent.setdefault("next_after_id", 0)  # made of several pages
    assert [str(e) for e in validator.iter_errors(sent)] == []
    assert not validator.is_valid([]), "the schema refuses something"


def test_the_command(holdfast: Any) -> None:
    assert holdfast("schema").out.split("\n")[:-1] == list(SHAPES)
    got = json.loads(holdfast("schema", "incident", "show").out)
    assert got["title"] == "IncidentStory"
    wrong = holdfast("schema", "node")
    assert (wrong.status, "did you mean nodes?" in wrong.err) == (2, True)
    assert "lists them" in holdfast("schema", "xyzzy").err
