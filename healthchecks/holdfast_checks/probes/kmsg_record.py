"""The record format of ``/dev/kmsg`` (Documentation/ABI/testing/dev-kmsg). Pure text; no I/O.

``prefix,sequence,microseconds,flags[,caller=…];message``, then continuation lines that begin with a space
(key=value pairs of the device). Bytes that are not printable ASCII are escaped as ``\\xNN``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FACILITY_KERNEL = 0
"""Only the kernel itself writes records of this facility; writers to /dev/kmsg get ``user`` or what they ask for above 0."""

_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})")
_MAX_MESSAGE_CHARS = 8192


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One record of the kernel log."""

    seq: int
    monotonic_us: int
    """The record's own time on the kernel's clock since boot, in microseconds."""
    facility: int
    priority: int
    message: str
    """Unescaped; may hold line ends that the kernel was given inside one message."""
    history: bool = False
    """It was there before the follower started: to be recorded, never acted upon."""

    @property
    def from_kernel(self) -> bool:
        """Written by the kernel, not by a user through /dev/kmsg."""
        return self.facility == FACILITY_KERNEL

    @property
    def monotonic_s(self) -> float:
        return self.monotonic_us / 1e6


def parse(text: str, *, history: bool = False) -> KernelRecord | None:
    """The record in one text (with or without its continuation lines); None for anything that is not one."""
    head, semicolon, body = text.partition(";")
    values = head.split(",")
    if not semicolon or len(values) < 4 or not all(_is_number(value) for value in values[:3]):
        return None
    prefix, seq, monotonic_us = (int(value) for value in values[:3])
    message = body.split("\n", 1)[0][:_MAX_MESSAGE_CHARS]
    return KernelRecord(seq, monotonic_us, prefix >> 3, prefix & 7, _unescape(message), history)


def render(record: KernelRecord) -> str:
    """The record as a line of the format, for kernel logs made by a practice cluster or a test."""
    prefix = record.facility << 3 | record.priority
    return f"{prefix},{record.seq},{record.monotonic_us},-;{_escape(record.message)}\n"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20


def _unescape(text: str) -> str:
    if "\\x" not in text:
        return text
    raw = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
    try:
        return raw.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return raw


def _escape(text: str) -> str:
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}" for byte in text.encode("utf-8")
    )
