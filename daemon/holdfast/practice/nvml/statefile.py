"""The emulated NVML's state as data classes and as a small, editable text file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path

from holdfast_checks.whole_file import write_whole

EVENT_DOUBLE_BIT_ECC = 0x2
EVENT_XID = 0x8
EVENT_RECOVERY_ACTION = 0x8000

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class GpuState:
    """One emulated GPU. Counters are absolute; ``clock_event_reasons`` and ``nvlink_down`` are bit masks."""

    minor: int
    uuid: str
    serial: str
    pci: str
    """Bus id as NVML prints it: ``00000000:10:00.0``."""
    name: str = "NVIDIA H100 80GB HBM3"
    vbios: str = "96.00.74.00.01"
    lost: bool = False
    temperature_c: int = 34
    slowdown_c: int = 87
    shutdown_c: int = 92
    power_mw: int = 70_000
    power_limit_mw: int = 700_000
    utilisation_percent: int = 0
    memory_total: int = 80 * _GIB
    memory_used: int = 0
    clock_event_reasons: int = 0x1
    persistence: int = 1
    mig: int = 0
    mig_pending: int = 0
    ecc_mode: int = 1
    ecc_pending: int = 1
    ecc_corrected_volatile: int = 0
    ecc_uncorrected_volatile: int = 0
    ecc_corrected_aggregate: int = 0
    ecc_uncorrected_aggregate: int = 0
    remap_corrected: int = 0
    remap_uncorrected: int = 0
    remap_pending: int = 0
    remap_failed: int = 0
    row_remap: int = 1
    """0: a part from before Ampere, which retires pages instead."""
    banks_low: int = 0
    banks_none: int = 0
    retired_pages: int = 0
    """Because of double-bit errors."""
    retired_single: int = 0
    retired_pending: int = 0
    sram_threshold: int = 0
    sram_uncorrected: int = 0
    repair_channel: int = 0
    repair_tpc: int = 0
    unrepairable_memory: int = 0
    recovery_action: int = 0
    """NVML's number: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX."""
    nvlinks: int = 18
    nvlink_down: int = 0
    nvlink_replays: str = ""
    """``LINK:COUNT`` pairs, separated by spaces; so are the next three."""
    nvlink_recoveries: str = ""
    nvlink_crc: str = ""
    nvlink_failed: str = ""
    """Recoveries that failed."""
    fabric_state: int = 3
    """0 not supported, 1 not started, 2 in progress, 3 completed."""
    fabric_status: int = 0
    """An NVML return code."""
    fabric_health: int = 0x1AA
    """Four two-bit fields that say no fault (2), and the configuration's, which says none (1)."""
    pcie_gen: int = 5
    pcie_gen_max: int = 5
    pcie_width: int = 16
    pcie_width_max: int = 16
    pcie_replays: int = 0
    processes: str = ""
    """``PID:BYTES`` pairs, separated by spaces."""


@dataclass(frozen=True, slots=True)
class EmulatedEvent:
    """An event that event sets deliver once."""

    seq: int
    gpu: int
    """NVML index."""
    type: int
    """One of NVML's event bits."""
    data: int


@dataclass(frozen=True, slots=True)
class NvmlState:
    """All state of the emulated library."""

    node: str
    generation: int
    gpus: tuple[GpuState, ...]
    driver_version: str = "580.95.05"
    nvml_version: str = "13.580.95.05"
    cuda_version: int = 13000
    hang: bool = False
    """Every call blocks until this is false again."""
    count: int = 0
    """Wrong number of GPUs that NVML reports; 0: the actual number."""
    fail: dict[str, int] = field(default_factory=dict)
    """Call → NVML return code, e.g. ``nvmlInit`` → 18 or ``field230`` → 3 (names without ``_v2``); ``nvmlDeviceGetUUID@3``: for
    the GPU of that index alone."""
    events: tuple[EmulatedEvent, ...] = ()


def default_state(node: str, gpus: int, generation: int, *, minors: tuple[int, ...] | None = None) -> NvmlState:
    """A healthy node. Another generation (a replaced machine) has other UUIDs and serials; the same arguments give the same ones.

    ``minors`` gives the device minor of each NVML index, for nodes where the two orders differ."""
    order = minors if minors is not None else tuple(range(gpus))
    if sorted(order) != list(range(gpus)):
        raise ValueError(f"minors must be a permutation of 0..{gpus - 1}: {order}")
    return NvmlState(node, generation, tuple(_new_gpu(node, generation, minor) for minor in order))


def _new_gpu(node: str, generation: int, minor: int) -> GpuState:
    digest = hashlib.sha256(f"{node}/{generation}/{minor}".encode()).hexdigest()
    uuid = "GPU-" + "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
    serial = str(1_650_000_000_000 + int(digest[32:40], 16))
    return GpuState(minor=minor, uuid=uuid, serial=serial, pci=f"00000000:{0x10 + 0x0B * minor:02X}:00.0")


def write(path: Path, state: NvmlState) -> None:
    """Write the whole state atomically; a reader sees the old file or the new one."""
    write_whole(path, render(state), 0o644)


def render(state: NvmlState) -> str:
    """The state as text."""
    lines = [
        "# Emulated NVML. Edit at will: the library reads this file again at every change (replace it, or save in place).",
        "[node]",
        f"node = {state.node}",
        f"generation = {state.generation}",
        f"driver_version = {state.driver_version}",
        f"nvml_version = {state.nvml_version}",
        f"cuda_version = {state.cuda_version}",
        f"hang = {int(state.hang)}",
        f"count = {state.count}",
        *(f"fail.{call} = {code}" for call, code in sorted(state.fail.items())),
    ]
    for index, gpu in enumerate(state.gpus):
        lines += ["", f"[gpu {index}]", *(f"{f.name} = {_text(getattr(gpu, f.name))}" for f in fields(gpu))]
    lines += ["", "# number = gpu type data   (type: 0x8 Xid, 0x2 double-bit ECC, 0x8000 recovery action)", "[events]"]
    lines += [f"{event.seq} = {event.gpu} {event.type:#x} {event.data}" for event in state.events]
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def read(path: Path) -> NvmlState:
    """The state from its file. Raises OSError, and ValueError for a file that is not a state."""
    node: dict[str, str] = {}
    gpus: list[dict[str, str]] = []
    events: dict[str, str] = {}
    section: dict[str, str] = {}
    for raw in path.read_text(encoding="utf-8").splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            if line.startswith("[gpu "):
                gpus.append({})
            section = node if line == "[node]" else events if line == "[events]" else gpus[-1] if gpus else {}
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"{path}: not a line of the form key = value: {line!r}")
        section[key.strip()] = value.strip()
    return _state(node, gpus, events)


def _state(node: dict[str, str], gpus: list[dict[str, str]], events: dict[str, str]) -> NvmlState:
    return NvmlState(
        node=node["node"],
        generation=int(node["generation"]),
        gpus=tuple(_gpu(values) for values in gpus),
        driver_version=node["driver_version"],
        nvml_version=node["nvml_version"],
        cuda_version=int(node["cuda_version"]),
        hang=_bool(node["hang"]),
        count=int(node.get("count", "0")),
        fail={key[5:]: int(value) for key, value in node.items() if key.startswith("fail.")},
        events=tuple(_event(seq, value) for seq, value in events.items()),
    )


def _gpu(values: dict[str, str]) -> GpuState:
    convert: dict[str, Callable[[str], str | int | bool]] = {
        "str": str,
        "int": lambda text: int(text, 0),
        "bool": _bool,
    }
    given = {f.name: convert[str(f.type)](values[f.name]) for f in fields(GpuState) if f.name in values}
    return GpuState(**given)  # type: ignore[arg-type]


def _event(seq: str, value: str) -> EmulatedEvent:
    gpu, type_, data = value.split()
    return EmulatedEvent(int(seq), int(gpu), int(type_, 0), int(data, 0))


def _bool(text: str) -> bool:
    return text in {"1", "true", "yes"}
