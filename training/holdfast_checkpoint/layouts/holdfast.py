"""Holdfast's own layout: verified by its manifest (:mod:`holdfast_checkpoint.base.manifest`)."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack

from holdfast_checkpoint.base.confined import OpenFile, OpenFolder, torn
from holdfast_checkpoint.base.manifest import MANIFEST, CheckpointManifest, FileEntry, parse_folder_name, parse_manifest
from holdfast_checkpoint.base.model import Proof
from holdfast_checkpoint.layouts.archives import load_json
from holdfast_checkpoint.layouts.common import CheckpointEntry, Judged


def judge(entry: CheckpointEntry, digests: bool | None = None) -> Judged:
    """Raise Bad unless every file of the manifest exists with its size and, with ``digests``, its content.

    ``digests`` None: recomputed when the checkpoint is small enough (Limits.digest_bytes)."""
    with entry.root.folder(entry.name) as folder:
        manifest = _manifest(folder)
        if parse_folder_name(entry.name) != (manifest.step, manifest.run):
            raise torn(f"{MANIFEST} is of another checkpoint")
        if digests is None:
            digests = manifest.size_bytes <= folder.walk.limits.digest_bytes
        with ExitStack() as stack:
            folders = {"": folder}
            for path, expected in manifest.files.items():
                parent, _, name = path.rpartition("/")
                if parent not in folders:
                    folders[parent] = stack.enter_context(folder.folder(parent))
                _check(folders[parent], name, path, expected, digests)
    return Judged(manifest.step, manifest.size_bytes, Proof.DIGESTS if digests else Proof.SIZES, manifest.run)


def _manifest(folder: OpenFolder) -> CheckpointManifest:
    if folder.status(MANIFEST) is None:
        raise torn(f"no {MANIFEST}: the save did not finish")
    with folder.file(MANIFEST) as file:
        value = load_json(file.read_small(), MANIFEST)
    try:
        manifest = parse_manifest(value)
    except ValueError as error:
        raise torn(f"{MANIFEST} is damaged: {error}") from error
    if not manifest.files:
        raise torn(f"{MANIFEST} lists no file: there is nothing to resume from")
    return manifest


def _check(folder: OpenFolder, name: str, path: str, expected: FileEntry, digests: bool) -> None:
    with folder.file(name) as file:
        if file.size_bytes != expected.size_bytes:
            raise torn(f"{path} has {file.size_bytes} bytes, the manifest says {expected.size_bytes}")
        if digests and _sha256(file) != expected.sha256:
            raise torn(f"the content of {path} is not what the manifest says")


def _sha256(file: OpenFile) -> str:
    digest, position = hashlib.sha256(), 0
    while position < file.size_bytes:
        file.walk.tick()
        chunk = os.pread(file.fd, 1 << 20, position)
        if not chunk:
            raise torn(f"{file.name} is cut short")
        digest.update(chunk)
        position += len(chunk)
    return digest.hexdigest()
