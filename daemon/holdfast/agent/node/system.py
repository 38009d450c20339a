"""System values: the time, ids of boot and machine."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from holdfast.model.errors import ConfigError


def utc_ms() -> str:
    """Now, ``2026-01-01T00:00:00.000Z``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_id(path: Path | None, what: str) -> str:
    """Read an id, the first token in a small file. Raises ConfigError when the file of a needed id cannot be read."""
    if path is None:
        return ""
    try:
        words = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: {path}: {error}") from error
    if not words:
        raise ConfigError(f"{what}: {path} is empty")
    return words[0][:100]
