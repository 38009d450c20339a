"""Small dealings with the system: log lines, ids of boot and machine."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path

from holdfast.model.errors import ConfigError


def utc_ms() -> str:
    """Now, ``2026-01-01T00:00:00.000Z``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Line(logging.Formatter):
    """``2026-01-01T00:00:00.000Z INFO node=n1 event=…``, always one line; or the same as one JSON object."""

    def __init__(self, node: str, shape: str) -> None:
        super().__init__()
        self._node = node
        self._json = shape == "json"

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += f" traceback={self.formatException(record.exc_info)!r}"
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._json:
            return json.dumps({"time": at, "level": record.levelname, "node": self._node, "message": text})
        return f"{at} {record.levelname} node={self._node} {text}".replace("\n", "\\n")


def set_up_logging(node: str, shape: str) -> None:
    """Log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line(node, shape))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("urllib3").setLevel(logging.ERROR)


def read_id(path: Path | None, what: str) -> str:
    """The first word of a small file. Raises ConfigError when the file of a needed id cannot be read."""
    if path is None:
        return ""
    try:
        words = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: {path}: {error}") from error
    if not words:
        raise ConfigError(f"{what}: {path} is empty")
    return words[0][:100]
