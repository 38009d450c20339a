"""The newest recorded release is of this tree: after a change of what is stored or sent, record again (``tests/fixtures/README.md``)."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast.model
from holdfast import unexpected, unknown
from holdfast.store import open_store
from recording import agents, answers, quorum
from recording.releases import document, moments, releases, script
from recording.stores import restore

NEWEST = releases()[-1]
AGAIN = f"what this tree writes differs from its record: python tests/fixtures/record.py {NEWEST} (a new label once that release is out)"
OPEN = frozenset({"evidence", "detail", "args", "gone", "gpus"})
"""Objects whose keys are data, not fields."""
ALSO: Mapping[str, set[str]] = {"Finding": {"verdict"}}
"""What is written for releases before this one, in addition to a noun's own fields."""

Shape = frozenset[tuple[str, str]]


def shape(value: Any, path: str = "") -> Shape:
    """Fields with the kinds of their values; items of a list as one; None as the other kind of the field."""
    if isinstance(value, Mapping):
        below = frozenset[tuple[str, str]]()
        if path.rpartition(".")[2] not in OPEN:
            below = frozenset().union(*(shape(each, f"{path}.{name}") for name, each in value.items()))
        return below | {(path, "object")}
    if isinstance(value, list | tuple):
        return frozenset({(path, "list")}).union(*(shape(each, f"{path}[]") for each in value))
    kinds: Mapping[type, str] = {bool: "yes or no", int: "number", float: "number", str: "text"}
    return frozenset({(path, kinds.get(type(value), "none"))})


def told(shapes: Shape) -> set[tuple[str, str]]:
    """Without the Nones of fields that have another kind elsewhere."""
    somewhere = {path for path, kind in shapes if kind != "none"}
    return {(path, kind) for path, kind in shapes if kind != "none" or path not in somewhere}


def assert_same(now: Any, recorded: Any) -> None:
    assert told(shape(json.loads(json.dumps(now)))) == told(shape(recorded)), AGAIN


def by_kind(bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """Items of reports, those of each kind and statement together."""
    items = [item for body in bodies for item in body["items"]]
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(f"{item['kind']} {item.get('statement', '')}", []).append(item)
    return {**found, "envelope": [{k: v for k, v in body.items() if k != "items"} for body in bodies]}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, list[dict[str, Any]]]]:
    """The memory of an agent of this tree, and what it sent."""
    folder = tmp_path_factory.mktemp("agent")
    return folder, agents.record(folder)


def test_reports_and_heartbeats(agent: tuple[Path, Mapping[str, list[dict[str, Any]]]]) -> None:
    sent = agent[1]
    assert_same(by_kind(sent["reports"]), by_kind(document(NEWEST, "reports")))
    assert_same(sent["heartbeats"], document(NEWEST, "heartbeats"))


def schema(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Tables with their columns."""
    with closing(sqlite3.connect(path)) as db:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: [row[1:] for row in db.execute(f"PRAGMA table_info({name})")] for name in names}
    return {name: columns for name, columns in found.items() if not name.startswith("sqlite_")}


def restored(target: Path, *scripts: str) -> Path:
    restore(target, *scripts)
    return target


def test_the_agents_memory(agent: tuple[Path, Mapping[str, list[dict[str, Any]]]], tmp_path: Path) -> None:
    recorded, now = restored(tmp_path / "old.db", script(NEWEST, "agent")), agent[0] / "kept" / "agent.db"
    assert schema(now) == schema(recorded), AGAIN
    query = "SELECT key, value FROM meta WHERE key NOT IN ('outbox_id')"
    with closing(sqlite3.connect(now)) as new, closing(sqlite3.connect(recorded)) as old:
        facts = [{key: json.loads(value) for key, value in db.execute(query)} for db in (new, old)]
    assert_same(*facts)


def test_the_quorum_services_tables_and_answers(tmp_path: Path) -> None:
    said = quorum.record(tmp_path)
    assert_same(said, document(NEWEST, "quorum"))
    recorded = restored(tmp_path / "old.db", script(NEWEST, "quorum"))
    assert schema(tmp_path / "holdfast.db") == schema(recorded), AGAIN
    with closing(sqlite3.connect(tmp_path / "holdfast.db")) as new, closing(sqlite3.connect(recorded)) as old:
        kept = [[json.loads(row[0]) for row in db.execute("SELECT document FROM quorum_rooms")] for db in (new, old)]
    assert_same(*kept)


@pytest.mark.slow
def test_the_apis_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "_SEEN", unknown._Seen())  # what other tests in this process could not read
    monkeypatch.setattr(unexpected, "standing", dict)  # and what failed in them
    assert_same(answers.record(tmp_path / "answers"), document(NEWEST, "answers"))


def test_the_stores_tables(tmp_path: Path) -> None:
    recorded = next(moment for moment in moments() if moment.release == NEWEST)
    with closing(open_store(f"sqlite:///{tmp_path / 'now.db'}")):
        assert schema(tmp_path / "now.db") == schema(recorded.database(tmp_path / "old.db")), AGAIN


def nouns() -> dict[str, type]:
    """The model's dataclasses by name."""
    loaded = [
        importlib.import_module(m.name) for m in pkgutil.walk_packages(holdfast.model.__path__, "holdfast.model.")
    ]
    kinds = [kind for module in loaded for kind in vars(module).values() if isinstance(kind, type)]
    return {kind.__name__: kind for kind in kinds if dataclasses.is_dataclass(kind)}


def documents(path: Path) -> Iterator[dict[str, Any]]:
    """Every document of a store, and those inside it."""
    with closing(sqlite3.connect(path)) as db:
        for table, columns in schema(path).items():
            if any(column[0] == "document" for column in columns):
                for (text,) in db.execute(f"SELECT document FROM {table}"):  # noqa: S608
                    yield from typed(json.loads(text))


def typed(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "type" in value:
            yield value
        for each in value.values():
            yield from typed(each)
    elif isinstance(value, list):
        for each in value:
            yield from typed(each)


@pytest.mark.slow
def test_the_stores_documents(tmp_path: Path) -> None:
    known, seen = nouns(), set[str]()
    for number, moment in enumerate(m for m in moments() if m.release == NEWEST):
        for found in documents(moment.database(tmp_path / f"{number}.db")):
            kind = known.get(str(found["type"]))
            if kind is not None:
                assert set(found) - {"type"} - ALSO.get(kind.__name__, set()) == {
                    f.name for f in dataclasses.fields(kind)
                }, f"{kind.__name__}: {AGAIN}"
                seen.add(kind.__name__)
    assert len(seen) > 20


@pytest.mark.parametrize("change", [{"new": 1}, {"interval_s": "10"}], ids=["a new field", "another kind"])
def test_a_change_would_be_seen(change: Mapping[str, object]) -> None:
    sick, well = document(NEWEST, "heartbeats")
    with pytest.raises(AssertionError, match=r"record\.py"):
        assert_same([{**sick, **change}, well], [sick, well])
