"""The command: plays every scene, keeps the fewest moments that hold all words, writes ``releases/RELEASE``."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.api.agents.ingest import order_json
from holdfast.model.actions.action import SendOrder
from holdfast.store import open_store
from recording import agents, answers, quorum
from recording.moments import Camera, Moment, fewest
from recording.releases import RELEASES
from recording.scenes import SCENES
from recording.stores import dump


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: record.py RELEASE, for example: record.py 0.2.0\n")
        return 2
    folder = RELEASES / arguments[0]
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "moments").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        moments = [m for name in SCENES for m in played(name, Path(scratch))]
        write_moments(folder / "moments", fewest(moments))
        write_agent(folder, Path(scratch) / "agent")
        write_quorum(folder, Path(scratch) / "quorum")
        write(folder / "orders.json", orders(Path(scratch)))
        write(folder / "answers.json", answers.record(Path(scratch) / "answers"))
    return 0


def played(name: str, scratch: Path) -> list[Moment]:
    """The moments of one scene."""
    path = scratch / f"{name}.db"
    camera = Camera(name, path)
    with closing(open_store(f"sqlite:///{path}")) as store:
        SCENES[name](store, camera.watch)
    sys.stdout.write(f"{name}: {len(camera.moments)} moments\n")
    return camera.moments


def write_moments(folder: Path, moments: list[Moment]) -> None:
    """One schema for all; rows, world and words of each."""
    (schema,) = {moment.schema for moment in moments}
    write_lines(folder / "schema.sql", schema)
    write(folder.parent / "words.json", {moment.name: sorted(moment.words) for moment in moments})
    for moment in moments:
        write_lines(folder / f"{moment.name}.sql", moment.rows)
        world = json.dumps(moment.world, ensure_ascii=False, separators=(",", ":"))
        write_lines(folder / f"{moment.name}.json", [world])


def write_agent(folder: Path, scratch: Path) -> None:
    """The agent's memory, and what it sent."""
    for name, bodies in agents.record(scratch).items():
        write(folder / f"{name}.json", bodies)
    write_lines(folder / "agent.sql", dump(scratch / "kept" / "agent.db"))
    write_lines(folder / "statements.jsonl", [line.decode() for line in agents.STATEMENTS])


def write_quorum(folder: Path, scratch: Path) -> None:
    """The quorum service's tables, and its answers to the controller."""
    scratch.mkdir()
    write(folder / "quorum.json", quorum.record(scratch))
    write_lines(folder / "quorum.sql", dump(scratch / "holdfast.db"))


def orders(scratch: Path) -> list[dict[str, Any]]:
    """One order of each verb that the scenes gave, as agents get it."""
    found: dict[str, dict[str, Any]] = {}
    for name in SCENES:
        with closing(open_store(f"sqlite:///{scratch / name}.db")) as store:
            for intent in store.intents(limit=10_000):
                if isinstance(intent.action, SendOrder):
                    found.setdefault(intent.action.verb, order_json(intent, intent.planned_at))
    return [found[verb] for verb in sorted(found)]


def write(path: Path, value: Any) -> None:
    """As JSON, one line for each field."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
