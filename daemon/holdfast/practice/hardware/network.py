"""The network devices of one emulated machine, as a sysfs tree: EFA, InfiniBand, and the device of the default route.

Their number comes from ``network.json`` in the machine's folder, else from ``etc/network.json`` of the practice
(``{"efa": 32, "ib": 0}``), else four EFA devices. Counters do not change unless a fault writes them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EFA_DEVICES = 4
DEFAULT_ROUTE = "ens5"
FI_INFO = "fi_info"
NO_PROVIDER = "fi_info.none"
"""While this file exists, the emulated fi_info finds no provider."""
EFA_DEVICE_COUNTERS = {
    "submitted_cmds": 42,
    "completed_cmds": 42,
    "cmds_err": 0,
    "no_completion_cmds": 0,
    "keep_alive_rcvd": 91,
    "alloc_pd_err": 0,
    "create_qp_err": 0,
    "create_cq_err": 0,
    "reg_mr_err": 0,
    "alloc_ucontext_err": 0,
    "create_ah_err": 0,
    "mmap_err": 0,
}
"""As captured in linux-rdma/perftest#113."""
EFA_PORT_COUNTERS = (
    "tx_bytes",
    "tx_pkts",
    "rx_bytes",
    "rx_pkts",
    "rx_drops",
    "rdma_read_bytes",
    "rdma_read_wr_err",
    "rdma_write_bytes",
    "rdma_write_wr_err",
    "retrans_bytes",
    "retrans_pkts",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
)
IB_COUNTERS = (
    "port_xmit_data",
    "port_rcv_data",
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
IB_HW_COUNTERS = ("rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart")
_EFA_PORT = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "100 Gb/sec (4X EDR)", "link_layer": "Unknown"}
_IB_PORT = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
_MODULES = ("efa", "ib_uverbs", "ib_core")
_FIRST_EFA_BUS, _FIRST_IB_BUS = 0x4F, 0xA0
_EFA_SLOT, _IB_SLOT = 27, 3
"""Slots that the emulated GPUs do not use."""
_SCRIPT = """#!/bin/sh
# libfabric's fi_info -p efa on this machine
if [ -e "$0.none" ]; then echo "fi_getinfo: -61 (No data available)" >&2; exit 61; fi
for device in "$(dirname "$0")"/sys/class/infiniband/rdmap*; do
  [ -e "$device" ] || continue
  printf 'provider: efa\\n    fabric: efa\\n    domain: %s-rdm\\n    type: FI_EP_RDM\\n' "$(basename "$device")"
done
"""


@dataclass(frozen=True, slots=True)
class NetworkLayout:
    """Number of devices of a machine."""

    efa: int = EFA_DEVICES
    ib: int = 0
    """InfiniBand devices with one port each; a machine has these or EFA."""


def layout_of(folder: Path) -> NetworkLayout:
    """Device numbers of the machine in this folder."""
    for path in (folder / "network.json", folder.parent.parent / "etc" / "network.json"):
        if path.exists():
            return NetworkLayout(**json.loads(path.read_text(encoding="utf-8")))
    return NetworkLayout()


def install(folder: Path, layout: NetworkLayout | None = None) -> None:
    """Reset the tree as after a boot: all devices exist, counters at their start."""
    layout = layout or layout_of(folder)
    sys = folder / "sys"
    for name in ("class/infiniband", "class/net"):
        shutil.rmtree(sys / name, ignore_errors=True)
        (sys / name).mkdir(parents=True)
    (sys / "class/dmi/id").mkdir(parents=True, exist_ok=True)
    write(sys / "class/dmi/id/sys_vendor", "Amazon EC2" if layout.efa else "Supermicro")
    for driver in ("efa", "mlx5_core"):
        (sys / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    restore(folder, layout)


def restore(folder: Path, layout: NetworkLayout | None = None) -> None:
    """Restore missing devices and wrong values, like a repair of a running machine; counters keep their values."""
    layout = layout or layout_of(folder)
    sys = folder / "sys"
    for number in range(layout.efa):
        put_efa(sys, number)
    for number in range(layout.ib):
        put_ib(sys, number)
    for module in _MODULES if layout.efa else ():
        (sys / "module" / module).mkdir(parents=True, exist_ok=True)
    put_netdev(sys, DEFAULT_ROUTE)
    (folder / NO_PROVIDER).unlink(missing_ok=True)
    script = folder / FI_INFO
    if not script.exists():
        script.write_text(_SCRIPT, encoding="utf-8")
        script.chmod(0o755)


def efa_name(number: int) -> str:
    """``rdmap79s27``."""
    return f"rdmap{_FIRST_EFA_BUS + number}s{_EFA_SLOT}"


def ib_name(number: int) -> str:
    """``mlx5_0``."""
    return f"mlx5_{number}"


def put_efa(sys: Path, number: int) -> None:
    """One EFA device. The first has a network device; the others are EFA-only."""
    name, address = efa_name(number), f"0000:{_FIRST_EFA_BUS + number:02x}:{_EFA_SLOT:02x}.0"
    _put_function(sys, address, "efa", {"vendor": "0x1d0f", "device": "0xefa1", "class": "0x020000"})
    device = _put_device(sys, name, address, _EFA_PORT)
    _put_counters(device / "hw_counters", EFA_DEVICE_COUNTERS)
    _put_counters(device / "ports/1/hw_counters", dict.fromkeys(EFA_PORT_COUNTERS, 0))
    if number == 0:
        put_netdev(sys, netdev_of(number))
        (sys / "bus/pci/devices" / address / "net" / netdev_of(number)).mkdir(parents=True, exist_ok=True)


def netdev_of(number: int) -> str:
    """Network device of an EFA device that has one."""
    return f"ens{_FIRST_EFA_BUS + number}"


def put_ib(sys: Path, number: int, *, driver: str = "mlx5_core") -> None:
    """One InfiniBand device with one port."""
    name, address = ib_name(number), f"0000:{_FIRST_IB_BUS + number:02x}:{_IB_SLOT:02x}.0"
    _put_function(sys, address, driver, {"vendor": "0x15b3", "device": "0x1021", "class": "0x020700"})
    device = _put_device(sys, name, address, _IB_PORT)
    _put_counters(device / "ports/1/counters", dict.fromkeys(IB_COUNTERS, 0))
    _put_counters(device / "ports/1/hw_counters", dict.fromkeys(IB_HW_COUNTERS, 0))


def put_netdev(sys: Path, name: str) -> None:
    """Create a network device that is up; existing counters keep their values."""
    folder = sys / "class/net" / name
    folder.mkdir(parents=True, exist_ok=True)
    _put_counters(folder, {"carrier_changes": 1, "carrier_down_count": 0})
    for attribute, value in {"flags": "0x1003", "operstate": "up", "carrier": "1"}.items():
        write(folder / attribute, value)


def remove_device(sys: Path, name: str, *, from_the_bus: bool = True) -> None:
    """Remove the device from the bus, or only unbind its driver."""
    entry = sys / "class/infiniband" / name
    function = entry.resolve() / "device"
    address = os.path.basename(os.readlink(function))
    shutil.rmtree(entry)
    if from_the_bus:
        shutil.rmtree(sys / "bus/pci/devices" / address)
    else:
        (sys / "bus/pci/devices" / address / "driver").unlink()


def write(path: Path, value: str | int) -> None:
    """Write in place, as a driver's attribute changes; a reader takes the first line."""
    data = f"{value}\n".encode()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def add(path: Path, more: int) -> int:
    """Increase a counter. Returns its new value. Raises FileNotFoundError where there is no such counter."""
    value = int(path.read_text(encoding="ascii").split()[0]) + more
    write(path, value)
    return value


def _put_function(sys: Path, address: str, driver: str, attributes: Mapping[str, str]) -> None:
    folder = sys / "bus/pci/devices" / address
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in attributes.items():
        write(folder / name, value)
    if not (folder / "driver").is_symlink():
        (folder / "driver").symlink_to(f"../../drivers/{driver}")


def _put_device(sys: Path, name: str, address: str, port: Mapping[str, str]) -> Path:
    folder = sys / "class/infiniband" / name
    (folder / "ports/1").mkdir(parents=True, exist_ok=True)
    if not (folder / "device").is_symlink():
        (folder / "device").symlink_to(f"../../../bus/pci/devices/{address}")
    for attribute, value in port.items():
        write(folder / "ports/1" / attribute, value)
    return folder


def _put_counters(folder: Path, counters: Mapping[str, int]) -> None:
    """Create counters that do not exist yet."""
    folder.mkdir(exist_ok=True)
    for name, value in counters.items():
        if not (folder / name).exists():
            write(folder / name, value)
