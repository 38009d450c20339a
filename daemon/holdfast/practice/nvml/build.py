"""Build the emulated NVML with the system's C compiler, once per version of its source."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SONAME = "libnvidia-ml.so.1"
STATE_ENV = "HOLDFAST_PRACTICE_NVML_STATE"
"""Environment variable that names the state file to the library."""
STATE_FILE = "nvml.ini"
"""Name of the state file in a node's folder."""

R470_LACKS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
)
"""Calls that a driver of the R470 branch does not export: give them to :func:`build` as ``without`` for an old driver."""

_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", f"-Wl,-soname,{SONAME}")
_COMPILE_DEADLINE_S = 120


class BuildError(RuntimeError):
    """There is no C compiler, or compilation failed; the text says what to do."""


def build(into: Path, *, without: Sequence[str] = ()) -> Path:
    """The library under ``into``, compiled if this version of the source is missing.

    ``without``: symbols that it does not export, as an older driver does not.
    LD_LIBRARY_PATH must contain its parent. Safe to call from several processes at a time.
    Raises BuildError."""
    here = Path(__file__).parent
    sources = sorted(here.glob("*.c"))
    library = into / f"nvml-{_digest([*sources, *sorted(here.glob('*.h'))], without)}" / SONAME
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    fd, scratch = tempfile.mkstemp(dir=library.parent, prefix=".build-")
    os.close(fd)
    try:
        _compile(sources, Path(scratch), without)
        Path(scratch).chmod(0o755)
        Path(scratch).rename(library)
    finally:
        Path(scratch).unlink(missing_ok=True)
    return library


def environment(library: Path, state: Path) -> dict[str, str]:
    """Environment in which an unmodified binding loads the library with this state."""
    return {"LD_LIBRARY_PATH": str(library.parent), STATE_ENV: str(state)}


def _digest(files: list[Path], without: Sequence[str]) -> str:
    digest = hashlib.sha256(" ".join((*_FLAGS, *without)).encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _compile(sources: list[Path], target: Path, without: Sequence[str]) -> None:
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        raise BuildError("no C compiler found: install gcc")
    exports = target.with_name(f"{target.name}.map")
    try:
        exports.write_text(f"{{ global: nvml*; local: {' '.join(f'{name};' for name in without)} *; }};\n")
        script = f"-Wl,--version-script={exports}"
        command = [compiler, *_FLAGS, script, "-o", str(target), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_DEADLINE_S, check=False)
    finally:
        exports.unlink(missing_ok=True)
    if done.returncode != 0:
        raise BuildError(f"{compiler} refused the emulated NVML: {done.stderr.strip()[:2000]}")
