"""Hand in the files of one rank, and publish those of all ranks atomically."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast_checkpoint import durable
from holdfast_checkpoint.base.confined import Bad
from holdfast_checkpoint.base.manifest import (
    MANIFEST,
    CheckpointManifest,
    FileEntry,
    digest_fd,
    dump_manifest,
    dump_receipt,
    parse_manifest,
    parse_receipt,
    receipt_name,
)
from holdfast_checkpoint.base.model import CheckpointError, RanksMissing
from holdfast_checkpoint.base.runs import RunId
from holdfast_checkpoint.layouts.archives import load_json

POLL_S = 0.02


def hand_in(
    folder: Path, names: Sequence[str], step: int, run: RunId, rank: int, world_size: int
) -> dict[str, FileEntry]:
    """Make this rank's files durable and write a receipt for rank 0. ``names`` are paths below the folder.

    Returns size and digest of each. Raises OSError; ELOOP for a link; CheckpointError where the checkpoint is complete already."""
    _must_be_open(folder)
    files: dict[str, FileEntry] = {}
    for name in sorted(names):
        fd = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(fd)
            files[name] = digest_fd(fd)
        finally:
            os.close(fd)
    for parent in sorted({(folder / name).parent for name in names}):
        durable.sync_folder(str(parent))
    _must_be_open(folder)
    durable.replace(str(folder / receipt_name(rank)), dump_receipt(step, run, rank, world_size, files))
    return files


def handed_in(folder: Path, rank: int) -> bool:
    """Whether the rank has handed in its files of this save, or all ranks have. Raises OSError."""
    return (folder / receipt_name(rank)).exists() or (folder / MANIFEST).exists()


def empty_folder(folder: Path) -> Path:
    """Create the folder, without the files of an interrupted save.

    Raises OSError; CheckpointError within a checkpoint that is complete."""
    _must_be_open(folder.parent)
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def receipts(folder: Path, ranks: int, step: int, run: RunId, timeout_s: float) -> dict[str, FileEntry]:
    """The receipts of ranks 1 and up, as they arrive. Raises RanksMissing, CheckpointError for an invalid one."""
    files: dict[str, FileEntry] = {}
    for rank in range(1, ranks):
        files.update(_receipt(folder, step, run, rank, ranks, timeout_s))
    return files


def world_that_wrote(folder: Path, rank: int) -> int | None:
    """How many ranks wrote a committed checkpoint of Holdfast's layout; None: fewer than needed. Raises CheckpointError, OSError."""
    try:
        said = load_json((folder / receipt_name(rank)).read_bytes(), receipt_name(rank)).get("world_size")
        if said is None:  # of a release before 0.1.0a3
            said = parse_manifest(load_json((folder / MANIFEST).read_bytes(), MANIFEST)).world_size
    except FileNotFoundError:
        return None
    except (ValueError, Bad) as error:
        raise CheckpointError(f"{folder}: {error}") from error
    return said if type(said) is int else None


def publish(folder: Path, manifest: CheckpointManifest, check: Callable[[], None]) -> None:
    """Write the manifest; the checkpoint is complete when this returns, and not before.

    ``check`` is called right before the rename, and raises FencedOff if this run may no longer commit.
    Raises CheckpointError where there is a manifest already: it is never replaced."""
    _must_be_open(folder)
    temporary = folder / f".{MANIFEST}.tmp"
    durable.write_new(str(temporary), dump_manifest(manifest))
    check()
    _must_be_open(folder)
    os.rename(temporary, folder / MANIFEST)
    durable.sync_folder(str(folder))


def _must_be_open(folder: Path) -> None:
    if (folder / MANIFEST).exists():
        raise CheckpointError(
            f"{folder} is complete already, and nothing is written into it: two processes or two saves had one name"
        )


def _receipt(folder: Path, step: int, run: RunId, rank: int, world_size: int, timeout_s: float) -> dict[str, FileEntry]:
    ends_at = time.monotonic() + timeout_s
    while True:
        try:
            data = (folder / receipt_name(rank)).read_bytes()
            return parse_receipt(load_json(data, receipt_name(rank)), step, run, rank, world_size)
        except FileNotFoundError:
            if time.monotonic() > ends_at:
                raise RanksMissing(f"rank {rank} did not hand in step {step} in {timeout_s:g} s") from None
        except (ValueError, Bad) as error:
            raise CheckpointError(f"{folder / receipt_name(rank)}: {error}") from error
        time.sleep(POLL_S)
