"""An emulated ``nvidia-smi --gpu-reset`` for one node: ``python -m holdfast.practice.hardware.nvidia_smi FOLDER ARGUMENTS``.

A GPU that is lost or in use refuses the reset as nvidia-smi does: a line, and a nonzero exit status."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.practice.nvml import state as nvml
from holdfast.practice.nvml import statefile
from holdfast.practice.nvml.build import STATE_FILE

COMMAND = "nvidia-smi"
_SCRIPT = '#!/bin/sh\nexec {python} -m {module} "${{0%/*}}" "$@"\n'


def install(folder: Path) -> None:
    """Install the command in a machine's folder."""
    script = folder / COMMAND
    script.write_text(_SCRIPT.format(python=sys.executable, module=__name__))
    script.chmod(0o755)


def main(folder: Path, argv: list[str]) -> int:
    if not argv or argv[0] != "--gpu-reset" or argv[1:2] not in ([], ["-i"]):
        sys.stderr.write("the practice's nvidia-smi knows --gpu-reset [-i UUID,…] alone\n")
        return 2
    path = folder / STATE_FILE
    gpus = statefile.read(path).gpus
    wanted = argv[2].split(",") if argv[1:] else [gpu.uuid for gpu in gpus]
    for uuid in wanted:
        index = next((n for n, gpu in enumerate(gpus) if gpu.uuid == uuid and not gpu.lost), None)
        if index is None:
            sys.stdout.write(f"Unable to reset GPU {uuid}: it is not there\n")
            return 6
        if gpus[index].processes:
            sys.stdout.write(f"GPU {uuid} is currently in use by another process\n")
            return 19
        nvml.reset_gpu(path, index)
        sys.stdout.write(f"GPU {uuid} was successfully reset.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
