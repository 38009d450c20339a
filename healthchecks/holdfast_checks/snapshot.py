"""What NVML says of a node at one moment. Every call that may fail is a field: a value, unsupported, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.reading import UNREAD, NvmlReading

__all__ = ["GpuDetails", "GpuRef", "GpuSnapshot", "NvmlFailure", "NvmlReading", "Snapshot", "gpu_ref"]

NVML_DRIVER_NOT_LOADED = 9
NVML_LIBRARY_NOT_FOUND = 12
NVML_LIB_RM_VERSION_MISMATCH = 18


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """One GPU as NVML shows it. Of a lost one only what was known before is there."""

    ref: GpuRef
    lost: bool = False
    failed: int | None = None
    """NVML counts it but refuses it with this return code: nothing else of it could be read."""
    temperature_c: NvmlReading = UNREAD
    clock_event_reasons: NvmlReading = UNREAD
    """Bit mask of nvmlClocksEventReason…"""
    ecc_corrected_volatile: NvmlReading = UNREAD
    ecc_uncorrected_volatile: NvmlReading = UNREAD
    """Since the last reset or reboot."""
    remap_corrected: NvmlReading = UNREAD
    remap_uncorrected: NvmlReading = UNREAD
    remap_pending: NvmlReading = UNREAD
    remap_failed: NvmlReading = UNREAD
    recovery_action: NvmlReading = UNREAD
    """NVML field 230: the driver's own verdict."""
    details: GpuDetails | None = None
    """The slow readings, up to a minute older than the others; None: not read yet."""

    @property
    def at_work(self) -> bool:
        """NVML gives it out and it answers."""
        return not self.lost and self.failed is None


READINGS = (
    "temperature_c",
    "clock_event_reasons",
    "ecc_corrected_volatile",
    "ecc_uncorrected_volatile",
    "remap_corrected",
    "remap_uncorrected",
    "remap_pending",
    "remap_failed",
    "recovery_action",
)
"""Names of the fields of GpuSnapshot that are readings, as the child sends them."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All GPUs of the node, read in one go."""

    driver_version: str
    nvml_version: str
    count: int
    """How many GPUs NVML enumerates, lost ones among them."""
    gpus: tuple[GpuSnapshot, ...]
    monotonic_s: float
    """When it was read, on CLOCK_MONOTONIC."""
    details_monotonic_s: float = 0.0
    """When the details were read; 0: never."""

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any], before: Snapshot | None = None) -> Snapshot:
        """From the child's answer; details that it did not read again are those of the snapshot before.

        Raises KeyError, TypeError or ValueError for anything else."""
        details_s = float(raw.get("details_monotonic_s") or 0.0)
        known: dict[str | None, GpuDetails | None] = {}
        if before is not None and not details_s:
            known = {gpu.ref.uuid: gpu.details for gpu in before.gpus if gpu.ref.uuid is not None}
            details_s = before.details_monotonic_s
        return cls(
            driver_version=str(raw["driver_version"]),
            nvml_version=str(raw["nvml_version"]),
            count=int(raw["count"]),
            gpus=tuple(_gpu(gpu, known) for gpu in raw["gpus"]),
            monotonic_s=float(raw["monotonic_s"]),
            details_monotonic_s=details_s,
        )


@dataclass(frozen=True, slots=True)
class NvmlFailure:
    """NVML could not be asked."""

    text: str
    code: int | None = None
    """NVML's return code; None: it did not answer, or its process ended."""
    hang: bool = False
    """No answer within the deadline."""
    misses: int = 1
    """How many times in a row."""


def gpu_ref(raw: Mapping[str, Any]) -> GpuRef:
    """A GPU's identity from the child's form."""
    return GpuRef(
        uuid=raw.get("uuid"),
        minor=raw.get("minor"),
        pci=raw.get("pci"),
        index=raw.get("index"),
        serial=raw.get("serial"),
    )


def _gpu(raw: Mapping[str, Any], known: Mapping[str | None, GpuDetails | None]) -> GpuSnapshot:
    ref = gpu_ref(raw)
    if raw["lost"]:
        return GpuSnapshot(ref, lost=True)
    if raw.get("failed") is not None:
        return GpuSnapshot(ref, failed=int(raw["failed"]))
    readings: dict[str, Any] = {name: NvmlReading.from_wire(raw.get(name)) for name in READINGS}
    details = GpuDetails.from_wire(raw["details"]) if "details" in raw else known.get(ref.uuid)
    return GpuSnapshot(ref, details=details, **readings)
