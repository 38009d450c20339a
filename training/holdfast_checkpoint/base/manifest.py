"""Holdfast's own layout: ``step-0000120-j4711-r2.0.0/`` with files and, written last, ``MANIFEST.json``.

The run is part of the folder's name, so two writers never share a folder whatever happens to the fence; so is the
number of the save where a run saves one step again (``-s2``), so that nothing is written into a complete checkpoint.
Each rank writes below ``rank-00000/`` and hands in a receipt with sizes and digests; rank 0 merges the receipts into
the manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from holdfast_checkpoint.base.runs import RunId, parse_run

MANIFEST = "MANIFEST.json"
VERSION = 1
_FOLDER = re.compile(r"step-(\d{7,15})-(j[A-Za-z0-9_]{1,64}-r\d{1,9}\.\d{1,9}\.\d{1,9})(?:-s([1-9]\d{0,5}))?")
_FILES_MAX = 100_000
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class CheckpointManifest:
    """Content of a committed checkpoint."""

    step: int
    run: RunId
    world_size: int
    files: Mapping[str, FileEntry]
    """By path below the folder, at most one folder deep."""
    created_at: datetime | None = None
    """The writer's clock, UTC; only for display. None: not stated."""

    @property
    def size_bytes(self) -> int:
        return sum(f.size_bytes for f in self.files.values())


def folder_name(step: int, run: RunId, number: int = 1) -> str:
    """Name of the folder that this run writes this step into. ``number``: how often it has saved this step, this time included."""
    return f"step-{step:07d}-{run}" + (f"-s{number}" if number > 1 else "")


def parse_folder_name(name: str) -> tuple[int, RunId] | None:
    """(step, run) of a folder's name; None when it is not one of ours."""
    match = _FOLDER.fullmatch(name)
    return (int(match[1]), parse_run(match[2])) if match else None


def save_number(name: str) -> int:
    """Which save of its step by its run a folder of ours holds: 1 is the first. 0 when the name is not one of ours."""
    match = _FOLDER.fullmatch(name)
    return int(match[3] or 1) if match else 0


def receipt_name(rank: int) -> str:
    return f"receipt-{rank:05d}.json"


def rank_folder(rank: int) -> str:
    return f"rank-{rank:05d}"


def dump_manifest(manifest: CheckpointManifest) -> bytes:
    """The manifest as JSON."""
    created = (
        (manifest.created_at or datetime.now(timezone.utc)).astimezone(timezone.utc).isoformat(timespec="milliseconds")
    )
    return dump_json(
        {
            "v": VERSION,
            "step": manifest.step,
            "run": str(manifest.run),
            "world_size": manifest.world_size,
            "created_at": created,
            "files": dump_files(manifest.files),
        }
    )


def dump_receipt(step: int, run: RunId, rank: int, world_size: int, files: Mapping[str, FileEntry]) -> bytes:
    """Receipt of one rank, as JSON."""
    said = {"v": VERSION, "step": step, "run": str(run), "rank": rank, "world_size": world_size}
    return dump_json({**said, "files": dump_files(files)})


def dump_files(files: Mapping[str, FileEntry]) -> dict[str, dict[str, object]]:
    return {path: {"bytes": f.size_bytes, "sha256": f.sha256} for path, f in sorted(files.items())}


def parse_manifest(value: Mapping[str, Any]) -> CheckpointManifest:
    """Parse a manifest and check every field. Raises ValueError with the reason."""
    if value.get("v") != VERSION:
        raise ValueError(f"version {str(value.get('v'))[:20]!r}")
    step, world_size = value.get("step"), value.get("world_size")
    if type(step) is not int or step < 0 or type(world_size) is not int or not 0 < world_size < 1_000_000:
        raise ValueError("step or world_size")
    try:
        created = datetime.fromisoformat(str(value.get("created_at")))
    except ValueError:
        created = None
    if created is not None and created.tzinfo is None:
        created = None
    return CheckpointManifest(
        step, parse_run(str(value.get("run"))), world_size, parse_files(value.get("files")), created
    )


def parse_receipt(value: Mapping[str, Any], step: int, run: RunId, rank: int, world_size: int) -> dict[str, FileEntry]:
    """The files of a receipt of exactly this step, run, rank and number of ranks (which older releases do not say). Raises ValueError."""
    if (value.get("v"), value.get("step"), value.get("run"), value.get("rank")) != (VERSION, step, str(run), rank):
        raise ValueError("a receipt of another save")
    if (wrote := value.get("world_size", world_size)) != world_size:
        raise ValueError(f"rank {rank} saves with {str(wrote)[:20]} ranks, rank 0 with {world_size}")
    return parse_files(value.get("files"))


def parse_files(value: object) -> dict[str, FileEntry]:
    """Parse the table of paths, sizes and digests, with limits. Raises ValueError for anything else."""
    if not isinstance(value, dict) or len(value) > _FILES_MAX:
        raise ValueError("files")
    files: dict[str, FileEntry] = {}
    for path, entry in value.items():
        size, digest = (entry.get("bytes"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
        if not safe_path(path) or type(size) is not int or size < 0 or not _DIGEST.fullmatch(str(digest)):
            raise ValueError(f"file {str(path)[:80]!r}")
        files[path] = FileEntry(size, str(digest))
    return files


def safe_path(path: str) -> bool:
    """Whether a path is one name, or a folder and a name, that stays in the folder and is printable."""
    parts = path.split("/")
    return len(parts) <= 2 and path.isprintable() and all(p not in {"", ".", ".."} for p in parts)


def digest_fd(fd: int) -> FileEntry:
    """Size and SHA-256 of an open file, read from its start."""
    digest, size = hashlib.sha256(), 0
    while chunk := os.pread(fd, 1 << 20, size):
        digest.update(chunk)
        size += len(chunk)
    return FileEntry(size, digest.hexdigest())


def dump_json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
