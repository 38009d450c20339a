"""The log of the daemons: one record is one line, whatever its values are."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from holdfast.logs import FORMATS, Formatter

FORGED = "n1\n2026-01-01T00:00:00.000Z level=error event=forged\r\x1b[2J\x85\u2028\u202e\0end"


def line(form: str, message: str, *args: object, node: str = "") -> str:
    record = logging.LogRecord("holdfast.x", logging.WARNING, __file__, 1, message, args, None)
    record.created = 1767225600.0429
    try:
        raise ValueError(FORGED)
    except ValueError:
        record.exc_info = sys.exc_info() if "broke" in message else None
    return Formatter(form, node).format(record)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("message", ["event=seen node=%s", "event=broke node=%s", "a library's words: %s"])
def test_no_value_starts_another_line(form: str, message: str) -> None:
    assert line(form, message, FORGED, node="n9").isprintable()


def test_a_line_of_text() -> None:
    found = line("text", "event=seen node=%s", "n1", node="n9")
    assert found == "2026-01-01T00:00:00.042Z level=warning logger=holdfast.x node=n9 event=seen node=n1"


def test_a_line_of_json() -> None:
    assert json.loads(line("json", "event=seen node=%s", FORGED)) == {
        "time": "2026-01-01T00:00:00.042Z",
        "level": "warning",
        "logger": "holdfast.x",
        "event": "seen",
        "message": f"event=seen node={FORGED}",
    }


def test_a_librarys_line_has_an_event_too() -> None:
    assert line("text", "no event").endswith("event=message text='no event'")
    assert "ValueError" in json.loads(line("json", "event=broke"))["exception"]
