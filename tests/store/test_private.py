"""Access to the database: not for every user of the head node."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.store import open_store


def test_a_new_database_is_not_for_everybody(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = open_store(f"sqlite:///{tmp_path}/holdfast.db")
        modes = {file.name: file.stat().st_mode & 0o007 for file in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert "holdfast.db" in modes
    assert set(modes.values()) == {0}
