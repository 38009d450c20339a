"""Meaning of the numbers in NVLink's Xids: the registers of 74 (up to NVLink 4) and the blocks of 144–150 (NVLink 5)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from holdfast_checks.result import Scalar

_LINK = re.compile(
    r"NVLink: (?P<what>[\w ]{1,40}?) (?:detected )?on link (?P<link>\d{1,2})\s?"
    r"\((?P<registers>0x[0-9a-fA-F]{1,8}(?:, ?0x[0-9a-fA-F]{1,8}){0,6})\)"
)
# Longer than the 15 characters of a process name, which a user chooses and the driver prints into its lines.
_BLOCK = re.compile(
    r"\b(?P<block>[A-Z][A-Z0-9_]{3,40}) (?P<fatal>Fatal|Non-?fatal) (?:XC\d+ i-?\d+ )?Link (?P<link>-?\d{1,3}) "
    r"\((?P<intr>0x[0-9a-fA-F]{1,8})(?:,? (?P<status>0x[0-9a-fA-F]{1,8}))?"
)


class LinkFault(StrEnum):
    """What the first register of Xid 74 points at (NVIDIA's Xid catalogue, workflow of NVLink errors, Hopper)."""

    HARDWARE = "hardware"
    """Parity or ECC within the link (bits 4, 5): once it may pass, twice on one link it is the hardware."""
    SIGNAL = "signal_margin"
    """The channel has too little margin (bits 21, 22)."""
    MECHANICAL = "mechanical"
    """Possibly a connection (bits 8, 9, 12, 16, 17, 24, 28)."""
    UNKNOWN = "unknown"
    """Bits of no known meaning, or only in the later registers."""
    SECONDARY = "secondary"
    """The other end's error, usually (bits 1, 20)."""
    HARMLESS = "harmless"
    """Only bits that may be ignored (0, 23, 30)."""


def _mask(*bits: int) -> int:
    return sum(1 << bit for bit in bits)


_BITS = (
    (LinkFault.HARDWARE, _mask(4, 5)),
    (LinkFault.SIGNAL, _mask(21, 22)),
    (LinkFault.MECHANICAL, _mask(8, 9, 12, 16, 17, 24, 28)),
)
_SECONDARY = _mask(1, 20)
_HARMLESS = _mask(0, 23, 30)


@dataclass(frozen=True, slots=True)
class LinkError:
    """Xid 74."""

    link: int
    registers: tuple[int, ...]

    @property
    def fault(self) -> LinkFault:
        """The gravest that its registers show."""
        first = self.registers[0]
        for fault, mask in _BITS:
            if first & mask:
                return fault
        if not first or first & ~(_SECONDARY | _HARMLESS) or any(self.registers[1:]):
            return LinkFault.UNKNOWN
        return LinkFault.SECONDARY if first & _SECONDARY else LinkFault.HARMLESS

    def evidence(self) -> dict[str, Scalar]:
        return {
            "link": self.link,
            "registers": " ".join(f"{register:#x}" for register in self.registers),
            "link_fault": self.fault.value,
        }


@dataclass(frozen=True, slots=True)
class BlockError:
    """Xids 144–150."""

    block: str
    fatal: bool
    link: int
    """-1: none in particular."""
    intr: int
    status: int | None

    def evidence(self) -> dict[str, Scalar]:
        """The sub-code is in bits 9–5 before driver R575 and in 6–0 from it on; the line does not name the driver release."""
        found: dict[str, Scalar] = {
            "block": self.block,
            "link": self.link,
            "intr_info": f"{self.intr:#010x}",
            "sub_code": self.intr & 0x7F,
            "sub_code_before_r575": self.intr >> 5 & 0x1F,
        }
        if self.status is not None:
            found["error_status"] = f"{self.status:#010x}"
        return found


def link_error(text: str) -> LinkError | None:
    """Of the text after the code of an Xid 74; None where it has no registers."""
    match = _LINK.search(text)
    if match is None:
        return None
    registers = tuple(int(each.strip(), 16) for each in match["registers"].split(","))
    return LinkError(int(match["link"]), registers)


def block_error(text: str) -> BlockError | None:
    """Of the text after the code of an Xid 144–150; None where it says nothing known."""
    match = _BLOCK.search(text)
    if match is None:
        return None
    status = int(match["status"], 16) if match["status"] else None
    return BlockError(match["block"], match["fatal"] == "Fatal", int(match["link"]), int(match["intr"], 16), status)
