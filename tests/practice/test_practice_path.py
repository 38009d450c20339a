"""A network that fails under load, as the pair probe of the practice's nodes meets it."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.practice.hardware import path
from holdfast_checks.active.pair import PairAnswer, PairSide
from holdfast_checks.active.pair import run_side as run
from holdfast_checks.settings import ActiveSettings


def probe(one: Path, other: Path) -> tuple[PairAnswer, PairAnswer]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])

    def side(role: str, folder: Path) -> PairAnswer:
        order = PairSide(role, "127.0.0.1", port, "a long secret", "tcp", 256 * 1024, 2, 2.5)
        return run(order, ActiveSettings(python=str(folder / path.PYTHON)), key=str(folder))

    with ThreadPoolExecutor(2) as pool:
        listening, connecting = pool.map(side, ("listen", "connect"), (one, other))
    return listening, connecting


@pytest.mark.slow
def test_a_broken_path_shows_between_two_nodes_and_heals(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        folder.mkdir()
        path.install(folder)
    assert [a.said for a in probe(good, bad)] == ["done", "done"]
    path.break_path(bad, path.CORRUPT)
    assert sum(a.wrong for a in probe(good, bad)) >= 1
    path.break_path(bad, path.DEAD)
    assert "failed" in [a.said for a in probe(bad, good)]
    path.restore(bad)
    assert [a.wrong for a in probe(bad, good)] == [0, 0]
