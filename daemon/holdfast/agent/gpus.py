"""The GPUs of this node: asked through the NVML child, and remembered for this boot so that a lost one keeps its name."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from holdfast_checks import pci
from holdfast_checks.inventory import GpuRef
from holdfast_checks.snapshot import Snapshot

log = logging.getLogger(__name__)

INVENTORY_KEY = "inventory"
_NVIDIA = "0x10de"
_DISPLAY = "0x03"
"""PCI base class of VGA and 3D controllers."""


@dataclass(slots=True)
class Inventory:
    """Every GPU seen in this boot. NVML's word wins over what was remembered, but nobody is forgotten before a reboot."""

    boot_id: str
    gpus: dict[str, GpuRef] = field(default_factory=dict)
    """By component name: the UUID."""
    driver_version: str = ""

    @classmethod
    def remembered(cls, text: str | None, boot_id: str) -> Inventory:
        """What an earlier process of this boot knew; empty for another boot or an unreadable text."""
        try:
            kept = json.loads(text or "{}")
            if kept.get("boot_id") != boot_id:
                return cls(boot_id)
            refs = [GpuRef(**gpu) for gpu in kept["gpus"]]
            return cls(boot_id, {ref.component: ref for ref in refs}, str(kept.get("driver_version", "")))
        except (ValueError, KeyError, TypeError, AttributeError):
            log.warning("event=inventory_unreadable effect=read_anew")
            return cls(boot_id)

    def dump(self) -> str:
        gpus = [asdict(ref) for ref in self.gpus.values()]
        return json.dumps({"boot_id": self.boot_id, "driver_version": self.driver_version, "gpus": gpus})

    def update(self, snapshot: Snapshot) -> bool:
        """Take in what NVML shows; whether anything is new."""
        before = (dict(self.gpus), self.driver_version)
        for gpu in snapshot.gpus:
            if gpu.ref.uuid is not None:
                known = self.gpus.get(gpu.ref.uuid, gpu.ref)
                self.gpus[gpu.ref.uuid] = _merged(known, gpu.ref)
        self.driver_version = snapshot.driver_version or self.driver_version
        return before != (self.gpus, self.driver_version)

    def by_pci(self) -> dict[str, GpuRef]:
        """PCI address → GPU, for the kernel log."""
        return {ref.pci: ref for ref in self.gpus.values() if ref.pci is not None}

    def named(self, ref: GpuRef) -> GpuRef:
        """The GPU with everything that is known of it, found by UUID, address or NVML index."""
        for known in self.gpus.values():
            same_uuid = ref.uuid is not None and known.uuid == ref.uuid
            same_pci = ref.uuid is None and ref.pci is not None and known.pci == ref.pci
            same_index = ref.uuid is None and ref.pci is None and ref.index is not None and known.index == ref.index
            if same_uuid or same_pci or same_index:
                return _merged(known, ref)
        return ref

    def named_all(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with lost GPUs named."""
        return replace(snapshot, gpus=tuple(replace(gpu, ref=self.named(gpu.ref)) for gpu in snapshot.gpus))

    def wire(self) -> dict[str, object]:
        """The wire's inventory item."""
        gpus = {
            name: {
                key: value
                for key, value in asdict(ref).items()
                if key in ("minor", "pci", "serial") and value is not None
            }
            for name, ref in self.gpus.items()
        }
        return {"kind": "inventory", "gpus": gpus, "driver_version": self.driver_version, "detail": {}}


def _merged(known: GpuRef, fresh: GpuRef) -> GpuRef:
    """Fresh values where there are any."""
    return replace(known, **{key: value for key, value in asdict(fresh).items() if value is not None})


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
