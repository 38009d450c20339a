"""RDMA devices as sysfs shows them: EFA, InfiniBand and RoCE. Reads only what a check judges.

Measured with 32 emulated EFA devices: see ``docs/checks.md``. On real EFA a read of port counters costs the device an admin command
at most every 12 ms (the driver's cache), so that reading itself makes ``submitted_cmds`` grow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from holdfast_checks import pci
from holdfast_checks.probes import sysfs as files

EFA_DRIVER = "efa"
AMAZON = 0x1D0F
EFA_PCI_DEVICES = range(0xEFA0, 0xF000)
"""0xefa0 to 0xefa3 are known (facts: section 4); later ones are expected to follow."""
_CLASS = "class/infiniband"
_STATE = re.compile(r"\d+:\s*(\S+)")
_RATE = re.compile(r"([\d.]+)\s*Gb/sec")
_BRIDGE_MARK = b"SW_MNG"
"""In the vital product data of ConnectX functions through which an HGX Blackwell board manages its NVSwitches."""

_MOST_SEEN = 1024


@dataclass(frozen=True, slots=True)
class Device:
    """One entry of ``/sys/class/infiniband``."""

    name: str
    driver: str
    """Of its PCI function (``efa``, ``mlx5_core``); empty: unknown."""
    pci: str | None = None


_SEEN: dict[tuple[str, str, int], Device] = {}
"""Entries of the class by folder, name and inode."""


@dataclass(frozen=True, slots=True)
class Port:
    """One port as the driver reports it. For EFA all of it is a constant: never judge it there."""

    number: int
    state: str
    """``ACTIVE``, ``DOWN``, ``INIT``, ``ARMED``; empty: not read."""
    phys_state: str
    """``LinkUp``, ``Polling``, ``Disabled``, …; empty: not read."""
    rate_gbps: float | None
    link_layer: str
    """``InfiniBand``, ``Ethernet``; EFA says ``Unknown`` or ``Unspecified``."""

    @property
    def up(self) -> bool:
        return self.state == "ACTIVE"


def devices(sysfs: Path) -> tuple[Device, ...]:
    """All RDMA devices with their drivers, by name."""
    folder = f"{sysfs}/{_CLASS}"
    try:
        with os.scandir(folder) as entries:
            return tuple(_device(folder, name, inode) for name, inode in sorted((e.name, e.inode()) for e in entries))
    except OSError:
        return ()


def efa_devices(sysfs: Path) -> tuple[Device, ...]:
    """Those bound to the ``efa`` driver, whatever they are called."""
    return tuple(device for device in devices(sysfs) if device.driver == EFA_DRIVER)


def _device(folder: str, name: str, inode: int) -> Device:
    """A device leaves the class with its driver, and comes back as another entry: what an entry was once seen to be, it stays."""
    entry = (folder, name, inode)
    if entry in _SEEN:
        return _SEEN[entry]
    function = f"{folder}/{name}/device"
    address = files.link_name(function)
    driver = files.link_name(f"{function}/driver")
    device = Device(name, driver or "", pci.normalise(address) if address else None)
    if driver and address:
        if len(_SEEN) >= _MOST_SEEN:
            _SEEN.clear()
        _SEEN[entry] = device
    return device


def efa_functions(sysfs: Path) -> dict[str, str]:
    """Every EFA function on the PCI bus → its driver (empty: none)."""
    found: dict[str, str] = {}
    folder = sysfs / "bus/pci/devices"
    for name in files.names(folder):
        if files.number(f"{folder}/{name}/vendor") != AMAZON:
            continue
        if files.number(f"{folder}/{name}/device") in EFA_PCI_DEVICES:
            found[pci.normalise(name) or name] = files.link_name(f"{folder}/{name}/driver") or ""
    return found


def ports(sysfs: Path, device: str) -> tuple[Port, ...]:
    """The device's ports by number."""
    folder = sysfs / _CLASS / device / "ports"
    return tuple(_port(folder / str(number), number) for number in port_numbers(sysfs, device))


def port_numbers(sysfs: Path, device: str) -> tuple[int, ...]:
    """Port numbers, without reading the ports."""
    return tuple(sorted(int(name) for name in files.names(sysfs / _CLASS / device / "ports") if name.isdigit()))


def _port(folder: Path, number: int) -> Port:
    rate = _RATE.match(files.text(folder / "rate") or "")
    return Port(
        number,
        state=_word(files.text(folder / "state")),
        phys_state=_word(files.text(folder / "phys_state")),
        rate_gbps=float(rate[1]) if rate else None,
        link_layer=files.text(folder / "link_layer") or "",
    )


def _word(text: str | None) -> str:
    match = _STATE.match(text or "")
    return match[1] if match else ""


def netdevs(sysfs: Path, device: str) -> tuple[str, ...]:
    """Network devices of the same PCI function; an EFA-only adapter has none."""
    return files.names(sysfs / _CLASS / device / "device/net")


def device_counters(sysfs: Path, device: str, wanted: Iterable[str]) -> dict[str, int]:
    """Of the device as a whole. Drivers before the split of 2022 keep them with those of port 1."""
    wanted = tuple(wanted)
    folder = sysfs / _CLASS / device
    return files.numbers(folder / "hw_counters", wanted) or files.numbers(folder / "ports/1/hw_counters", wanted)


def port_counters(sysfs: Path, device: str, port: int, wanted: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Of one port; ``wanted`` maps the folder (``counters``, ``hw_counters``) to names."""
    folder = sysfs / _CLASS / device / "ports" / str(port)
    found: dict[str, int] = {}
    for kind, names in wanted.items():
        found |= files.numbers(folder / kind, names)
    return found


def is_bridge(sysfs: Path, device: str) -> bool:
    """Whether the function only manages NVSwitches (HGX Blackwell): it carries no job's traffic."""
    return _says_bridge(f"{sysfs}/{_CLASS}/{device}/device/vpd")


@lru_cache(maxsize=256)
def _says_bridge(vpd: str) -> bool:
    """Read once: these few bytes come through slow configuration cycles, and never change."""
    try:
        with open(vpd, "rb") as file:
            return _BRIDGE_MARK in file.read(1024)
    except OSError:
        return False
