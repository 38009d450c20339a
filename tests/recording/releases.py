"""What was recorded of earlier releases: where it is, and how its databases are opened."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recording import stores

_IN_FLIGHT = re.compile(
    r"""^INSERT INTO "intents" VALUES\('[^']*','[^']*','(\w+)',(?:NULL|'[^']*'),'(planned|started)'""", re.MULTILINE
)
RELEASES = Path(__file__).resolve().parents[1] / "fixtures" / "releases"


@dataclass(frozen=True)
class Recorded:
    """One moment of a release."""

    release: str
    name: str

    @property
    def _folder(self) -> Path:
        return RELEASES / self.release / "moments"

    @property
    def scene(self) -> str:
        return self.name.rpartition("-")[0]

    def in_flight(self) -> frozenset[tuple[str, str]]:
        """Kind and state of each step that is neither done nor failed yet."""
        script = (self._folder / f"{self.name}.sql").read_text(encoding="utf-8")
        return frozenset(_IN_FLIGHT.findall(script))

    @property
    def world(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self._folder / f"{self.name}.json").read_text(encoding="utf-8"))
        return found

    def database(self, path: Path) -> Path:
        """The store as that release left it, as an SQLite file at ``path``."""
        scripts = (self._folder / "schema.sql", self._folder / f"{self.name}.sql")
        stores.restore(path, *(script.read_text(encoding="utf-8") for script in scripts))
        return path


def releases() -> list[str]:
    """Labels of the recorded releases, oldest first."""
    return sorted(
        (folder.name for folder in RELEASES.iterdir()), key=lambda name: [int(n) for n in re.findall(r"\d+", name)]
    )


def moments() -> list[Recorded]:
    """All moments of all releases."""
    return [
        Recorded(release, script.stem)
        for release in releases()
        for script in sorted((RELEASES / release / "moments").glob("*.json"))
    ]


def folder(release: str) -> Path:
    """Where a release's records are."""
    return RELEASES / release


def document(release: str, name: str) -> Any:
    """One of its JSON documents: ``reports``, ``heartbeats``, ``orders``, ``quorum``."""
    return json.loads((RELEASES / release / f"{name}.json").read_text(encoding="utf-8"))


def script(release: str, name: str) -> str:
    """One of its SQL scripts: ``agent``, ``quorum``."""
    return (RELEASES / release / f"{name}.sql").read_text(encoding="utf-8")
