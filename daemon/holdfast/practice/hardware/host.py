"""The emulated host of one node: procfs files, CPUs, services, munge, mounts and a clock, as files under ``host/`` in the node's folder.

``machine.json`` holds what changes only with the hardware; everything else is reset by a boot. Four small scripts replace the commands
that the agent runs; each reads the files in its folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast_checks.whole_file import write_whole

FOLDER = "host"
MOUNT = "/fsx"
MODULES = ("nvidia", "nvidia_uvm", "efa", "ib_core", "ib_uverbs", "gdrdrv")
UNITS = ("nvidia-fabricmanager.service", "nvidia-persistenced.service", "chronyd.service")
MUNGE_SOCKET = "/run/munge/munge.socket.2"
HUNG, MUNGE_REFUSES = "mount_hangs", "munge_refuses"
"""Files in the host's folder whose presence changes what a command answers."""
BROKEN = "broken"
"""Marker that a fault has changed something since the boot."""
VOLUMES = "volumes.json"
"""Fill level of the file systems, where set by a fault."""

_MOUNTS = "/dev/root / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\n"
_MOUNTED = f"10.0.0.5@tcp:/practice {MOUNT} lustre rw,flock 0 0\n"
_SCRIPTS = {
    "stat": f'test ! -e "$here/{HUNG}" || exec sleep 3600\necho lustre\n',
    "systemctl": 'cat "$here/units"\n',
    "munge": f'test ! -e "$here/{MUNGE_REFUSES}" || {{ echo "munge: Error: Unable to access key" >&2; exit 15; }}\n'
    "echo MUNGE:AwQFAAD=:\n",
    "unmunge": 'read -r credential\ncase $credential in MUNGE:*) echo "STATUS: Success (0)" ;; *) exit 5 ;; esac\n',
}


@dataclass(frozen=True, slots=True)
class HostHardware:
    """State that a boot does not change."""

    cpus: int = 192
    memory_kib: int = 2_113_929_216
    kernel: str = "6.8.0-1021-aws"
    gdrdrv: str = "2.5"
    driver: str = "580.95.05"


class HostFiles:
    """The files of one node's emulated host."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the node's."""
        self.folder = folder / FOLDER
        self.proc = self.folder / "proc"
        self.sys = folder / "sys"

    @property
    def hardware(self) -> HostHardware:
        return HostHardware(**json.loads((self.folder / "machine.json").read_text()))

    def set_hardware(self, hardware: HostHardware) -> None:
        """Set other hardware, and what the kernel shows of it."""
        self.write("machine.json", json.dumps(asdict(hardware)) + "\n")
        self.memory(hardware.memory_kib // 2)
        self.cpus(hardware.cpus, hardware.cpus)
        self.write("proc/sys/kernel/osrelease", f"{hardware.kernel}\n")
        for module, version in (("gdrdrv", hardware.gdrdrv), ("nvidia", hardware.driver)):
            _write(self.sys / "module" / module / "version", f"{version}\n")

    def write(self, name: str, text: str) -> None:
        """Write one file of the host, so that a reader sees the old or the new text."""
        _write(self.folder / name, text)

    def memory(self, available_kib: int) -> None:
        """Set the available part of the installed memory."""
        total = self.hardware.memory_kib
        self.write(
            "proc/meminfo", f"MemTotal: {total} kB\nMemFree: {available_kib} kB\nMemAvailable: {available_kib} kB\n"
        )

    def cpus(self, online: int, present: int) -> None:
        for name, count in (("online", online), ("present", present)):
            _write(self.sys / "devices/system/cpu" / name, f"0-{count - 1}\n")

    def threads(self, count: int) -> None:
        self.write("proc/loadavg", f"1.20 1.10 1.00 2/{count} 4321\n")

    def clock(self, *, state: int = 0, status: int = 0x2001, offset_s: float = 0.0, max_error_s: float = 0.01) -> None:
        """Set the values of adjtimex; the defaults are those of a clock synchronized by chronyd."""
        told = {"state": state, "status": status, "offset_s": offset_s, "max_error_s": max_error_s}
        self.write("clock.json", json.dumps(told) + "\n")

    def modules(self, *names: str) -> None:
        self.write("proc/modules", "".join(f"{name} 163840 1 - Live 0x0000000000000000\n" for name in names))

    def units(self, **down: str) -> None:
        """Set the services as ``systemctl show`` prints them: all run except those in ``down`` (unit → state)."""
        self.write(
            "units", "\n".join(_unit(name, down.get(name, "active")) for name in (*UNITS, *down.keys() - set(UNITS)))
        )

    def munge(self, *, listens: bool) -> None:
        """Write the kernel's list of sockets, with munged's or without."""
        line = f"0000000000000000: 00000002 00000000 00010000 0001 01 23941 {MUNGE_SOCKET}\n" if listens else ""
        head = "Num       RefCount Protocol Flags    Type St Inode Path\n"
        self.write(
            "proc/net/unix", f"{head}0000000000000000: 00000003 00000000 00000000 0001 03 23950 {MUNGE_SOCKET}\n{line}"
        )

    def mounted(self, *, there: bool) -> None:
        self.write("proc/self/mounts", _MOUNTS + (_MOUNTED if there else ""))

    def process(self, pid: int, name: str, state: str, *, switches: int = 7, stack: str = "") -> None:
        """Add one process to the process table, with ``switches`` context switches."""
        folder = f"proc/{pid}"
        numbers = " ".join(["1", *["0"] * 17, "100", *["0"] * 31])
        self.write(f"{folder}/stat", f"{pid} ({name}) {state} {numbers}\n")
        self.write(
            f"{folder}/status", f"Name:\t{name}\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
        )
        if stack:
            self.write(f"{folder}/stack", stack)

    def processes(self, pids: Iterable[int], name: str, state: str) -> None:
        """Add many processes almost at once: no read of the process table sees half of them twice."""
        staged = HostFiles(self.folder / "staged")
        for pid in pids:
            staged.process(pid, name, state)
        for entry in list(staged.proc.iterdir()):
            shutil.rmtree(self.proc / entry.name, ignore_errors=True)
            entry.rename(self.proc / entry.name)

    def only_first_processes(self) -> None:
        """Reset the process table to its state after a boot."""
        for entry in self.proc.glob("[0-9]*"):
            shutil.rmtree(entry, ignore_errors=True)
        self.process(1, "systemd", "S")
        self.process(2, "kthreadd", "S")


def install(folder: Path) -> None:
    """Fresh hardware."""
    host = HostFiles(folder)
    host.set_hardware(HostHardware())
    good = HostHardware()
    manifest = {
        "version": 1,
        "cpus": good.cpus,
        "memory_kib": good.memory_kib,
        "versions": {"kernel": good.kernel, "module gdrdrv": good.gdrdrv, "module nvidia": good.driver},
        "modules": MODULES,
        "mounts": {MOUNT: "lustre"},
    }
    host.write("manifest.json", json.dumps(manifest) + "\n")
    host.write("munge.key", "")
    for name, body in _SCRIPTS.items():
        host.write(f"bin/{name}", f"#!/bin/sh\nhere=${{0%/bin/*}}\n{body}")
        (host.folder / "bin" / name).chmod(0o755)
    boot(folder)


def boot(folder: Path) -> None:
    """Reset everything as after a boot; a lost part stays lost."""
    host = HostFiles(folder)
    if not host.folder.is_dir():
        return
    host.set_hardware(host.hardware)
    host.threads(1200)
    host.clock()
    host.modules(*MODULES)
    host.units()
    host.munge(listens=True)
    host.mounted(there=True)
    host.write("proc/sys/fs/file-nr", "9000\t0\t1000000\n")
    host.write("proc/sys/kernel/pid_max", "4194304\n")
    host.write("proc/sys/kernel/threads-max", "900000\n")
    host.only_first_processes()
    for name in (HUNG, MUNGE_REFUSES, VOLUMES, BROKEN):
        (host.folder / name).unlink(missing_ok=True)


def agent_settings(folder: Path) -> dict[str, Any]:
    """Table ``[host]`` of the agent's file: the paths of all these files."""
    host = folder / FOLDER
    return {
        "services": ["chronyd"],
        "manifest": str(host / "manifest.json"),
        "munge_key": str(host / "munge.key"),
        "munge_socket": MUNGE_SOCKET,
        "slurm_confs": [],
        "proc": str(host / "proc"),
        "clock_file": str(host / "clock.json"),
        "volumes_file": str(host / VOLUMES),
        **{name: str(host / "bin" / name) for name in _SCRIPTS},
    }


def _unit(name: str, active: str) -> str:
    sub = {"active": "running", "failed": "failed"}.get(active, "dead")
    return f"Names={name}\nLoadState=loaded\nActiveState={active}\nSubState={sub}\nUnitFileState=enabled\nNRestarts=0\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
