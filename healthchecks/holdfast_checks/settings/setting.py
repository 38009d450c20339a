"""One setting: its default, its sentence in the example file, its range. Standard library only."""

from __future__ import annotations

import dataclasses
from typing import Any


def setting(default: Any, doc: str, *, low: float | None = None, high: float | None = None) -> Any:
    """A dataclass field with one sentence for ``agent.toml`` and, for numbers, the allowed range (both ends included)."""
    metadata = {"doc": doc, "low": low, "high": high}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)
