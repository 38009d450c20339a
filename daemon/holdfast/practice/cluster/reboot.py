"""Slurm's RebootProgram on a practice node: ``reboot FOLDER NODE``. Detaches, since it ends the tree that it was
started from."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from holdfast.practice.cluster.cluster import Practice

_DOWN_S = 1.0
"""How long an emulated boot takes, in seconds; long enough for slurmctld to see the node go down."""
LONGER = "boot_s"
"""File in the practice folder with another number of seconds, for tests of a long boot."""


def main(folder: str, node: str, detached: str = "") -> int:
    practice = Practice.load(Path(folder))
    if not detached:
        practice.processes.start(
            f"reboot.{node}", [sys.executable, "-m", "holdfast.practice.cluster.reboot", folder, node, "detached"]
        )
        return 0
    machine = practice.machine(node)
    machine.power_off()
    longer = Path(folder, LONGER)
    time.sleep(float(longer.read_text()) if longer.exists() else _DOWN_S)
    machine.reboot()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
