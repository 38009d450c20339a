"""The readings of every snapshot: what must be seen soon."""

from __future__ import annotations

from typing import Any

import pynvml as nvml

from holdfast_checks.probes.nvml_calls import fields, named, reading

FIELD_RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; older bindings lack the name. (DCGM's field 230 is another thing: the last Xid.)"""

_REMAP = ("remap_corrected", "remap_uncorrected", "remap_pending", "remap_failed")


def fast_readings(handle: Any) -> dict[str, Any]:
    """By the names of GpuSnapshot."""
    return {
        "temperature_c": named("nvmlDeviceGetTemperature", handle, 0),
        "clock_event_reasons": reading(_clock_event_reasons, handle),
        "ecc_corrected_volatile": named("nvmlDeviceGetTotalEccErrors", handle, 0, 0),
        "ecc_uncorrected_volatile": named("nvmlDeviceGetTotalEccErrors", handle, 1, 0),
        **_remapped_rows(handle),
        "recovery_action": fields(handle, [(FIELD_RECOVERY_ACTION, 0)])[0],
    }


def _remapped_rows(handle: Any) -> dict[str, Any]:
    rows = named("nvmlDeviceGetRemappedRows", handle)
    return dict(zip(_REMAP, rows, strict=True)) if isinstance(rows, tuple) else dict.fromkeys(_REMAP, rows)


def _clock_event_reasons(handle: Any) -> int:
    """Drivers before R535 know these by their old name."""
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except (nvml.NVMLError_FunctionNotFound, AttributeError):
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
