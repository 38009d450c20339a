"""Devices that this node has shown, kept in small files over restarts and reboots, so that a missing one can be named."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from holdfast_checks.aside import put_aside
from holdfast_checks.whole_file import write_whole

log = logging.getLogger(__name__)

_EFFECT = "devices are learned again; one that is gone by now is not missed"
_DO = "compare the node's devices with those of the file, then remove it"

_FORGOTTEN = "!"


def load(state_dir: Path | None, name: str) -> dict[str, str]:
    """What :func:`save` wrote; nothing where there is no folder, no file, or a file that is none of ours."""
    if state_dir is None:
        return {}
    path = state_dir / f"{name}.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        log.warning("event=known_unreadable path=%s error=%r effect=learned_again", path, error)
        return {}
    except (ValueError, RecursionError) as error:
        put_aside(path, error, _EFFECT, _DO)
        return {}
    if not isinstance(raw, dict):
        put_aside(path, f"it holds a {type(raw).__name__}", _EFFECT, _DO)
        return {}
    return {str(key): str(value) for key, value in raw.items()}


def save(state_dir: Path | None, name: str, known: Mapping[str, str]) -> None:
    """Replace the file as a whole. What cannot be written is logged: it will be learned again."""
    if state_dir is None:
        return
    path = state_dir / f"{name}.json"
    try:
        write_whole(path, json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    except OSError as error:
        log.warning("event=known_unwritable path=%s error=%r", path, error)


def split(raw: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
    """(what is known, keys that were known and whose place others have taken): a finding on one of those must still be cleared."""
    forgotten = frozenset(key for key, value in raw.items() if value == _FORGOTTEN)
    return {key: value for key, value in raw.items() if key not in forgotten}, forgotten


def joined(learned: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """What to keep: what was learned, and what was kept before and is no longer among it as forgotten."""
    return {**dict.fromkeys(before, _FORGOTTEN), **learned}
