"""A job of groups of several ranks around a real rendezvous, which ends with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.elastic_groups import Groups, open_room


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str, int, int], Groups]]:
    """Called with the kind of model, the ranks of a group and the steps of the training."""
    made: list[Groups] = []

    def one(kind: str, ranks: int, until: int) -> Groups:
        made.append(open_room(tmp_path, kind, ranks, until))
        return made[-1]

    yield one
    for groups in made:
        groups.stop()
