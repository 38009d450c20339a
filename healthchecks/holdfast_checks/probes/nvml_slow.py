"""The readings of about once a minute: many calls, or what changes seldom."""

from __future__ import annotations

from typing import Any

from holdfast_checks.probes.nvml_calls import fields, filled, named, plain, text
from holdfast_checks.probes.nvml_links import LinkReader

_BATCH = {
    "ecc_corrected_aggregate": 5,
    "ecc_uncorrected_aggregate": 6,
    "retired_single": 29,
    "retired_double": 30,
    "retired_pending": 31,
    "pcie_replays": 94,
}
"""NVML_FI_DEV_ECC_SBE_AGG_TOTAL, …DBE_AGG_TOTAL, …RETIRED_SBE, …RETIRED_DBE, …RETIRED_PENDING, …PCIE_REPLAY_COUNTER."""

_SINGLE = {
    "pcie_gen": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_gen_max": "nvmlDeviceGetMaxPcieLinkGeneration",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
    "pcie_width_max": "nvmlDeviceGetMaxPcieLinkWidth",
    "persistence": "nvmlDeviceGetPersistenceMode",
    "power_mw": "nvmlDeviceGetPowerUsage",
    "power_limit_mw": "nvmlDeviceGetPowerManagementLimit",
    "unrepairable_memory": "nvmlDeviceGetUnrepairableMemoryFlag_v1",
}
_PAIRS = {
    ("mig", "mig_pending"): "nvmlDeviceGetMigMode",
    ("ecc_mode", "ecc_mode_pending"): "nvmlDeviceGetEccMode",
    ("repair_channel", "repair_tpc"): "nvmlDeviceGetRepairStatus",
}
_BANKS = ("max", "high", "partial", "low", "none")
_SLOWDOWN_THRESHOLD = 1
"""NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"""


class SlowReader:
    """Reads the details of one GPU; which links and counters the part has is asked once."""

    def __init__(self) -> None:
        self._links = LinkReader()

    def read(self, handle: Any, temperature_c: Any) -> dict[str, Any]:
        """By the names of GpuDetails. ``temperature_c``: of the same snapshot, where the margin must be worked out."""
        batch = fields(handle, [(field, 0) for field in _BATCH.values()])
        found: dict[str, Any] = dict(zip(_BATCH, batch, strict=True))
        found["name"] = text(named("nvmlDeviceGetName", handle))
        found["vbios"] = text(named("nvmlDeviceGetVbiosVersion", handle))
        found |= {name: named(call, handle) for name, call in _SINGLE.items()}
        if plain(found["pcie_replays"]) is None:
            found["pcie_replays"] = named("nvmlDeviceGetPcieReplayCounter", handle)
        for names, call in _PAIRS.items():
            found |= _spread(names, named(call, handle))
        found |= _fabric(handle) | _sram(handle) | _banks(handle) | _processes(handle)
        utilisation = named("nvmlDeviceGetUtilizationRates", handle)
        found["utilisation_percent"] = utilisation if isinstance(utilisation, dict) else int(utilisation.gpu)
        found["temperature_margin_c"] = _margin(handle, temperature_c)
        return found | self._links.read(handle)


def _spread(names: tuple[str, ...], values: Any) -> dict[str, Any]:
    if isinstance(values, dict):
        return dict.fromkeys(names, values)
    return dict(zip(names, map(int, values), strict=True))


def _margin(handle: Any, temperature_c: Any) -> Any:
    """Drivers before R560 do not report the margin, but the temperature at which the hardware slows down."""
    margin = named("nvmlDeviceGetMarginTemperature", handle)
    if not isinstance(margin, dict) or "e" in margin:
        return margin
    threshold = named("nvmlDeviceGetTemperatureThreshold", handle, _SLOWDOWN_THRESHOLD)
    if isinstance(threshold, dict) or isinstance(temperature_c, dict):
        return threshold if isinstance(threshold, dict) else temperature_c
    return threshold - temperature_c


def _fabric(handle: Any) -> dict[str, Any]:
    """With the health mask where the driver has it, else state and status alone."""
    info = filled("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfoV_t", handle)
    if isinstance(info, dict) and "u" in info:
        info = filled("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t", handle)
    if isinstance(info, dict):
        return dict.fromkeys(("fabric_state", "fabric_status", "fabric_health"), info)
    health = getattr(info, "healthMask", None)
    return {
        "fabric_state": int(info.state),
        "fabric_status": int(info.status),
        "fabric_health": {"u": 1} if health is None else int(health),
    }


def _sram(handle: Any) -> dict[str, Any]:
    status = filled("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", handle)
    if isinstance(status, dict):
        return dict.fromkeys(("sram_threshold", "sram_uncorrected"), status)
    return {
        "sram_threshold": int(status.bThresholdExceeded),
        "sram_uncorrected": int(status.aggregateUncParity) + int(status.aggregateUncSecDed),
    }


def _banks(handle: Any) -> dict[str, Any]:
    histogram = named("nvmlDeviceGetRowRemapperHistogram", handle)
    if isinstance(histogram, dict):
        return {f"banks_{name}": histogram for name in _BANKS}
    return {f"banks_{name}": int(getattr(histogram, name)) for name in _BANKS}


def _processes(handle: Any) -> dict[str, Any]:
    """Drivers before R510 know an older version of the call only."""
    found = named("nvmlDeviceGetComputeRunningProcesses_v3", handle)
    if isinstance(found, dict) and "u" in found:
        found = named("nvmlDeviceGetComputeRunningProcesses_v2", handle)
    if isinstance(found, dict):
        return {"process_count": found}
    return {"process_count": len(found), "pids": [int(process.pid) for process in found]}
