"""Slow readings of one GPU: those that change seldom, or take many NVML calls; read about once a minute. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_checks.reading import UNREAD, Reading

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
    link_count: Reading = UNREAD
    """How many NVLinks the part has; unsupported: none."""
    pids: tuple[int, ...] = ()
    """Processes that compute on the GPU."""
    process_count: Reading = UNREAD
    fabric_state: Reading = UNREAD
    """0 not supported, 1 not started, 2 in progress, 3 completed."""
    fabric_status: Reading = UNREAD
    """NVML's return code of the registration with the fabric; 0: success."""
    fabric_health: Reading = UNREAD
    """Mask of small fields, see ``gpu.fabric``."""
    pcie_gen: Reading = UNREAD
    pcie_gen_max: Reading = UNREAD
    """Of GPU and slot together."""
    pcie_width: Reading = UNREAD
    pcie_width_max: Reading = UNREAD
    pcie_replays: Reading = UNREAD
    """Counts on over the life of the driver."""
    temperature_margin_c: Reading = UNREAD
    """Degrees until the hardware slows down."""
    persistence: Reading = UNREAD
    mig: Reading = UNREAD
    mig_pending: Reading = UNREAD
    ecc_mode: Reading = UNREAD
    ecc_mode_pending: Reading = UNREAD
    ecc_corrected_aggregate: Reading = UNREAD
    """Over the GPU's life."""
    ecc_uncorrected_aggregate: Reading = UNREAD
    sram_threshold: Reading = UNREAD
    """1: the GPU has seen more uncorrectable errors of its SRAM than NVIDIA allows."""
    sram_uncorrected: Reading = UNREAD
    banks_max: Reading = UNREAD
    """Banks of memory with all spare rows; the next ones with most, some, few and none."""
    banks_high: Reading = UNREAD
    banks_partial: Reading = UNREAD
    banks_low: Reading = UNREAD
    banks_none: Reading = UNREAD
    retired_single: Reading = UNREAD
    """Pages retired because of single-bit errors; parts without row remap only."""
    retired_double: Reading = UNREAD
    retired_pending: Reading = UNREAD
    repair_channel: Reading = UNREAD
    """1: a memory channel is repaired at the next reboot."""
    repair_tpc: Reading = UNREAD
    unrepairable_memory: Reading = UNREAD
    power_mw: Reading = UNREAD
    power_limit_mw: Reading = UNREAD
    utilisation_percent: Reading = UNREAD

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any]) -> GpuDetails:
        """From the child's answer. Raises TypeError or ValueError for anything else."""
        return cls(
            name=str(raw.get("name") or ""),
            vbios=str(raw.get("vbios") or ""),
            links=tuple(NvLink.from_wire(link) for link in raw.get("links") or ()),
            pids=tuple(int(pid) for pid in raw.get("pids") or ()),
            **{name: Reading.from_wire(raw.get(name)) for name in _READINGS},
        )


_READINGS = tuple(name for name, field in GpuDetails.__dataclass_fields__.items() if isinstance(field.default, Reading))
