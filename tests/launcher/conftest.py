"""Fixtures of the launcher's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.practice import Practice
from support.agent_bench import FakeController, Folder


@pytest.fixture
def controller() -> Iterator[FakeController]:
    fake = FakeController()
    yield fake
    fake.close()


@pytest.fixture
def folder(tmp_path: Path, controller: FakeController) -> Folder:
    return Folder(tmp_path, controller.url)


@pytest.fixture(scope="session")
def elastic_cluster(short_folder: Path) -> Iterator[Practice]:
    """Four nodes, set up for elastic jobs; no agent, no controller."""
    practice = Practice.create(short_folder / "elastic", nodes=4, gpus=8, cpus=8, elastic=True)
    try:
        practice.up()
        yield practice
    finally:
        practice.remove()
