"""Faults of the host: services, munge, clock, mounts, memory, handles, processes, CPUs, modules, versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holdfast.model.errors import Rejected
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.faults import PracticeFault
from holdfast.practice.hardware.host import BROKEN, HUNG, MODULES, MUNGE_REFUSES, UNITS, VOLUMES, HostFiles, boot

_STUCK_PID = 4242
_ZOMBIES_FROM = 10_000
_MANY = 2100
_DRIVER_STACK = (
    "[<0>] rwsem_down_write_slowpath+0x2a1/0x6b0\n[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]\n"
    "[<0>] nvidia_unlocked_ioctl+0x1f/0x30 [nvidia]\n[<0>] __x64_sys_ioctl+0xa0/0xf0\n"
)
_FILE_STACK = "[<0>] ptlrpc_set_wait+0x5d2/0x8a0 [ptlrpc]\n[<0>] ll_file_read_iter+0x1a0/0x2f0 [lustre]\n"


def _files(machine: PracticeMachine) -> HostFiles:
    """The files that a fault changes."""
    files = HostFiles(machine.host.folder)
    files.write(BROKEN, "")
    return files


def _heal(machine: PracticeMachine) -> None:
    if (HostFiles(machine.host.folder).folder / BROKEN).exists():
        boot(machine.host.folder)


def _service_down(machine: PracticeMachine, value: str, _gpu: int) -> None:
    unit = value if "." in value else f"{value}.service"
    if unit not in UNITS:
        raise Rejected(f"{value!r} is none of {', '.join(UNITS)}")
    _files(machine).units(**{unit: "failed"})


def _munge_refuses(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    _files(machine).write(MUNGE_REFUSES, "")


def _clock_offset(machine: PracticeMachine, value: str, _gpu: int) -> None:
    try:
        _files(machine).clock(offset_s=float(value))
    except ValueError:
        raise Rejected(f"{value!r} is no number of seconds") from None


def _mount_hang(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    _files(machine).write(HUNG, "")


def _dimm_lost(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    host = _files(machine)
    host.set_hardware(replace(host.hardware, memory_kib=host.hardware.memory_kib * 31 // 32))


def _cpu_lost(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    host = _files(machine)
    host.set_hardware(replace(host.hardware, cpus=host.hardware.cpus // 2))


def _cpu_offline(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    host = _files(machine)
    host.cpus(host.hardware.cpus - 2, host.hardware.cpus)


def _version_drift(machine: PracticeMachine, value: str, _gpu: int) -> None:
    host = _files(machine)
    host.set_hardware(replace(host.hardware, gdrdrv=value))


def _module_unloaded(machine: PracticeMachine, value: str, _gpu: int) -> None:
    if value not in MODULES:
        raise Rejected(f"{value!r} is none of {', '.join(MODULES)}")
    _files(machine).modules(*(name for name in MODULES if name != value))


def _zombies(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    _files(machine).processes(range(_ZOMBIES_FROM, _ZOMBIES_FROM + _MANY), "loader", "Z")


def _dstate(machine: PracticeMachine, value: str, _gpu: int) -> None:
    _files(machine).process(_STUCK_PID, value or "python", "D", stack=_DRIVER_STACK)


def _file_server_wait(machine: PracticeMachine, value: str, _gpu: int) -> None:
    _files(machine).process(_STUCK_PID, value or "python", "D", stack=_FILE_STACK)


def _does(change: Callable[[HostFiles], None]) -> Callable[[PracticeMachine, str, int], None]:
    return lambda machine, _value, _gpu: change(_files(machine))


FAULTS = (
    PracticeFault(
        "disk_full",
        "The file system is full.",
        _does(lambda host: host.write(VOLUMES, '{"used_percent": 99}')),
        heal=_heal,
    ),
    PracticeFault(
        "inodes_full",
        "The file system has no inodes left.",
        _does(lambda host: host.write(VOLUMES, '{"inodes_used_percent": 100}')),
        heal=_heal,
    ),
    PracticeFault(
        "disk_read_only",
        "The kernel has mounted the file system read-only.",
        _does(lambda host: host.write(VOLUMES, '{"read_only": true}')),
        heal=_heal,
    ),
    PracticeFault("munge_down", "Munged has ended.", _does(lambda host: host.munge(listens=False)), heal=_heal),
    PracticeFault("munge_refuses", "Munged listens and refuses to make credentials.", _munge_refuses, heal=_heal),
    PracticeFault("service_down", "A service has failed.", _service_down, value="one of its units", heal=_heal),
    PracticeFault(
        "clock_unsync",
        "Nothing keeps the clock right.",
        _does(lambda host: host.clock(state=5, status=0x40, max_error_s=16.0)),
        heal=_heal,
    ),
    PracticeFault("clock_offset", "The clock is off.", _clock_offset, value="seconds", heal=_heal),
    PracticeFault("mount_hang", "The shared file system does not answer.", _mount_hang, heal=_heal),
    PracticeFault(
        "mount_gone",
        "The shared file system is not mounted.",
        _does(lambda host: host.mounted(there=False)),
        heal=_heal,
    ),
    PracticeFault("memory_low", "Hardly any memory is left.", _does(lambda host: host.memory(80 * 1024)), heal=_heal),
    PracticeFault("dimm_lost", "A memory module is gone.", _dimm_lost),
    PracticeFault(
        "fds_full",
        "File handles run out.",
        _does(lambda host: host.write("proc/sys/fs/file-nr", "970000\t0\t1000000\n")),
        heal=_heal,
    ),
    PracticeFault("pids_full", "Threads run out.", _does(lambda host: host.threads(880_000)), heal=_heal),
    PracticeFault("zombies", "Thousands of zombies.", _zombies, heal=_heal),
    PracticeFault("dstate", "A process hangs in the GPU driver.", _dstate, heal=_heal),
    PracticeFault("file_server_wait", "A process hangs in a file system.", _file_server_wait, heal=_heal),
    PracticeFault("cpu_lost", "Half of the CPUs are gone.", _cpu_lost),
    PracticeFault("cpu_offline", "Two CPUs went offline.", _cpu_offline, heal=_heal),
    PracticeFault("module_unloaded", "A kernel module is not loaded.", _module_unloaded, value="its name", heal=_heal),
    PracticeFault("version_drift", "Another version of gdrdrv.", _version_drift, value="the version"),
)
