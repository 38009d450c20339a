"""Inventory of this node's GPUs, kept on disk so that a lost GPU keeps its name."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from holdfast_checks import pci
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.snapshot import Snapshot

log = logging.getLogger(__name__)

INVENTORY_KEY = "inventory"
_NVIDIA = "0x10de"
_DISPLAY = "0x03"
"""PCI base class of VGA and 3D controllers."""


@dataclass(slots=True)
class KnownGpus:
    """Every GPU that the node is known to have."""

    boot_id: str
    inventory: GpuInventory = field(default_factory=GpuInventory)
    driver_version: str = ""
    this_boot: bool = False
    """Seen in this boot: device minors and NVML indexes can be trusted."""

    @classmethod
    def remembered(cls, text: str | None, boot_id: str) -> KnownGpus:
        """Load the inventory of an earlier process. From another boot only what a reboot does not change: UUID, address, serial."""
        try:
            kept = json.loads(text or "{}")
            inventory = GpuInventory.from_wire(kept.get("gpus", []))
            same = kept.get("boot_id") == boot_id
            driver = str(kept.get("driver_version", ""))
        except (ValueError, TypeError, AttributeError, RecursionError):
            log.warning("event=inventory_unreadable effect=read_anew")
            return cls(boot_id)
        if not same:
            inventory = GpuInventory(tuple(replace(ref, minor=None, index=None) for ref in inventory.gpus))
        return cls(boot_id, inventory, driver if same else "", same and bool(inventory.gpus))

    def dump(self) -> str:
        return json.dumps(
            {"boot_id": self.boot_id, "driver_version": self.driver_version, "gpus": self.inventory.to_wire()}
        )

    def learn(self, snapshot: Snapshot) -> bool:
        """Add what NVML shows; whether anything is new."""
        before = (self.inventory, self.driver_version, self.this_boot)
        self.inventory = self.inventory.learn(snapshot)
        self.driver_version = snapshot.driver_version or self.driver_version
        self.this_boot = True
        return before != (self.inventory, self.driver_version, self.this_boot)

    def named(self, ref: GpuRef) -> GpuRef:
        """The GPU with everything known about it."""
        for known in self.inventory.gpus:
            same_uuid = ref.uuid is not None and known.uuid == ref.uuid
            same_pci = ref.uuid is None and ref.pci is not None and known.pci == ref.pci
            if same_uuid or same_pci:
                return known
        return ref

    def wire(self) -> dict[str, object]:
        """The inventory as a wire item."""
        gpus = {
            ref.component: {
                key: value
                for key, value in asdict(ref).items()
                if key in ("minor", "pci", "serial") and value is not None
            }
            for ref in self.inventory.gpus
        }
        return {"kind": "inventory", "gpus": gpus, "driver_version": self.driver_version, "detail": {}}


def pci_gpus(sysfs: Path) -> dict[str, GpuRef]:
    """NVIDIA display devices on the PCI bus: only their addresses, for a node whose NVML does not answer."""
    found = {}
    for device in _entries(sysfs / "bus/pci/devices"):
        try:
            ours = (device / "vendor").read_text().strip() == _NVIDIA and (device / "class").read_text().startswith(
                _DISPLAY
            )
        except OSError:
            continue
        address = pci.normalise(device.name)
        if ours and address is not None:
            found[address] = GpuRef(pci=address)
    return found


def _entries(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return ()
