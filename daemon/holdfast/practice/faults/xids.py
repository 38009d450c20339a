"""Kernel lines of the NVIDIA driver for the practice's Xids, in the driver's own wording."""

from __future__ import annotations

from pathlib import Path

from holdfast.practice.nvml import state as nvml

_UNKNOWN = "pid='<unknown>', name=<unknown>"
_TEXTS: dict[int, str] = {
    13: "pid=4711, name=python, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Illegal Instruction Encoding",
    31: "pid=4711, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ "
    "0x7f3a_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "pid=4711, name=python, Ch 00000008",
    45: "pid=4711, name=python, Ch 00000008",
    48: f"{_UNKNOWN}, DBE (double bit error) ECC Error",
    63: f"{_UNKNOWN}, Row Remapper: New row (0x0000000001a2b3c4) marked for remapping, reset gpu to activate.",
    64: f"{_UNKNOWN}, Row Remapper: Failed to remap row (0x0000000001a2b3c4).",
    74: f"{_UNKNOWN}, NVLink: fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: f"{_UNKNOWN}, GPU has fallen off the bus.",
    94: "pid=4711, name=python, Contained: DRAM (0x1,0x0). RST: No, D-RST: No",
    95: f"{_UNKNOWN}, Uncontained: DRAM (0x1,0x0). RST: Yes, D-RST: No",
    109: "pid=4711, name=python, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x3c009",
    119: "pid=4711, name=python, Timeout after 45s of waiting for RPC response from GPU0 GSP! Expected function 76 "
    "(GSP_RM_CONTROL) (0x20808513 0x598).",
    120: f"{_UNKNOWN}, GSP task timeout @ pc:0x5c0b2fc, task: 1",
    110: f"{_UNKNOWN}, Security fault",
    136: f"{_UNKNOWN}, NVLink: Link training failed for link 4",
    140: f"{_UNKNOWN}, An uncorrectable ECC error detected (possible firmware handling failure) DRAM:-1840691462, LTC:0",
    144: f"{_UNKNOWN}, SAW_MVB Fatal XC0 i0 Link 04 (0x00000001 0x00000002 0x00000000 0x00000000)",
    145: "RLW_REMAP Nonfatal XC0 i0 Link 04 (0x00000004 0x00000001 0x00000000 0x00000000)",
    149: "NETIR_LINK_EVT Fatal XC0 i0 Link 04 (0x004505c6 0x00000000 0x00000000 0x00000000)",
    154: f"{_UNKNOWN}, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}


def bus_of(pci: str) -> str:
    """NVML's ``00000000:3B:00.0`` as the driver's log prints it: ``0000:3b:00``."""
    domain, bus, device = pci.lower().split(":")
    return f"{domain[-4:]}:{bus}:{device.partition('.')[0]}"


def kernel_line(code: int, pci: str) -> str:
    """The driver's line for an Xid of the GPU at a PCI address."""
    return f"NVRM: Xid (PCI:{bus_of(pci)}): {code}, {_TEXTS.get(code, f'{_UNKNOWN}, unspecified')}"


def mark_gpu(state_file: Path, index: int, code: int) -> None:
    """State that NVML shows for the same fault, in addition to its event."""
    match code:
        case 79:
            nvml.lose_gpu(state_file, index)
        case 48 | 95 | 140:
            nvml.set_ecc(state_file, index, uncorrected=1)
        case 63:
            nvml.set_remap(state_file, index, pending=True)
        case 64:
            nvml.set_remap(state_file, index, failed=True)
        case 154:
            nvml.set_recovery_action(state_file, index, 1)
        case _:
            pass
