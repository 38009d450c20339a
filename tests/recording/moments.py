"""Moments of a simulated site that are worth keeping: the database as it was then, and the world around it.

Every change is checked, also in the middle of a step. Of all moments the fewest are kept that together hold every word seen: each
kind of action in each state, each phase, each kind of incident in each state."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.model.actions.action import Intent
from recording import stores, world
from support.simulated.site import Site

WORDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "incidents": (("kind",), ("check",), ("state",), ("severity", "remedy"), ("acknowledged",), ("dead",), ("rung",)),
    "recoveries": (("phase",), ("consent",), ("ground",), ("suspect",), ("via_down",)),
    "findings": (("verdict", "severity", "remedy"),),
    "brakes": (("kind", "released_at"),),
    "marks": (("type",),),
    "nodes": (("type",),),
    "checkpoints": (("fenced", "phase"),),
    "suppressions": (("type",),),
    "inventories": (("type",),),
}
"""Table → fields of its documents whose combinations have to be kept."""


@dataclass(frozen=True)
class Moment:
    """One moment: which words it holds, the rows, the world around them."""

    name: str
    words: frozenset[str]
    schema: tuple[str, ...]
    rows: tuple[str, ...]
    world: Mapping[str, Any]


@dataclass
class Camera:
    """Watches one site's database at ``path``; ``scene`` names its moments."""

    scene: str
    path: Path
    moments: list[Moment] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def watch(self, site: Site) -> None:
        """Check at each boundary of a step, and after each second."""
        site.at_boundary = lambda intent, moment: self._at_boundary(site, intent, moment)
        react = site.react

        def react_and_look() -> None:
            self.look(site)
            react()
            self.look(site)

        site.react = react_and_look  # type: ignore[method-assign]

    def _at_boundary(self, site: Site, intent: Intent, moment: str) -> None:
        if moment in ("started", "acted"):
            self.look(site, f"in a step: {intent.kind} {moment}")

    def look(self, site: Site, *more: str) -> None:
        """Keep this moment if it holds a word that none before it did."""
        words = words_of(self.path) | set(more)
        if words <= self._seen:
            return
        self._seen |= words
        schema, rows = stores.parted(stores.dump(self.path))
        saved = json.loads(json.dumps(world.save(site)))
        name = f"{self.scene}-{len(self.moments) + 1:02d}"
        self.moments.append(Moment(name, frozenset(words), tuple(schema), tuple(rows), saved))


def words_of(path: Path) -> set[str]:
    """What a store's rows hold, as ``table: word word``."""
    words: set[str] = set()
    with closing(sqlite3.connect(path)) as db:
        for table, combinations in WORDS.items():
            for (document,) in db.execute(f"SELECT document FROM {table}"):  # noqa: S608
                found = json.loads(document)
                words |= {f"{table}.{' '.join(c)}: {_told(found, c)}" for c in combinations if c[0] in found}
        for kind, state, document in db.execute("SELECT kind, state, document FROM intents"):
            verb = json.loads(document)["action"].get("verb", "")
            words.add(f"intents: {kind} {state} {verb}".strip())
        words |= {f"notes: {key}" for (key,) in db.execute("SELECT key FROM notes")}
        words |= {f"events: {kind}" for (kind,) in db.execute("SELECT DISTINCT kind FROM events")}
        words |= {f"tokens: {role}" for (role,) in db.execute("SELECT DISTINCT role FROM tokens")}
        words |= {"evidence" for _ in db.execute("SELECT 1 FROM evidence LIMIT 1")}
    return words


def _told(document: Mapping[str, Any], names: Iterable[str]) -> str:
    values = (document.get(name) for name in names if name in document)
    return " ".join("yes" if isinstance(v, str) and v[:2] == "20" else str(v) for v in values)


def fewest(moments: Iterable[Moment]) -> list[Moment]:
    """Greedily: of each step the moment with the most words that are still missing. In the order of their names."""
    all_of = list(moments)
    left = {word for moment in all_of for word in moment.words}
    chosen: list[Moment] = []
    while left:
        best = max(all_of, key=lambda m: (len(m.words & left), -sum(map(len, m.rows)), m.name))
        chosen.append(best)
        left -= best.words
    return sorted(chosen, key=lambda m: m.name)
