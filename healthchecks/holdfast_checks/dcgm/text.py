"""Reading JSON that a program of another version printed."""

from __future__ import annotations

import json
from typing import Any


def loads(text: str) -> dict[str, Any]:
    """The object in the text; lines before and after it are ignored. Raises ValueError."""
    try:
        root = json.loads(text[text.find("{") : text.rfind("}") + 1] or "null")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(root, dict):
        raise ValueError("no JSON object in the answer")
    return root


def line(text: str, length: int = 240) -> str:
    """One line without control characters, of bounded length."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:length]


def a_dict(raw: Any) -> dict[str, Any]:
    """What it is, or an empty one."""
    return raw if isinstance(raw, dict) else {}
