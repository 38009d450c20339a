"""Slow readings of one GPU: those that change seldom, or take many NVML calls; read about once a minute. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_checks.reading import UNREAD, NvmlReading

COUNTERS = ("replays", "recoveries", "crc_errors", "failed_recoveries", "integrity_errors")
"""Names of the counters of one NVLink, in the order in which the child sends them."""


@dataclass(frozen=True, slots=True)
class NvLink:
    """One NVLink of a GPU, by its number in :attr:`GpuDetails.links`. A counter that this part does not have is None."""

    active: bool | None = None
    """None: it could not be asked."""
    replays: int | None = None
    recoveries: int | None = None
    """How often the link had to be trained again; on NVLink 5 every recovery event."""
    crc_errors: int | None = None
    failed_recoveries: int | None = None
    """NVLink 5 only."""
    integrity_errors: int | None = None
    """Local link integrity, NVLink 5 only."""

    @classmethod
    def from_wire(cls, raw: Sequence[Any]) -> NvLink:
        """From the child's form: ``[active, counter, …]``."""
        active, *counters = raw
        numbers = dict(zip(COUNTERS, (None if value is None else int(value) for value in counters), strict=True))
        return cls(active=None if active is None else bool(active), **numbers)


@dataclass(frozen=True, slots=True)
class GpuDetails:
    """The slow readings of one GPU."""

    name: str = ""
    """As NVML prints it; empty: not reported."""
    vbios: str = ""
    links: tuple[NvLink, ...] = ()
    link_count: NvmlReading = UNREAD
    """How many NVLinks the part has; unsupported: none."""
    pids: tuple[int, ...] = ()
    """Processes that compute on the GPU."""
    process_count: NvmlReading = UNREAD
    fabric_state: NvmlReading = UNREAD
    """0 not supported, 1 not started, 2 in progress, 3 completed."""
    fabric_status: NvmlReading = UNREAD
    """NVML's return code of the registration with the fabric; 0: success."""
    fabric_health: NvmlReading = UNREAD
    """Mask of small fields, see ``gpu.fabric``."""
    pcie_gen: NvmlReading = UNREAD
    pcie_gen_max: NvmlReading = UNREAD
    """Of GPU and slot together."""
    pcie_width: NvmlReading = UNREAD
    pcie_width_max: NvmlReading = UNREAD
    pcie_replays: NvmlReading = UNREAD
    """Counts on over the life of the driver."""
    temperature_margin_c: NvmlReading = UNREAD
    """Degrees until the hardware slows down."""
    persistence: NvmlReading = UNREAD
    mig: NvmlReading = UNREAD
    mig_pending: NvmlReading = UNREAD
    ecc_mode: NvmlReading = UNREAD
    ecc_mode_pending: NvmlReading = UNREAD
    ecc_corrected_aggregate: NvmlReading = UNREAD
    """Over the GPU's life."""
    ecc_uncorrected_aggregate: NvmlReading = UNREAD
    sram_threshold: NvmlReading = UNREAD
    """1: the GPU has seen more uncorrectable errors of its SRAM than NVIDIA allows."""
    sram_uncorrected: NvmlReading = UNREAD
    banks_max: NvmlReading = UNREAD
    """Banks of memory with all spare rows; the next ones with most, some, few and none."""
    banks_high: NvmlReading = UNREAD
    banks_partial: NvmlReading = UNREAD
    banks_low: NvmlReading = UNREAD
    banks_none: NvmlReading = UNREAD
    retired_single: NvmlReading = UNREAD
    """Pages retired because of single-bit errors; parts without row remap only."""
    retired_double: NvmlReading = UNREAD
    retired_pending: NvmlReading = UNREAD
    repair_channel: NvmlReading = UNREAD
    """1: a memory channel is repaired at the next reboot."""
    repair_tpc: NvmlReading = UNREAD
    unrepairable_memory: NvmlReading = UNREAD
    power_mw: NvmlReading = UNREAD
    power_limit_mw: NvmlReading = UNREAD
    utilisation_percent: NvmlReading = UNREAD

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any]) -> GpuDetails:
        """From the child's answer. Raises TypeError or ValueError for anything else."""
        return cls(
            name=str(raw.get("name") or ""),
            vbios=str(raw.get("vbios") or ""),
            links=tuple(NvLink.from_wire(link) for link in raw.get("links") or ()),
            pids=tuple(int(pid) for pid in raw.get("pids") or ()),
            **{name: NvmlReading.from_wire(raw.get(name)) for name in _READINGS},
        )


_READINGS = tuple(
    name for name, field in GpuDetails.__dataclass_fields__.items() if isinstance(field.default, NvmlReading)
)
