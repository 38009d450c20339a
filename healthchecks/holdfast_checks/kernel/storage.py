"""Local disks and the file systems on them."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_checks.kernel.rule import LineMeaning, rule, weighed
from holdfast_checks.result import Remedy, Severity

READ_ONLY = "kernel.read_only"
FILE_SYSTEM = "kernel.file_system"
BLOCK_IO = "kernel.block_io"
NVME = "kernel.nvme"

_DEVICE = r"(?P<device>[A-Za-z][\w!.-]{0,31})"
_NVME = r"nvme (?P<nvme>nvme\d{1,4}): "
_NOT_THE_NODES = ("loop", "fd", "sr", "ram", "zram", "nbd")
"""Devices whose content a user brings (a container's image, a floppy that never was): their errors are not the node's."""


def _brought(device: str) -> bool:
    return device.startswith(_NOT_THE_NODES)


def _turned_read_only(groups: Mapping[str, str]) -> LineMeaning | None:
    if _brought(groups["device"]):
        return None
    return LineMeaning(
        "remounted", Severity.DEGRADED, Remedy.REBOOT, "{device} turned read-only after an error", "{device}"
    )


def _shut_down(groups: Mapping[str, str]) -> LineMeaning | None:
    if _brought(groups["device"]):
        return None
    return LineMeaning("shut_down", Severity.DEGRADED, Remedy.REBOOT, "XFS on {device} shut itself down", "{device}")


def _damaged(groups: Mapping[str, str]) -> LineMeaning | None:
    if _brought(groups["device"]):
        return None
    return LineMeaning(
        "damaged", Severity.DEGRADED, Remedy.REBOOT, "the file system on {device} is damaged", "{device}"
    )


def _block(groups: Mapping[str, str]) -> LineMeaning | None:
    if _brought(groups["device"]):
        return None
    if groups.get("kind") == "critical medium error":
        return LineMeaning(
            "medium", Severity.DEGRADED, Remedy.STOP_START, "{device} cannot read or write a place", "{device}"
        )
    if groups.get("kind") == "critical target error":
        return None  # a command that the device does not know (discard on some disks)
    return LineMeaning("io", Severity.WARNING, Remedy.NONE, "input/output error on {device}", "{device}")


DISK_RULES = (
    weighed(READ_ONLY, rf"EXT4-fs \({_DEVICE}\): Remounting filesystem read-only", _turned_read_only),
    weighed(
        READ_ONLY,
        rf"BTRFS:? (?:error|info|warning) \(device {_DEVICE}(?::? state \w{{1,8}})?\)[^\n]{{0,160}}: forced readonly",
        _turned_read_only,
    ),
    weighed(
        READ_ONLY,
        rf"XFS \({_DEVICE}\): (?:Filesystem has been shut down due to|(?:[Ll]og )?I/O [Ee]rror [Dd]etected\. {{1,2}}Shutting"
        r"|Corruption of (?:in-memory data|on-disk metadata) [^\n]{0,160}[Ss]hutting down filesystem)",
        _shut_down,
    ),
    weighed(FILE_SYSTEM, rf"EXT4-fs error \(device {_DEVICE}\): (?P<where>\w{{1,60}}:\d{{1,6}}):", _damaged),
    weighed(
        FILE_SYSTEM,
        rf"XFS \({_DEVICE}\): (?:Metadata (?:CRC error|corruption) detected at|metadata I/O error in) ",
        _damaged,
    ),
    weighed(
        BLOCK_IO,
        r"(?:blk_update_request: )?(?P<kind>I/O error|critical (?:medium|target) error), "
        rf"dev {_DEVICE}, sector (?P<sector>\d{{1,20}})\b",
        _block,
    ),
    weighed(BLOCK_IO, rf"Buffer I/O error on dev(?:ice)? {_DEVICE}, logical block (?P<sector>\d{{1,20}})\b", _block),
)

NVME_RULES = (
    rule(
        NVME,
        _NVME
        + r"I/O (?:tag )?\d{1,6} (?:\([0-9a-f]{1,8}\) )?(?:opcode 0x[0-9a-f]{1,4} \([^)]{1,40}\) )?QID (?P<queue>\d{1,5}) "
        r"timeout, (?P<what>aborting|reset controller|completion polled|disable controller)",
        "timeout",
        Severity.WARNING,
        Remedy.NONE,
        "{nvme} did not answer in time ({what})",
        component="{nvme}",
        device="nvme",
    ),
    rule(
        NVME,
        _NVME + r"controller is down; will reset: CSTS=0x(?P<csts>[0-9a-f]{1,8})",
        "controller_down",
        Severity.WARNING,
        Remedy.NONE,
        "{nvme} went down and is reset",
        component="{nvme}",
        device="nvme",
    ),
    rule(
        NVME,
        _NVME
        + r"(?P<what>Device not ready; aborting (?:reset|initialisation)|Removing after probe failure|Disabling device after reset failure"
        r"|Identify Controller failed|failed to mark controller)",
        "lost",
        Severity.DEGRADED,
        Remedy.STOP_START,
        "{nvme} is lost: {what}",
        component="{nvme}",
    ),
)
