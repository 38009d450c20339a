"""Fixtures of the launcher's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent_bench import FakeController, Folder


@pytest.fixture
def controller() -> Iterator[FakeController]:
    fake = FakeController()
    yield fake
    fake.close()


@pytest.fixture
def folder(tmp_path: Path, controller: FakeController) -> Folder:
    return Folder(tmp_path, controller.url)
