"""Fault injection into the emulated NVML's state file, each as one atomic change.

``index`` is always NVML's index (the number in ``[gpu N]``), which need not be the device minor
(:func:`index_of_minor` translates).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from holdfast.practice.nvml.statefile import (
    EVENT_DOUBLE_BIT_ECC,
    EVENT_RECOVERY_ACTION,
    EVENT_XID,
    EmulatedEvent,
    GpuState,
    NvmlState,
    default_state,
    read,
    render,
    write,
)

__all__ = [
    "EmulatedEvent",
    "GpuState",
    "NvmlState",
    "add_xid",
    "change",
    "change_gpu",
    "default_state",
    "index_of_minor",
    "lose_gpu",
    "read",
    "reboot",
    "remove_gpu",
    "render",
    "reset_gpu",
    "set_count",
    "set_ecc",
    "set_fail",
    "set_hang",
    "set_recovery_action",
    "set_remap",
    "set_throttle",
    "write",
]

_LACKING = frozenset({2, 3, 13, 25})
KEPT_EVENTS = 128
"""Number of events kept in the file; their numbers keep rising."""


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def change(path: Path, edit: Callable[[NvmlState], NvmlState]) -> NvmlState:
    """Read, edit, write, as the only writer; returns the new state."""
    with _only_writer(path):
        state = edit(read(path))
        write(path, state)
    return state


def change_gpu(path: Path, index: int, **values: int | str | bool) -> None:
    """Set named fields of one GPU. Raises IndexError, and TypeError for a field that is not one."""
    change(path, lambda state: _with_gpu(state, index, **values))


def _with_gpu(state: NvmlState, index: int, **values: int | str | bool) -> NvmlState:
    if not 0 <= index < len(state.gpus):
        raise IndexError(f"no GPU {index}: the node has {len(state.gpus)}")
    gpus = list(state.gpus)
    gpus[index] = replace(gpus[index], **values)  # type: ignore[arg-type]
    return replace(state, gpus=tuple(gpus))


def _with_event(state: NvmlState, index: int, type_: int, data: int) -> NvmlState:
    seq = max((event.seq for event in state.events), default=0) + 1
    return replace(state, events=(*state.events, EmulatedEvent(seq, index, type_, data))[-KEPT_EVENTS:])


def index_of_minor(state: NvmlState, minor: int) -> int:
    """NVML's index of ``/dev/nvidia<minor>``. Raises IndexError."""
    for index, gpu in enumerate(state.gpus):
        if gpu.minor == minor:
            return index
    raise IndexError(f"no GPU with minor {minor}")


def lose_gpu(path: Path, index: int) -> None:
    """The GPU falls off the bus: every call on it answers GPU_IS_LOST."""
    change_gpu(path, index, lost=True)


def remove_gpu(path: Path, index: int) -> None:
    """The GPU is not enumerated any more (as after a reboot without it): the count falls, later indices move down."""
    change(path, lambda state: replace(state, gpus=state.gpus[:index] + state.gpus[index + 1 :]))


def add_xid(path: Path, index: int, code: int) -> None:
    """Deliver an Xid to event sets. State that goes with it (lost, remap …) is set by its own function."""
    change(path, lambda state: _with_event(state, index, EVENT_XID, code))


def set_hang(path: Path, on: bool) -> None:
    """Make every call block, including running ones, until it is switched off."""
    change(path, lambda state: replace(state, hang=on))


def set_fail(path: Path, call: str, code: int | None) -> None:
    """Make a call return an NVML error code; None clears it."""

    def edit(state: NvmlState) -> NvmlState:
        rest = {name: known for name, known in state.fail.items() if name != call}
        return replace(state, fail=rest if code is None else {**rest, call: code})

    change(path, edit)


def set_count(path: Path, count: int) -> None:
    """Set the number of GPUs that NVML reports; 0: the actual number again."""
    change(path, lambda state: replace(state, count=count))


def set_ecc(path: Path, index: int, *, uncorrected: int, corrected: int = 0) -> None:
    """Set the volatile counters (the aggregate ones grow with them) and deliver a double-bit event if they rise."""

    def edit(state: NvmlState) -> NvmlState:
        gpu = state.gpus[index]
        new = max(0, uncorrected - gpu.ecc_uncorrected_volatile)
        state = _with_gpu(
            state,
            index,
            ecc_uncorrected_volatile=uncorrected,
            ecc_corrected_volatile=corrected,
            ecc_uncorrected_aggregate=gpu.ecc_uncorrected_aggregate + new,
            ecc_corrected_aggregate=gpu.ecc_corrected_aggregate + max(0, corrected - gpu.ecc_corrected_volatile),
        )
        return _with_event(state, index, EVENT_DOUBLE_BIT_ECC, 0) if new else state

    change(path, edit)


def set_remap(
    path: Path, index: int, *, pending: bool = False, failed: bool = False, uncorrected: int = 1, corrected: int = 0
) -> None:
    """Set the row remap counters and flags."""
    change_gpu(
        path,
        index,
        remap_pending=int(pending),
        remap_failed=int(failed),
        remap_uncorrected=uncorrected,
        remap_corrected=corrected,
    )


def set_recovery_action(path: Path, index: int, action: int) -> None:
    """Set field 230 and deliver the event that says so."""
    change(
        path,
        lambda state: _with_event(
            _with_gpu(state, index, recovery_action=action), index, EVENT_RECOVERY_ACTION, action
        ),
    )


def set_throttle(path: Path, index: int, *, reasons: int, temperature_c: int | None = None) -> None:
    """Set the clock event reasons (0x40 hardware thermal, 0x80 power brake, 0x8 hardware slowdown) and the temperature."""
    heat = {} if temperature_c is None else {"temperature_c": temperature_c}
    change_gpu(path, index, clock_event_reasons=reasons, **heat)


def reset_gpu(path: Path, index: int) -> None:
    """Apply a successful GPU reset: volatile counters, pending remap and recovery action are cleared.

    A lost GPU stays lost and a failed remap stays failed."""
    change_gpu(
        path,
        index,
        ecc_uncorrected_volatile=0,
        ecc_corrected_volatile=0,
        remap_pending=0,
        retired_pending=0,
        recovery_action=0,
        clock_event_reasons=0x1,
        nvlink_down=0,
        nvlink_replays="",
        nvlink_recoveries="",
        nvlink_crc="",
        nvlink_failed="",
        pcie_replays=0,
    )


def reboot(path: Path) -> None:
    """Apply a reboot: like a reset of every GPU; lost ones come back, a hang ends, processes are gone."""

    def revived(gpu: GpuState) -> GpuState:
        return replace(
            gpu,
            lost=False,
            ecc_uncorrected_volatile=0,
            ecc_corrected_volatile=0,
            remap_pending=0,
            retired_pending=0,
            repair_channel=0,
            repair_tpc=0,
            recovery_action=0,
            clock_event_reasons=0x1,
            nvlink_down=0,
            nvlink_replays="",
            nvlink_recoveries="",
            nvlink_crc="",
            nvlink_failed="",
            pcie_replays=0,
            pcie_width=gpu.pcie_width_max,
            pcie_gen=gpu.pcie_gen_max,
            processes="",
        )

    change(
        path,
        lambda state: replace(
            state, hang=False, count=0, fail=_after_boot(state), gpus=tuple(revived(gpu) for gpu in state.gpus)
        ),
    )


def _after_boot(state: NvmlState) -> dict[str, int]:
    """Injected failures that survive a boot: unsupported features of a part or driver."""
    return {call: code for call, code in state.fail.items() if code in _LACKING}
