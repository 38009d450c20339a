"""Identity of a GPU: the names that it has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuRef:
    """The names of one GPU. None: not known."""

    uuid: str | None = None
    minor: int | None = None
    """Device minor number (``/dev/nvidiaN``)."""
    pci: str | None = None
    """In the one spelling of :mod:`holdfast_checks.pci`."""
    index: int | None = None
    """NVML index; not stable over a reboot."""
    serial: str | None = None

    @property
    def component(self) -> str:
        """How results name it: its UUID, else its PCI address, else its index."""
        return self.uuid or self.pci or (f"gpu-index-{self.index}" if self.index is not None else "gpu-unknown")
