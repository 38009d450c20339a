"""What NVML says of a node at one moment. Every call that may fail is a field: a value, unsupported, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_checks.inventory import GpuRef

NVML_DRIVER_NOT_LOADED = 9
NVML_LIBRARY_NOT_FOUND = 12
NVML_LIB_RM_VERSION_MISMATCH = 18


@dataclass(frozen=True, slots=True)
class Reading:
    """One number from NVML, or why there is none."""

    value: int | None = None
    unsupported: bool = False
    """The driver or the hardware does not know it: never a fault, and apart from an error."""
    error: str = ""

    @classmethod
    def from_wire(cls, raw: Any) -> Reading:
        """From the child's form: a number, ``{"u": 1}``, or ``{"e": code, "t": text}``; anything else is an error."""
        if isinstance(raw, int):
            return cls(value=int(raw))
        if isinstance(raw, Mapping) and raw.get("u"):
            return cls(unsupported=True)
        if isinstance(raw, Mapping) and "e" in raw:
            return cls(error=f"{raw.get('t', 'error')} ({raw['e']})")
        return cls(error="missing in the answer")


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """One GPU as NVML shows it. Of a lost one only what was known before is there."""

    ref: GpuRef
    lost: bool = False
    temperature_c: Reading = Reading()
    clock_event_reasons: Reading = Reading()
    """Bit mask of nvmlClocksEventReason…"""
    ecc_corrected_volatile: Reading = Reading()
    ecc_uncorrected_volatile: Reading = Reading()
    """Since the last reset or reboot."""
    remap_corrected: Reading = Reading()
    remap_uncorrected: Reading = Reading()
    remap_pending: Reading = Reading()
    remap_failed: Reading = Reading()
    recovery_action: Reading = Reading()
    """NVML field 230: the driver's own verdict."""


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

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any]) -> Snapshot:
        """From the child's answer. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            driver_version=str(raw["driver_version"]),
            nvml_version=str(raw["nvml_version"]),
            count=int(raw["count"]),
            gpus=tuple(_gpu(gpu) for gpu in raw["gpus"]),
            monotonic_s=float(raw["monotonic_s"]),
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


def _gpu(raw: Mapping[str, Any]) -> GpuSnapshot:
    readings = {name: Reading.from_wire(raw.get(name)) for name in READINGS}
    return GpuSnapshot(ref=gpu_ref(raw), lost=bool(raw["lost"]), **readings)
