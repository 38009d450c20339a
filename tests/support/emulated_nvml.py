"""The emulated NVML for tests of several packages."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from holdfast.practice.nvml.build import build


@cache
def library(without: tuple[str, ...] = ()) -> Path:
    """The emulated library, built once for each version of its source. ``without``: symbols that it lacks."""
    return build(Path(tempfile.gettempdir()) / f"holdfast-test-nvml-{os.getuid()}", without=without)


READINGS = (
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkErrorCounter",
    "nvmlDeviceGetName",
    "nvmlDeviceGetVbiosVersion",
)
"""Every call that reads one value of one GPU; the agent must do without any of them."""
OPTIONAL = (
    *READINGS,
    "nvmlDeviceGetSerial",
    "nvmlEventSetCreate",
    "nvmlSystemGetNVMLVersion",
)
