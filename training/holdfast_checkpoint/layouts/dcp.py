"""PyTorch Distributed Checkpoint: ``.metadata`` and ``__RANK_N.distcp`` files.

torch/distributed/checkpoint/filesystem.py: every rank writes (and fsyncs) its data files, then the coordinator writes
``.metadata.tmp`` and renames it. So ``.metadata`` is there only after a save that finished. It is a pickle; it is
read as a sequence of tokens with :mod:`pickletools`, which looks opcodes up in a table and imports and calls nothing. The
tokens give every file with offset and length of its items (``_StorageInfo``), hence the least size of each file.

A second save into the same folder leaves ``.metadata`` as it is until it has finished. Until then it shows by a newer data file:
the coordinator's own (rank 0) newer by any time, others by more than their nodes' clocks may differ.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Iterator
from typing import Union

from holdfast_checkpoint.base.confined import OpenFolder, torn
from holdfast_checkpoint.base.model import Proof
from holdfast_checkpoint.layouts.archives import ends_as_zip
from holdfast_checkpoint.layouts.common import SKEW_S, CheckpointEntry, Judged, written_before
from holdfast_checkpoint.layouts.steps import step_in

METADATA = ".metadata"
_DATA_FILE = re.compile(r"__\d{1,9}_\d{1,9}\.distcp")
_DATA_FILE_BYTES = re.compile(rb"__\d{1,9}_\d{1,9}\.distcp")
_OFFSET_MAX = 1 << 63
_Token = Union[str, int, None]


def judge(entry: CheckpointEntry) -> Judged:
    """Raise Bad unless the save finished and every data file has at least the length given by ``.metadata``."""
    with entry.root.folder(entry.name) as folder:
        size, proof = judge_folder(folder)
    return Judged(step_in(entry.name), size, proof)


def judge_folder(folder: OpenFolder) -> tuple[int, Proof]:
    """(size in bytes, level of proof) of a DCP folder. Raises Bad."""
    if folder.status(METADATA) is None:
        raise torn("no .metadata: the save did not finish")
    with folder.file(METADATA) as file:
        data, finished_s = file.read_small(), file.mtime_s
    if not (data.startswith(b"\x80") and data.endswith(b".")):
        raise torn(".metadata is damaged")
    named = {name.decode() for name in _DATA_FILE_BYTES.findall(data)}
    if not named:
        raise torn(".metadata names no data file")
    least = least_sizes(data, folder)
    total = len(data)
    for name in sorted(named):
        total += _check_data_file(folder, name, least.get(name), finished_s)
    return total, Proof.SIZES if named <= least.keys() else Proof.STRUCTURE


def _check_data_file(folder: OpenFolder, name: str, least: int | None, finished_s: float) -> int:
    with folder.file(name) as file:
        if least is not None and file.size_bytes < least:
            raise torn(f"{name} has {file.size_bytes} bytes, .metadata calls for {least}")
        if file.size_bytes == 0 and least != 0:
            raise torn(f"{name} is empty")
        if file.size_bytes >= 4 and file.read_at(0, 4) == b"PK\x03\x04" and not ends_as_zip(file):
            raise torn(f"{name} does not end with a zip directory")
        coordinators = name.startswith("__0_")
        written_before(METADATA, finished_s, name, file.mtime_s, slack_s=0.0 if coordinators else SKEW_S)
        return file.size_bytes


def least_sizes(data: bytes, folder: OpenFolder) -> dict[str, int]:
    """Data file → least size in bytes, from the tokens of ``.metadata``. Files whose items cannot be read are absent."""
    sizes: dict[str, int] = {}
    fields: dict[str, _Token] = {}
    key: str | None = None
    try:
        for count, token in enumerate(_tokens(data)):
            if not count % 4096:
                folder.walk.tick()
            if token == "relative_path":  # noqa: S105 - a field's name
                fields = {}
            if key is not None:
                fields[key], key = token, None
                _note(sizes, fields)
            elif token in ("relative_path", "offset", "length"):
                key = str(token)
    except (ValueError, IndexError) as error:
        raise torn(".metadata is damaged") from error
    return sizes


def _note(sizes: dict[str, int], fields: dict[str, _Token]) -> None:
    path, offset, length = fields.get("relative_path"), fields.get("offset"), fields.get("length")
    if not (isinstance(offset, int) and isinstance(length, int)):
        return
    if not (0 <= offset < _OFFSET_MAX and 0 <= length < _OFFSET_MAX):
        raise ValueError("no offset or length of a file")
    if isinstance(path, str) and _DATA_FILE.fullmatch(path):
        sizes[path] = max(sizes.get(path, 0), offset + length)
        fields.clear()


def _tokens(data: bytes) -> Iterator[_Token]:
    """Strings and numbers in the order in which they would be pushed; memoized ones are repeated where used."""
    memo: dict[int, _Token] = {}
    last: _Token = None
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name == "MEMOIZE":
            memo[len(memo)] = last
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[int(str(argument))] = last
        elif name in ("BINGET", "LONG_BINGET"):
            last = memo.get(int(str(argument)))
            yield last
        else:
            last = argument if name.startswith(("BININT", "BINUNICODE", "SHORT_BINUNICODE", "LONG")) else None
            if isinstance(last, (str, int)):
                yield last
