"""The file in which an agent keeps which checks act; a run by hand (``holdfast-checks``) reads it too."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast_checks.acting import Lists, parsed
from holdfast_checks.whole_file import write_whole

FILE = "acting.json"
"""In the agent's ``state_dir``: what the controller gave last."""


def kept(state_dir: Path) -> Lists:
    """What the controller gave last; nothing where that is not known: then new checks observe."""
    try:
        found = parsed(json.loads((state_dir / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        found = None
    return found or Lists()


def keep(state_dir: Path, lists: Lists) -> None:
    """Write the file. Raises OSError."""
    write_whole(state_dir / FILE, json.dumps({"act_on": lists.act_on, "observe_only": lists.observe_only}))
