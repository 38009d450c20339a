"""Just enough of ELF to read a number that a plug-in exports, without loading it."""

from __future__ import annotations

import struct

_MAGIC = b"\x7fELF\x02\x01"
"""64 bits, little endian: all that Slurm's GPU nodes are."""
_DYNSYM = 11
_HEADER = struct.Struct("<40xQ10xHH")
_SECTION = struct.Struct("<4xI8xQQQI12xQ")
_SYMBOL = struct.Struct("<IBBHQQ")


def exported_uint32(image: bytes, name: str) -> int | None:
    """The value of an exported 32-bit constant; None: no such symbol, or no file of this kind."""
    try:
        return _read(image, name.encode())
    except (struct.error, IndexError, ValueError, OverflowError):
        return None


def _read(image: bytes, name: bytes) -> int | None:
    if not image.startswith(_MAGIC):
        return None
    table, size, count = _HEADER.unpack_from(image)
    sections = [_SECTION.unpack_from(image, table + size * number) for number in range(count)]
    for kind, _, offset, length, strings, entry in sections:
        if kind != _DYNSYM or not entry:
            continue
        names = sections[strings][2]
        for at in range(offset, offset + length, entry):
            where, _, _, section, value, _ = _SYMBOL.unpack_from(image, at)
            start = names + where
            if image[start : image.index(b"\0", start)] == name and section:
                _, address, begin, *_ = sections[section]
                return int.from_bytes(_four(image, begin + value - address), "little")
    return None


def _four(image: bytes, at: int) -> bytes:
    if not 0 <= at <= len(image) - 4:
        raise ValueError(f"offset {at} is outside the file")
    return image[at : at + 4]
