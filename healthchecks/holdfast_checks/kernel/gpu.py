"""NVSwitch (SXid) and the lines of the GPU driver that carry no Xid."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast_checks import pci
from holdfast_checks.catalog.sxids import SxidClass, lookup
from holdfast_checks.kernel.devices import Devices
from holdfast_checks.kernel.rule import KernelRule, LineMeaning, rule, weighed
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.text import one_line

SXID = "kernel.sxid"
GPU_DRIVER = "kernel.gpu_driver"

_SXID = (
    r"nvidia-nvswitch(?P<switch>\d{1,3}): SXid \(PCI:(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\): "
    r"(?P<sxid>\d{5}), (?P<said>Fatal|Non-fatal)\b(?:, Link (?P<link>\d{1,3})\b)?(?P<text>.*)"
)


def _sxid(groups: Mapping[str, str]) -> LineMeaning:
    """Acts only where the driver says Fatal and the table knows the code for fatal: of an unknown one no remedy is known."""
    row = lookup(int(groups["sxid"]))
    acts = groups["said"] == "Fatal" and row.kind in (SxidClass.FATAL, SxidClass.HOST)
    link = "/link{link}" if "link" in groups else ""
    return LineMeaning(
        groups["sxid"],
        Severity.FATAL if acts else Severity.WARNING,
        row.remedy if acts else Remedy.NONE,
        "SXid {sxid} {said}" + (" on link {link}" if link else "") + f" ({row.family})",
        "{pci}" + link,
        (("class", row.kind.value),),
    )


SXID_RULES = (weighed(SXID, _SXID, _sxid, device="pci"),)

_INIT_FAILED = re.compile(
    r"NVRM: GPU (?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): "
    r"(?:RmInitAdapter failed! \((?P<status>[0-9a-fA-Fx:]{1,40})\)|rm_init_adapter failed, device minor number \d{1,3})"
)

DRIVER_RULES: tuple[KernelRule, ...] = (
    rule(
        GPU_DRIVER,
        r"NVRM: None of the NVIDIA (?:graphics adapters|devices) were initialized",
        "no_device",
        Severity.FATAL,
        Remedy.REBOOT,
        "the driver could not bring up a single GPU",
    ),
    rule(
        GPU_DRIVER,
        r"NVRM: The NVIDIA probe routine failed for (?P<devices>\d{1,3}) device",
        "probe_failed",
        Severity.WARNING,
        Remedy.NONE,
        "the driver could not take {devices} devices",
    ),
    rule(
        GPU_DRIVER,
        r"NVRM: API mismatch: the (?:client|NVIDIA kernel module|NVIDIA driver component)\b",
        "version_mismatch",
        Severity.WARNING,
        Remedy.NONE,
        "a program's NVIDIA library is of another version than the kernel module (a container may bring its own)",
    ),
)

PEERMEM_RULES: tuple[KernelRule, ...] = (
    rule(
        GPU_DRIVER,
        r"nvidia[-_]peermem:? nv_\w{1,60}:(?P<at>\d{1,6}) ERROR (?P<text>.{1,120})",
        "peermem",
        Severity.WARNING,
        Remedy.NONE,
        "GPUDirect RDMA: {text}",
    ),
)


def init_failed(message: str, devices: Devices, monotonic_s: float | None) -> Result | None:
    """``RmInitAdapter failed``: the driver cannot start a GPU of this node."""
    match = _INIT_FAILED.match(message)
    if match is None:
        return None
    address = pci.normalise(match["pci"])
    gpu = devices.gpu(address)
    if gpu is None:
        return None
    return Result.finding(
        GPU_DRIVER,
        Severity.FATAL,
        Remedy.REBOOT,
        gpu.component,
        code="init_failed",
        summary="the driver could not start this GPU (RmInitAdapter failed)",
        evidence={"status": match["status"] or "", "line": one_line(message)},
        gpu_uuid=gpu.uuid,
        gpu_minor=gpu.minor,
        pci=address or gpu.pci,
        fault_monotonic_s=monotonic_s,
    )
