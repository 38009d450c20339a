"""What all rooms' tests share."""

from __future__ import annotations

import pytest

pytest_plugins = ["support.practice"]

_SLOW = ("slurm", "postgresql", "soak")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first, so that a mistake shows in seconds; those that start servers after them, in their own order."""
    items.sort(key=lambda item: any(item.get_closest_marker(name) for name in _SLOW))
