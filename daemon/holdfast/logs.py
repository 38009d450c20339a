"""Logging of the daemons: one line per record on stderr, key=value or JSON, in UTC with milliseconds.

The message of a record starts with ``event=NAME`` (a lint rule keeps it so); one of a library gets ``event=message``."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

FORMATS = ("text", "json")
_LIBRARIES = {
    "alembic": logging.WARNING,
    "botocore": logging.WARNING,
    "urllib3": logging.ERROR,
    "uvicorn.error": logging.WARNING,
    "werkzeug": logging.WARNING,
}


class Formatter(logging.Formatter):
    """``2026-01-01T00:00:00.000Z level=info logger=holdfast.x node=n1 event=…``, or the same as one JSON object.

    What does not print is escaped: no value can start another line."""

    def __init__(self, form: str, node: str = "") -> None:
        super().__init__()
        self._json, self._node = form == "json", {"node": node} if node else {}

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        message = record.getMessage()
        if not message.startswith("event="):
            message = f"event=message text={message!r}"
        named = {"level": record.levelname.lower(), "logger": record.name, **self._node}
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._json:
            said = {"event": message.split()[0].removeprefix("event="), "message": message}
            return json.dumps({"time": at, **named, **said, **({"exception": trace} if trace else {})})
        words = (f"{key}={value}" for key, value in named.items())
        return _printable(" ".join((at, *words, message, *([f"exception={trace!r}"] if trace else []))))


def set_up(form: str = "text", level: str = "info", node: str = "") -> None:
    """Send the log to stderr. ``form``: one of ``FORMATS``. ``node``: this machine's name, for logs collected from many."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(form, node))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, least in _LIBRARIES.items():
        logging.getLogger(name).setLevel(least)


def _printable(line: str) -> str:
    return line if line.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
