"""Floods from another process against a real controller in a separate process: its memory stays bounded, it answers, and honest agents'
heartbeats are accepted throughout. The bounds are wide, for a busy machine; the figures are ``bench/floods.py``'s."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from bench.floods import certificates  # noqa: E402
from bench.kit import figures, procs  # noqa: E402
from bench.kit.flooded import Flooded  # noqa: E402

pytestmark = pytest.mark.slow

SECONDS = 3.0
MORE_MEMORY_BYTES = 300 * procs.MIB
"""The connections that were never collected alone took 2 GiB within this time."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flooded]:
    folder = tmp_path_factory.mktemp("flooded")
    with Flooded(folder, certificates(folder / "etc"), 10, stranger=True).up() as flooded:
        yield flooded


@pytest.mark.parametrize("kind", ["heads", "connections", "handshakes", "viewer", "agent"])
def test_it_stays_small_and_answers(made: Flooded, kind: str) -> None:
    before_bytes = procs.pss_bytes(made.pid)
    with made.watched() as seen:
        told = made.flood(kind, SECONDS, "nice", "-n", "5")
    assert told, "the flood did nothing"
    assert max(seen.memory_bytes) - before_bytes < MORE_MEMORY_BYTES
    assert seen.health_s
    assert len(seen.health_failed) <= 1 + len(seen.health_s) / 5, seen.health_failed
    assert figures.percentile(seen.health_s, 0.5) < 5
    assert seen.beats >= 5
    assert len(seen.beats_refused) <= 1 + seen.beats / 5, seen.beats_refused
