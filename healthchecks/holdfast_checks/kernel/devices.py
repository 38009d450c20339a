"""Devices of this node that a kernel line may be about."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_checks.gpu_ref import GpuRef

_FOLDERS = {"pci": "bus/pci/devices", "nvme": "class/nvme"}
"""Kind of device → where sysfs lists those of this node."""


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of the node whose log is read."""

    gpus: Mapping[str, GpuRef] = field(default_factory=dict)
    """PCI address → GPU, in the one spelling."""
    sysfs: Path | None = None
    """None: it is not known which devices there are (a log from elsewhere); every line is believed."""
    anywhere: bool = False
    """The log of some other node: any address may be a GPU of it."""

    def gpu(self, address: str | None) -> GpuRef | None:
        """The GPU at a PCI address; None: this node has none there."""
        if address is None:
            return GpuRef() if self.anywhere else None
        found = self.gpus.get(address)
        return GpuRef(pci=address) if found is None and self.anywhere else found

    def gone(self, kind: str, name: str) -> bool:
        """Whether sysfs lists devices of this kind, and not this one: unplugged, or a volume that was detached."""
        if self.sysfs is None:
            return False
        folder = self.sysfs / _FOLDERS[kind]
        return os.path.isdir(folder) and not os.path.lexists(folder / name)
