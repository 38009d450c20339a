"""Fixtures of the plug-ins' tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.slurm_plugins import FakeAgent, has_headers, make


@pytest.fixture(scope="session")
def helper(short_folder: Path) -> Path:
    """``holdfast-ask``."""
    if shutil.which("cc") is None or shutil.which("make") is None:
        pytest.skip("no compiler or no make here; ./dev setup installs them")
    make(short_folder, f"{short_folder}/holdfast-ask")
    return short_folder / "holdfast-ask"


@pytest.fixture(scope="session")
def plugin(short_folder: Path) -> Path:
    """``spank_holdfast.so`` for the Slurm of this machine."""
    if not has_headers():
        pytest.skip("no slurm/spank.h here (Debian: libslurm-dev); ./dev setup installs it")
    make(short_folder, f"{short_folder}/spank_holdfast.so")
    return short_folder / "spank_holdfast.so"


@pytest.fixture
def fake_agent(short_folder: Path) -> Iterator[FakeAgent]:
    """Started; set ``answer`` and ``delay_s``."""
    agent = FakeAgent(short_folder / "fake.sock")
    agent.start()
    yield agent
    agent.stop()
