"""Progress of the soaks: examples by seed, in a file that outlives the run, so that the next run continues where one stopped.

``python tests/support/soak.py FILE`` prints the seed of the last run, or a new one."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHUNK = 250
"""Examples that are run, and counted, at a time."""


@dataclass
class Done:
    """What has passed of one seed."""

    chunks: int = 0
    examples: int = 0
    steps: int = 0


class SoakCount:
    """The progress file. A chunk counts once all of it has passed: the one that failed is the next to run."""

    def __init__(self, path: Path | None) -> None:
        """``path``: None keeps no file."""
        self._path = path
        kept: dict[str, Any] = (
            json.loads(path.read_text(encoding="utf-8")) if path is not None and path.exists() else {}
        )
        self.last: int | None = kept.get("last")
        self.by_seed = {int(seed): Done(**done) for seed, done in kept.get("seeds", {}).items()}

    @property
    def examples(self) -> int:
        """Of all seeds."""
        return sum(done.examples for done in self.by_seed.values())

    def run(self, seed: int, chunks: int, chunk: Callable[[int], tuple[int, int]]) -> Done:
        """Run this many more chunks of this seed. ``chunk``: runs the one with the given derived seed; returns examples and steps."""
        self.last = seed
        done = self.by_seed.setdefault(seed, Done())
        self._write()
        for _ in range(chunks):
            examples, steps = chunk(seed * 1_000_003 + done.chunks)
            done.chunks, done.examples, done.steps = done.chunks + 1, done.examples + examples, done.steps + steps
            self._write()
        return done

    def _write(self) -> None:
        if self._path is not None:
            kept = {"last": self.last, "seeds": {str(seed): asdict(done) for seed, done in self.by_seed.items()}}
            draft = self._path.with_suffix(".new")
            draft.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
            draft.replace(self._path)


if __name__ == "__main__":
    print(SoakCount(Path(sys.argv[1])).last or random.randrange(2**32))  # noqa: T201
