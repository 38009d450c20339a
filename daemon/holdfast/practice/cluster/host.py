"""The emulated host of one node: ``nodes/nK/`` with kernel log, NVML state, sysfs tree, boot id and instance id as
files."""

from __future__ import annotations

import fcntl
import shutil
import time
import uuid
from pathlib import Path

from holdfast.practice.hardware import dcgm, network, nvidia_smi, path
from holdfast.practice.hardware import host as host_files
from holdfast.practice.nvml import state as nvml
from holdfast.practice.nvml.build import STATE_FILE
from holdfast_checks.whole_file import write_whole


class PracticeHost:
    """Files that represent a machine. A new *generation* is other hardware under the same node name."""

    def __init__(self, folder: Path, name: str, gpus: int) -> None:
        self.folder = folder
        self.name = name
        self._gpus = gpus

    @property
    def kmsg(self) -> Path:
        """Append-only file of /dev/kmsg records."""
        return self.folder / "kmsg"

    @property
    def nvml_state(self) -> Path:
        """State of the emulated NVML library (format: ``practice/nvml``)."""
        return self.folder / STATE_FILE

    @property
    def sysfs(self) -> Path:
        """Root of the emulated sysfs (EFA, PCI)."""
        return self.folder / "sys"

    @property
    def boot_id_file(self) -> Path:
        return self.folder / "boot_id"

    @property
    def boot_id(self) -> str:
        """As /proc/sys/kernel/random/boot_id."""
        return self.boot_id_file.read_text().strip()

    @property
    def instance_id(self) -> str:
        """Instance id of the cloud machine of this host."""
        return (self.folder / "instance_id").read_text().strip()

    @property
    def generation(self) -> int:
        """0 for the first hardware, one more for each replacement."""
        return int((self.folder / "generation").read_text())

    def create(self) -> None:
        """Create the first hardware."""
        for name in ("sys/class/infiniband", "sys/bus/pci/devices", "agent"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._install(0, f"i-{uuid.uuid4().hex[:17]}")

    def replace_hardware(self, instance_id: str | None = None, *, same: bool = False) -> None:
        """Replace the hardware under the name: new GPU UUIDs, new instance id (a given one, or a new one), and a first
        boot. ``same``: the old hardware again, under the new id."""
        self._install(self.generation + (not same), instance_id or f"i-{uuid.uuid4().hex[:17]}")

    def _install(self, generation: int, instance_id: str) -> None:
        write_whole(self.folder / "generation", f"{generation}\n")
        write_whole(self.folder / "instance_id", f"{instance_id}\n")
        self.reset_gpus()
        dcgm.install(self.folder)
        nvidia_smi.install(self.folder)
        host_files.install(self.folder)
        path.install(self.folder)
        self.boot()

    def reset_gpus(self) -> None:
        """GPUs as new, of this generation."""
        nvml.write(self.nvml_state, nvml.default_state(self.name, self._gpus, self.generation))

    def boot(self) -> None:
        """Boot: new boot id, empty kernel log, a stuck epilog is gone, network devices are detected again."""
        network.install(self.folder)
        write_whole(self.boot_id_file, f"{uuid.uuid4()}\n")
        (self.folder / "epilog_stuck").unlink(missing_ok=True)
        host_files.boot(self.folder)
        write_whole(self.kmsg, "")
        self.log_kernel(5, f"Linux version 6.1.0 (practice) node {self.name}")

    def log_kernel(self, level: int, text: str, *, facility: int = 0) -> str:
        """Append one record ``priority,sequence,microseconds,-;text`` and return it. Microseconds are
        CLOCK_MONOTONIC's.

        ``facility`` 0 is the kernel; 1 is a user's write to /dev/kmsg."""
        with self.kmsg.open("a", encoding="utf-8") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            sequence = self._next_sequence()
            record = f"{facility * 8 + level},{sequence},{time.monotonic_ns() // 1000},-;{text}\n"
            log.write(record)
        return record

    def _next_sequence(self) -> int:
        lines = self.kmsg.read_bytes().splitlines() if self.kmsg.exists() else []
        return int(lines[-1].split(b",")[1]) + 1 if lines else 0

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
