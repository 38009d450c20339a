"""Runs that returned to one of their earlier steps (after a loss spike), and the checkpoints abandoned by that.

``.holdfast-fence/back-step-0000060-j5-r0.0.0.json`` is written right before that save is committed. It names the checkpoints of
the same run of later steps that were complete when the save began: they count only where nothing else is complete. A save that
overlapped with them is an asynchronous one that was late, and abandons nothing. Older releases ignore the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast_checkpoint import durable
from holdfast_checkpoint.base.confined import Bad, OpenFolder
from holdfast_checkpoint.base.manifest import dump_json, parse_folder_name
from holdfast_checkpoint.base.model import CheckpointVerdict
from holdfast_checkpoint.fence import FOLDER, Fence
from holdfast_checkpoint.layouts.archives import load_json

_NAME = re.compile(r"back-(step-.{1,200})\.json")


def record(directory: str, save: str, abandoned: Sequence[str]) -> None:
    """Record which checkpoints a run abandons with a save (names of folders). Raises OSError."""
    folder = os.path.join(directory, FOLDER)
    data = dump_json({"v": 1, "abandoned": sorted(abandoned)})
    durable.create(os.path.join(folder, f"back-{save}.json"), data, os.path.join(folder, f".back-{save}.tmp"))


def read_abandoned(root: OpenFolder, fences: Sequence[Fence]) -> tuple[frozenset[str], tuple[str, ...]]:
    """(Names of abandoned checkpoints, one line for each file that does not count). Raises Bad when they cannot be read.

    One from which a run was started counts again."""
    if root.status(FOLDER) is None:
        return frozenset(), ()
    abandoned: set[str] = set()
    warnings: list[str] = []
    with root.folder(FOLDER) as folder:
        for name in folder.names():
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            try:
                with folder.file(name) as file:
                    abandoned.update(_named(match[1], load_json(file.read_small(), name)))
            except Bad as error:
                if error.verdict is CheckpointVerdict.UNREADABLE:
                    raise
                warnings.append(f"{FOLDER}/{name} left out: {error.reason}")
            except ValueError as error:
                warnings.append(f"{FOLDER}/{name} left out: {error}")
    return frozenset(abandoned - {fence.resumed_name for fence in fences}), tuple(warnings)


def _named(save: str, value: Mapping[str, Any]) -> list[str]:
    """Only later ones of the same run: a run cannot abandon another run's."""
    own, names = parse_folder_name(save), value.get("abandoned")
    if own is None or value.get("v") != 1 or not isinstance(names, list):
        raise ValueError("not of a known version")
    for name in names:
        other = parse_folder_name(name) if isinstance(name, str) else None
        if other is None or other[1] != own[1] or other[0] <= own[0]:
            raise ValueError("it names what is no later checkpoint of its run")
    return names
