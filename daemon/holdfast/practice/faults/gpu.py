"""Faults of GPUs, as NVML shows them. Their kernel messages are separate faults (``kernel_message``, ``xid``)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from holdfast.model.errors import Rejected
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.faults import Apply, PracticeFault
from holdfast.practice.nvml import state as nvml

_CALLS = ("nvmlInit", "nvmlDeviceGetCount")
_RECOVERIES = 50
_REPLAYS = 10_000
_LEFTOVER_S = 600
_DEFAULTS = {field.name: field.default for field in fields(nvml.GpuState)}

Heal = Callable[[PracticeMachine], None]


def _gpu(machine: PracticeMachine, minor: int) -> tuple[Path, int, nvml.GpuState]:
    """State file, NVML's index and state of the GPU with that device minor. Raises Rejected."""
    path = machine.host.nvml_state
    state = nvml.read(path)
    try:
        index = nvml.index_of_minor(state, minor)
    except IndexError as error:
        raise Rejected(f"{machine.name} has no GPU {minor}") from error
    return path, index, state.gpus[index]


def _number(value: str, low: int, high: int, default: int | None = None) -> int:
    if not value and default is not None:
        return default
    if not value.isdigit() or not low <= int(value) <= high:
        raise Rejected(f"{value!r} is no number from {low} to {high}")
    return int(value)


def _set(**values: int | str | bool) -> Apply:
    """Set these fields of the GPU."""

    def apply(machine: PracticeMachine, _value: str, minor: int) -> None:
        path, index, _gpu_state = _gpu(machine, minor)
        nvml.change_gpu(path, index, **values)

    return apply


def _as_new(*names: str) -> Heal:
    """Reset these fields of every GPU to those of a healthy one."""

    def healed(state: nvml.NvmlState) -> nvml.NvmlState:
        values: dict[str, Any] = {name: _DEFAULTS[name] for name in names}
        return replace(state, gpus=tuple(replace(gpu, **values) for gpu in state.gpus))

    def heal(machine: PracticeMachine) -> None:
        path = machine.host.nvml_state
        if (state := nvml.read(path)) != healed(state):
            nvml.change(path, healed)

    return heal


def _nvlink_down(machine: PracticeMachine, value: str, minor: int) -> None:
    path, index, gpu = _gpu(machine, minor)
    link = _number(value, 0, gpu.nvlinks - 1)
    nvml.change_gpu(path, index, nvlink_down=gpu.nvlink_down | 1 << link)


def _nvlink_errors(machine: PracticeMachine, value: str, minor: int) -> None:
    path, index, gpu = _gpu(machine, minor)
    link = _number(value, 0, gpu.nvlinks - 1)
    counts = dict(pair.split(":") for pair in gpu.nvlink_recoveries.split())
    counts[str(link)] = str(int(counts.get(str(link), "0")) + _RECOVERIES)
    nvml.change_gpu(path, index, nvlink_recoveries=" ".join(f"{key}:{count}" for key, count in counts.items()))


def _pcie_replay(machine: PracticeMachine, value: str, minor: int) -> None:
    path, index, gpu = _gpu(machine, minor)
    nvml.change_gpu(path, index, pcie_replays=gpu.pcie_replays + _number(value, 1, 1 << 30, _REPLAYS))


def _margin(machine: PracticeMachine, value: str, minor: int) -> None:
    path, index, gpu = _gpu(machine, minor)
    nvml.change_gpu(path, index, temperature_c=gpu.slowdown_c - _number(value, 0, 50, 1))


def _recovery_action(machine: PracticeMachine, value: str, minor: int) -> None:
    path, index, _state = _gpu(machine, minor)
    nvml.set_recovery_action(path, index, _number(value, 0, 255))


def _ecc(machine: PracticeMachine, value: str, minor: int) -> None:
    path, index, gpu = _gpu(machine, minor)
    nvml.set_ecc(path, index, uncorrected=_number(value, 1, 1 << 30, 1), corrected=gpu.ecc_corrected_volatile)


def _ecc_corrected(machine: PracticeMachine, value: str, minor: int) -> None:
    path, index, gpu = _gpu(machine, minor)
    corrected = gpu.ecc_corrected_volatile + _number(value, 1, 1 << 40)
    nvml.set_ecc(path, index, uncorrected=gpu.ecc_uncorrected_volatile, corrected=corrected)


def _retired_pages(machine: PracticeMachine, value: str, minor: int) -> None:
    path, index, _state = _gpu(machine, minor)
    nvml.change_gpu(path, index, row_remap=0, retired_pages=_number(value, 1, 64, 62))


def _lost(machine: PracticeMachine, _value: str, minor: int) -> None:
    path, index, _state = _gpu(machine, minor)
    nvml.lose_gpu(path, index)


def _refused(machine: PracticeMachine, value: str, minor: int) -> None:
    path, index, _state = _gpu(machine, minor)
    nvml.set_fail(path, f"nvmlDeviceGetHandleByIndex@{index}", _number(value, 1, 999, 999))


def _not_refused(machine: PracticeMachine) -> None:
    path = machine.host.nvml_state
    for call in nvml.read(path).fail:
        if call.startswith("nvmlDeviceGetHandleByIndex@"):
            nvml.set_fail(path, call, None)


def _library_error(machine: PracticeMachine, code: int) -> None:
    for call in _CALLS:
        nvml.set_fail(machine.host.nvml_state, call, code)


def _library_healed(machine: PracticeMachine) -> None:
    path = machine.host.nvml_state
    for call in nvml.read(path).fail.keys() & set(_CALLS):
        nvml.set_fail(path, call, None)


def _true_count(machine: PracticeMachine) -> None:
    if nvml.read(machine.host.nvml_state).count:
        nvml.set_count(machine.host.nvml_state, 0)


def _leftover(machine: PracticeMachine, _value: str, minor: int) -> None:
    """Start a process outside any job that uses the GPU; it exits after ten minutes."""
    path, index, gpu = _gpu(machine, minor)
    pid = os.posix_spawnp("sleep", ["sleep", str(_LEFTOVER_S)], os.environ, setsid=True)
    with _leftover_file(machine).open("a") as file:
        file.write(f"{pid}\n")
    nvml.change_gpu(path, index, processes=f"{gpu.processes} {pid}:1073741824".strip())


def _no_leftover(machine: PracticeMachine) -> None:
    file = _leftover_file(machine)
    if file.exists():
        _as_new("processes")(machine)
        for pid in map(int, file.read_text().split()):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes() == f"sleep\0{_LEFTOVER_S}\0".encode():
                    os.kill(pid, signal.SIGKILL)
        file.unlink()


def _leftover_file(machine: PracticeMachine) -> Path:
    return machine.host.folder / "leftover.pids"


FAULTS: tuple[PracticeFault, ...] = (
    PracticeFault("lost", "The GPU falls off the bus: NVML calls it lost.", _lost),
    PracticeFault("gpu_refused", "NVML counts the GPU and does not give it out.", _refused, "", _not_refused),
    PracticeFault(
        "recovery_action", "The driver asks for a recovery action.", _recovery_action, "its number, 0 to 7 and above"
    ),
    PracticeFault("ecc", "Uncorrectable memory errors (one, unless a number is given).", _ecc),
    PracticeFault("ecc_corrected", "More corrected memory errors: a number.", _ecc_corrected, "how many"),
    PracticeFault("ecc_off", "ECC is off.", _set(ecc_mode=0), heal=_as_new("ecc_mode")),
    PracticeFault("remap_pending", "A row of memory waits to be remapped.", _set(remap_pending=1, remap_uncorrected=1)),
    PracticeFault("remap_failed", "A row of memory could not be remapped.", _set(remap_failed=1, remap_uncorrected=1)),
    PracticeFault("bank_low", "Banks of memory have few spare rows left.", _set(banks_low=2)),
    PracticeFault("sram_flag", "The SRAM threshold flag is set.", _set(sram_threshold=1, sram_uncorrected=5)),
    PracticeFault("retired_pages", "An old part with retired pages (62, unless a number is given).", _retired_pages),
    PracticeFault("repair_pending", "A memory channel is repaired at the next boot.", _set(repair_channel=1)),
    PracticeFault("unrepairable_memory", "Memory that cannot be repaired.", _set(unrepairable_memory=1)),
    PracticeFault("nvlink_down", "An NVLink goes down.", _nvlink_down, "the link's number"),
    PracticeFault("nvlink_errors", "An NVLink recovers many times.", _nvlink_errors, "the link's number"),
    PracticeFault(
        "fabric_failed",
        "The GPU does not join the NVSwitch fabric.",
        _set(fabric_state=2),
        heal=_as_new("fabric_state"),
    ),
    PracticeFault(
        "fabric_unhealthy", "Routes of the fabric are bad.", _set(fabric_health=0x19A), heal=_as_new("fabric_health")
    ),
    PracticeFault("pcie_width", "The PCIe link runs with 8 of 16 lanes.", _set(pcie_width=8)),
    PracticeFault("pcie_speed", "The PCIe link is slow under load.", _set(pcie_gen=1, utilisation_percent=95)),
    PracticeFault("pcie_replay", "PCIe packets are repeated (10,000 times, unless a number is given).", _pcie_replay),
    PracticeFault(
        "thermal",
        "The hardware slows the GPU down because of heat.",
        _set(clock_event_reasons=0x48),
        heal=_as_new("clock_event_reasons"),
    ),
    PracticeFault(
        "power_brake",
        "An external power brake slows the GPU down.",
        _set(clock_event_reasons=0x88),
        heal=_as_new("clock_event_reasons"),
    ),
    PracticeFault(
        "margin", "One degree is left until the slowdown (or the number given).", _margin, "", _as_new("temperature_c")
    ),
    PracticeFault("persistence_off", "Persistence mode is off.", _set(persistence=0), heal=_as_new("persistence")),
    PracticeFault("mig_on", "MIG is on.", _set(mig=1, mig_pending=1), heal=_as_new("mig", "mig_pending")),
    PracticeFault(
        "vbios_mix", "The GPU has another VBIOS than the others.", _set(vbios="96.00.30.00.01"), heal=_as_new("vbios")
    ),
    PracticeFault("leftover_process", "A process of no job uses the GPU.", _leftover, heal=_no_leftover),
    PracticeFault(
        "driver_mismatch",
        "Library and driver are of different versions.",
        lambda machine, _value, _minor: _library_error(machine, 18),
        heal=_library_healed,
    ),
    PracticeFault(
        "nvml_error",
        "NVML as a whole answers with an error.",
        lambda machine, value, _minor: _library_error(machine, _number(value, 1, 999)),
        "NVML's return code",
        _library_healed,
    ),
    PracticeFault(
        "nvml_count",
        "NVML says another number of GPUs than there are.",
        lambda machine, value, _minor: nvml.set_count(machine.host.nvml_state, _number(value, 1, 64)),
        "the number",
        _true_count,
    ),
)
