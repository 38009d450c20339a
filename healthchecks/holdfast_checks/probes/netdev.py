"""Network devices: carrier, and which of them the default route needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.probes import sysfs as files

_UP = 0x1
"""IFF_UP of linux/if.h: the device was brought up."""
_LOWER = "lower_"


@dataclass(frozen=True, slots=True)
class NetworkDevice:
    """One network device. What could not be read is None."""

    name: str
    wanted: bool
    """It was brought up; without that it has no carrier by intent."""
    carrier: bool | None
    losses: int | None
    """How often the carrier was lost since the device is there."""


def link(sysfs: Path, name: str) -> NetworkDevice | None:
    """None: there is no such device."""
    folder = sysfs / "class/net" / name
    flags = files.number(folder / "flags")
    if flags is None:
        return None
    carrier = files.number(folder / "carrier")
    losses = files.number(folder / "carrier_down_count")
    if losses is None:
        changes = files.number(folder / "carrier_changes")
        losses = None if changes is None else changes // 2
    return NetworkDevice(name, bool(flags & _UP), None if carrier is None else carrier == 1, losses)


def default_route(proc: Path, sysfs: Path) -> frozenset[str]:
    """The device of the default route and all below it (members of a bond, the device under a VLAN)."""
    try:
        lines = (proc / "net/route").read_text(encoding="ascii", errors="replace").splitlines()[1:]
    except OSError:
        return frozenset()
    words = (line.split() for line in lines)
    return with_lower({row[0] for row in words if len(row) > 7 and row[1] == row[7] == "00000000"}, sysfs)


def with_lower(devices: set[str], sysfs: Path) -> frozenset[str]:
    """These devices and all that they are built on."""
    found: set[str] = set()
    open_ = set(devices)
    while open_:
        name = open_.pop()
        found.add(name)
        below = {
            entry.removeprefix(_LOWER) for entry in files.names(sysfs / "class/net" / name) if entry.startswith(_LOWER)
        }
        open_ |= below - found
    return frozenset(found)
