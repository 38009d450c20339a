"""Which GPU: the names that one has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuRef:
    """Who a GPU is. What is not known is None."""

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
