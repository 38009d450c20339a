"""Completeness of archives of ``torch.save`` and safetensors, checked by their directories. Nothing is unpacked.

A zip's directory and a tar's empty blocks are written last, and a safetensors header has the end of the data, so a truncated file is
always detected. Blocks lost in the middle of a file are not; only digests would show them.
"""

from __future__ import annotations

import json
import struct

from holdfast_checkpoint.base.confined import Bad, OpenFile, torn
from holdfast_checkpoint.base.model import CheckpointVerdict

_LOCAL, _CENTRAL, _END, _END64, _LOCATOR64 = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_LOCAL_SIZE, _END_SIZE, _END64_SIZE, _LOCATOR64_SIZE, _CENTRAL_SIZE = 30, 22, 56, 20, 46
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_PICKLES = {b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"}
_TAR, _TAR_BLOCK = b"ustar", 512
_LOCAL_CHECKS = 4096
"""Local headers checked per archive; one torch.save of a large model has some thousand records."""
_SAFETENSORS_HEADER_MAX = 32 << 20
"""The format allows 100 MB (safetensors README, "Format"); real headers have a few hundred bytes a tensor."""


def begins_as_torch(file: OpenFile) -> bool:
    """Whether the file starts as a zip archive of ``torch.save`` does: its first entry is the pickle."""
    start = file.read_at(0, min(file.size_bytes, _LOCAL_SIZE + 512))
    if start[:4] != _LOCAL or len(start) < _LOCAL_SIZE:
        return False
    length = struct.unpack("<H", start[26:28])[0]
    return start[_LOCAL_SIZE : _LOCAL_SIZE + length].endswith(b"/data.pkl")


def check_archive(file: OpenFile) -> None:
    """Raise Bad unless the file is one complete archive of ``torch.save``: a zip since PyTorch 1.6, a tar before 0.2."""
    if file.size_bytes >= _TAR_BLOCK and file.read_at(0, _TAR_BLOCK)[257:262] == _TAR:
        _check_tar(file)
    else:
        _check_zip(file)


def _check_zip(file: OpenFile) -> None:
    if file.size_bytes < _END_SIZE:
        raise torn(f"{file.name} has only {file.size_bytes} bytes")
    start = file.read_at(0, 4)
    if start[:2] in _PICKLES:
        reason = f"{file.name} was saved without a zip archive (before PyTorch 1.6): whether it is complete is unknown without unpickling"
        raise Bad(CheckpointVerdict.UNREADABLE, reason)
    if start != _LOCAL and any(start):
        raise Bad(
            CheckpointVerdict.UNREADABLE, f"{file.name} is not a zip archive, so it is unknown whether it is complete"
        )
    if start != _LOCAL:
        raise torn(f"{file.name} is not a zip archive but begins with zeros")
    start_at, size, entries = _directory(file)
    if start_at != 0:
        raise torn(f"{file.name}: its zip directory does not fit the file")
    _check_entries(file, *_directory_at(file, size), entries)


def ends_as_zip(file: OpenFile) -> bool:
    """Whether the file starts and ends as zip archives do; a DCP data file is a sequence of them."""
    if file.size_bytes < _END_SIZE or file.read_at(0, 4) != _LOCAL:
        return False
    try:
        _directory(file)
    except Bad:
        return False
    return True


def _directory(file: OpenFile) -> tuple[int, int, int]:
    """(where the archive starts in the file, size of its directory, number of entries) from the end records."""
    end_at = file.size_bytes - _END_SIZE
    end = file.read_at(end_at, _END_SIZE)
    if end[:4] != _END:
        raise torn(f"{file.name} does not end with a zip directory")
    entries, size, offset, comment = struct.unpack("<HLLH", end[10:22])
    if comment:
        raise torn(f"{file.name} has a zip comment, which torch.save never writes")
    directory_end = end_at
    locator_at = end_at - _LOCATOR64_SIZE
    if locator_at >= _END64_SIZE and file.read_at(locator_at, 4) == _LOCATOR64:
        directory_end = locator_at - _END64_SIZE
        record = file.read_at(directory_end, _END64_SIZE)
        if record[:4] != _END64:
            raise torn(f"{file.name}: its zip64 directory is damaged")
        entries, size, offset = struct.unpack("<QQQ", record[32:56])
    elif _FULL32 in (size, offset) or entries == _FULL16:
        raise torn(f"{file.name}: its zip64 directory is missing")
    start = directory_end - size - offset
    if start < 0 or (size and file.read_at(directory_end - size, 4) != _CENTRAL):
        raise torn(f"{file.name}: its zip directory does not fit the file")
    return start, size, entries


def _directory_at(file: OpenFile, size: int) -> tuple[bytes, int]:
    if size > file.walk.limits.small_file_bytes:
        raise Bad(CheckpointVerdict.UNREADABLE, f"{file.name}: its zip directory has {size} bytes, too many to be read")
    end_at = file.size_bytes - _END_SIZE
    locator_at = end_at - _LOCATOR64_SIZE
    zip64 = locator_at >= _END64_SIZE and file.read_at(locator_at, 4) == _LOCATOR64
    at = (locator_at - _END64_SIZE if zip64 else end_at) - size
    return file.read_at(at, size), at


def _check_entries(file: OpenFile, directory: bytes, directory_at: int, entries: int) -> None:
    position = count = 0
    while position < len(directory):
        fixed = directory[position : position + _CENTRAL_SIZE]
        if len(fixed) < _CENTRAL_SIZE or fixed[:4] != _CENTRAL:
            raise torn(f"{file.name}: its zip directory is damaged")
        packed, _, name, extra, comment = struct.unpack("<LLHHH", fixed[20:34])
        offset = struct.unpack("<L", fixed[42:46])[0]
        if _FULL32 not in (packed, offset) and offset + _LOCAL_SIZE + packed > directory_at:
            raise torn(f"{file.name}: a zip entry reaches past the data")
        if offset != _FULL32 and count < _LOCAL_CHECKS and file.read_at(offset, 4) != _LOCAL:
            raise torn(f"{file.name}: a zip entry is not where the directory says")
        position += _CENTRAL_SIZE + name + extra + comment
        count += 1
    if count != entries or position != len(directory):
        raise torn(f"{file.name}: its zip directory lists {count} of {entries} entries")


def _check_tar(file: OpenFile) -> None:
    position = 0
    while any(header := file.read_at(position, _TAR_BLOCK)):
        try:
            size = int(header[124:136].rstrip(b"\0 ") or b"0", 8)
        except ValueError as error:
            raise Bad(CheckpointVerdict.UNREADABLE, f"{file.name} is a tar archive of an unknown kind") from error
        if header[257:262] != _TAR or size < 0:
            raise torn(f"{file.name}: a tar entry is damaged")
        position += _TAR_BLOCK + -(-size // _TAR_BLOCK) * _TAR_BLOCK


def check_safetensors(file: OpenFile) -> None:
    """Raise Bad unless the file has exactly the length given by its header."""
    length = struct.unpack("<Q", file.read_at(0, 8))[0]
    if length > _SAFETENSORS_HEADER_MAX:
        raise torn(f"{file.name}: a header of {length} bytes")
    header = load_json(file.read_at(8, length), file.name)
    ends = [0]
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(o) is int for o in offsets)):
            raise torn(f"{file.name}: a header entry without data_offsets")
        ends.append(offsets[1])
    if file.size_bytes != 8 + length + max(ends):
        raise torn(f"{file.name} has {file.size_bytes} bytes, its header calls for {8 + length + max(ends)}")


def load_json(data: bytes, name: str) -> dict[str, object]:
    """Parse a JSON object. Raises Bad(TORN) for anything else, however nested or long its numbers are."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise torn(f"{name} is not valid JSON") from error
    if not isinstance(value, dict):
        raise torn(f"{name} is not a JSON object")
    return value
