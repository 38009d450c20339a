"""NVSwitch errors (SXid): which are fatal, and what then helps. Sets of codes after gpud's table of 92 (NVIDIA's fabric manager guide)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast_checks.result import Remedy

SOURCE = "gpud's table of 92 SXids, after appendix D of NVIDIA's fabric manager guide"


class SxidClass(StrEnum):
    """Class of an SXid."""

    HARMLESS = "harmless"
    """Not fatal; nothing to do."""
    FATAL = "fatal"
    """The jobs on the fabric are lost; restarting the machine helps."""
    HOST = "host"
    """Always fatal; only restarting the host below helps."""
    UNKNOWN = "unknown"
    """In no list: recorded, never acted upon."""


@dataclass(frozen=True, slots=True)
class Sxid:
    """One SXid."""

    code: int
    family: str
    kind: SxidClass
    remedy: Remedy


_FAMILIES = {
    10: "host interface",
    11: "ingress",
    12: "egress",
    13: "transaction state",
    14: "routing",
    15: "routing",
    16: "port",
    17: "link control",
    18: "link interface",
    19: "link transport",
    20: "data link",
    22: "link microcontroller",
    23: "switch memory",
    24: "switch traffic",
    26: "switch microcontroller",
}
_HARMLESS = frozenset(
    {
        11004,
        11012,
        11021,
        11022,
        11023,
        12021,
        12023,
        12028,
        15008,
        15011,
        19049,
        19055,
        19057,
        19059,
        19062,
        19065,
        19068,
    }
    | {19071, 19084, 20001, 20012, 22013, 24001, 24002, 24003}
)
_FATAL = frozenset(
    {
        11001,
        11009,
        11013,
        11018,
        11019,
        11020,
        12001,
        12002,
        12022,
        12024,
        12025,
        12026,
        12027,
        12030,
        12031,
        12032,
        14017,
    }
    | {15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054, 19056, 19058, 19060, 19061, 19063, 19064, 19066}
    | {19067, 19069, 19070, 20034, 24004, 24005, 24006, 24007}
)
_HOST = frozenset({12020, 22003, 22011, *range(23001, 23018)})


def lookup(code: int) -> Sxid:
    """Meaning of a code; for one in no list no remedy is known."""
    family = _FAMILIES.get(code // 1000, "NVSwitch")
    if code in _HOST:
        return Sxid(code, family, SxidClass.HOST, Remedy.STOP_START)
    if code in _FATAL:
        return Sxid(code, family, SxidClass.FATAL, Remedy.REBOOT)
    if code in _HARMLESS:
        return Sxid(code, family, SxidClass.HARMLESS, Remedy.NONE)
    return Sxid(code, family, SxidClass.UNKNOWN, Remedy.NONE)


def codes() -> frozenset[int]:
    """Every code that is in a list."""
    return _HARMLESS | _FATAL | _HOST
