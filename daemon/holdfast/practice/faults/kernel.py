"""Faults that show in the kernel log, in the kernel's own wording."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.model.errors import Rejected
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.faults import Apply, PracticeFault
from holdfast.practice.faults.xids import bus_of
from holdfast.practice.nvml import state as nvml
from holdfast_checks.catalog.sxids import SxidClass, lookup

_SWITCH = "0000:c5:00.0"
_MLX5 = "0000:a0:03.0"
_NVME = "nvme1"
_DUMP = "dmesg-erst-7561234567890123777"
_ERROR, _WARNING, _EMERGENCY = 3, 4, 0
_FATAL_SXID = "19047"


def _log(machine: PracticeMachine, *texts: str, level: int = _ERROR) -> None:
    for text in texts:
        # As the kernel writes a record whose message has several lines.
        machine.host.log_kernel(level, text.replace("\n", "\\x0a"))


def _says(*texts: str, level: int = _ERROR) -> Apply:
    return lambda machine, _value, _gpu: _log(machine, *texts, level=level)


def _there(machine: PracticeMachine, path: str) -> None:
    """The device named in the kernel's message exists in sysfs."""
    (machine.host.sysfs / path).mkdir(parents=True, exist_ok=True)


def _on_nvme(*texts: str) -> Apply:
    def apply(machine: PracticeMachine, _value: str, _gpu: int) -> None:
        _there(machine, f"class/nvme/{_NVME}")
        _log(machine, *(f"nvme {_NVME}: {text}" for text in texts), level=_WARNING)

    return apply


def _on_mlx5(*texts: str) -> Apply:
    def apply(machine: PracticeMachine, _value: str, _gpu: int) -> None:
        _there(machine, f"bus/pci/devices/{_MLX5}")
        _log(machine, *(f"mlx5_core {_MLX5}: {text}" for text in texts))

    return apply


def _on_efa(*texts: str) -> Apply:
    def apply(machine: PracticeMachine, value: str, _gpu: int) -> None:
        devices = sorted(machine.host.sysfs.glob("class/infiniband/rdmap*"))
        device = next((path for path in devices if value in ("", path.name)), None)
        if device is None:
            raise Rejected(f"{machine.name} has no EFA device {value}".rstrip())
        address = os.path.basename(os.readlink(device / "device"))
        _log(machine, *(f"efa {address} {device.name}: {text}" for text in texts))

    return apply


def _sxid(machine: PracticeMachine, value: str, _gpu: int) -> None:
    code = value or _FATAL_SXID
    if not (code.isascii() and code.isdigit() and len(code) == 5):
        raise Rejected(f"{value!r} is no SXid: five digits")
    said = "Non-fatal" if lookup(int(code)).kind is SxidClass.HARMLESS else "Fatal"
    _there(machine, f"bus/pci/devices/{_SWITCH}")
    head = f"nvidia-nvswitch0: SXid (PCI:{_SWITCH}): {code}, "
    _log(
        machine,
        f"{head}{said}, Link 46 {lookup(int(code)).family} error (First)",
        f"{head}Severity 1 Engine instance 46 Sub-engine instance 00",
        f"{head}Data {{0x00000080, 0x00000080, 0x00000000, 0x00000080, 0x80000000, 0x00000000}}",
    )


def _gpu(machine: PracticeMachine, minor: int) -> tuple[Path, int, str]:
    """State file, NVML's index and address (``0000:3b:00.0``) of a GPU. Raises Rejected."""
    path = machine.host.nvml_state
    state = nvml.read(path)
    if minor not in {gpu.minor for gpu in state.gpus}:
        raise Rejected(f"{machine.name} has no GPU {minor}")
    index = nvml.index_of_minor(state, minor)
    return path, index, f"{bus_of(state.gpus[index].pci)}.0"


def _fallen_off(machine: PracticeMachine, value: str, minor: int) -> None:
    path, index, address = _gpu(machine, minor)
    if value == "lines":
        _log(
            machine,
            f"NVRM: The NVIDIA GPU {address}\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.",
        )
    else:
        _log(machine, f"NVRM: GPU {address}: GPU has fallen off the bus.")
    nvml.lose_gpu(path, index)


def _init_failed(machine: PracticeMachine, _value: str, minor: int) -> None:
    _path, _index, address = _gpu(machine, minor)
    _log(
        machine,
        f"NVRM: GPU {address}: RmInitAdapter failed! (0x24:0x65:1589)",
        f"NVRM: GPU {address}: rm_init_adapter failed, device minor number {minor}",
    )


def _pcie_fatal(machine: PracticeMachine, _value: str, minor: int) -> None:
    _path, _index, address = _gpu(machine, minor)
    _there(machine, f"bus/pci/devices/{address}")
    _log(machine, f"pcieport 0000:00:01.1: AER: Uncorrectable (Fatal) error message received from {address}")


def _panic(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    pstore = machine.host.folder / "pstore"
    pstore.mkdir(exist_ok=True)
    (pstore / _DUMP).write_text(
        "Panic#1 Part1\n<6>[ 8123.441207] nvidia-uvm: Loaded the UVM driver\n"
        "<0>[ 8123.998102] Kernel panic - not syncing: Fatal exception in interrupt\n"
    )


def _no_panic(machine: PracticeMachine) -> None:
    (machine.host.folder / "pstore" / _DUMP).unlink(missing_ok=True)


FAULTS = (
    PracticeFault("sxid", "NVSwitch reports an error (19047, unless another SXid is given).", _sxid),
    PracticeFault(
        "fallen_off", 'A GPU falls off the bus, and no Xid reports it ("lines": in three lines).', _fallen_off
    ),
    PracticeFault("gpu_init_failed", "The driver cannot start the GPU.", _init_failed),
    PracticeFault(
        "peermem",
        "GPUDirect RDMA meets an invalid context.",
        _says(
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"
        ),
    ),
    PracticeFault(
        "efa_admin",
        "The firmware of an EFA device (the first, or the one named) does not answer its driver.",
        _on_efa(
            "The device didn't send any completion for admin cmd CREATE_QP(1) status 1 (id: 12, sq producer: 7, sq consumer: 6, "
            "cq consumer: 6)",
            "Admin queue is closed",
        ),
    ),
    PracticeFault(
        "efa_refuses",
        "An EFA device is out of a resource that a program asks for.",
        _on_efa("Failed to process command CREATE_CQ (opcode 10) comp_status 1 err -12"),
    ),
    PracticeFault(
        "mlx5_health",
        "The firmware of a Mellanox adapter stops.",
        _on_mlx5("poll_health:825:(pid 0): device's health compromised - reached miss count"),
    ),
    PracticeFault(
        "mlx5_error",
        "A Mellanox adapter refuses a command.",
        _on_mlx5(
            "mlx5_cmd_out_err:803:(pid 1234): ACCESS_REG(0x805) op_mod(0x0) failed, status bad operation(0x2), "
            "syndrome (0x305684), err(-22)"
        ),
    ),
    PracticeFault("pcie_fatal", "The port above the GPU reports a fatal PCIe error.", _pcie_fatal),
    PracticeFault(
        "oom",
        "The node runs out of memory and kills a process.",
        _says(
            "python3 invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0, oom_score_adj=0",
            "Out of memory: Killed process 4711 (python3) total-vm:2101004kB, anon-rss:1950136kB, file-rss:0kB, shmem-rss:0kB, "
            "UID:1000 pgtables:3908kB oom_score_adj:0",
        ),
    ),
    PracticeFault(
        "hung_task",
        "A task does not come back from the kernel.",
        _says("INFO: task python3:4711 blocked for more than 122 seconds.", "      Tainted: P           OE"),
    ),
    PracticeFault(
        "soft_lockup",
        "A CPU is stuck in the kernel.",
        _says("watchdog: BUG: soft lockup - CPU#17 stuck for 26s! [python3:4711]", level=_EMERGENCY),
    ),
    PracticeFault(
        "hard_lockup",
        "A CPU takes no interrupts any more.",
        _says("watchdog: Watchdog detected hard LOCKUP on cpu 17", level=_EMERGENCY),
    ),
    PracticeFault(
        "oops",
        "The kernel trips over a bug.",
        _says("BUG: kernel NULL pointer dereference, address: 0000000000000010", "Oops: 0002 [#1] SMP NOPTI"),
    ),
    PracticeFault(
        "mce",
        "An uncorrected machine check.",
        _says("mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400", level=_EMERGENCY),
    ),
    PracticeFault(
        "edac_ue",
        "An uncorrectable error of host memory.",
        _says(
            "EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x2f2a7b offset:0x40 "
            "grain:32 syndrome:0x0)"
        ),
    ),
    PracticeFault(
        "edac_ce",
        "A corrected error of host memory.",
        _says(
            "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x2f2a7b offset:0x40 "
            "grain:32 syndrome:0x0)"
        ),
    ),
    PracticeFault(
        "read_only_remount",
        "A local file system turns read-only after an error.",
        _says("EXT4-fs (nvme1n1p1): Remounting filesystem read-only"),
    ),
    PracticeFault(
        "fs_error",
        "A local file system is damaged.",
        _says(
            "EXT4-fs error (device nvme1n1p1): ext4_find_entry:1455: inode #2: comm python3: reading directory lblock 0"
        ),
    ),
    PracticeFault(
        "io_error",
        "A local disk cannot read a place.",
        _says("critical medium error, dev nvme1n1, sector 123456 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2"),
    ),
    PracticeFault(
        "nvme_timeout", "An NVMe disk does not answer in time.", _on_nvme("I/O 182 QID 12 timeout, aborting")
    ),
    PracticeFault(
        "nvme_lost",
        "An NVMe disk does not come back from its reset.",
        _on_nvme("Device not ready; aborting reset, CSTS=0x1", "Disabling device after reset failure: -19"),
    ),
    PracticeFault(
        "lustre",
        "Lustre evicts this client.",
        _says(
            "LustreError: 167-0: scratch-OST0004-osc-ffff9c1c3b7a8000: This client was evicted by scratch-OST0004; in progress "
            "operations using this service will fail."
        ),
    ),
    PracticeFault("nfs", "An NFS server does not answer.", _says("nfs: server 10.0.3.7 not responding, still trying")),
    PracticeFault("panic", "The boot before ended in a kernel panic: its dump is in pstore.", _panic, heal=_no_panic),
)
