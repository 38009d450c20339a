"""Map from this node's GRES indices to GPUs, as slurmd reports it (``slurmd -G``).

Slurm shows a job's GPUs by index (``IDX:0-1``): the position in the list of files that slurmd builds from gres.conf and AutoDetect. The
list is read with the running slurmd's own executable and configuration. It proves nothing where the configuration is newer than that
slurmd, where a file is no NVIDIA device, or where NVML does not show the device."""

from __future__ import annotations

import logging
import os
import re
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from holdfast.agent.node.processes import SlurmNode, start_ticks
from holdfast.model.errors import Unavailable
from holdfast_checks.probes import process_files

log = logging.getLogger(__name__)

Gres = Mapping[str, tuple[int, ...]]
"""``gpu``, ``shard`` or ``mps`` → for each index the minor of its GPU."""
SLURMD_TIMEOUT_S = 10.0
FIRST_AGAIN_S = 2.0
LAST_AGAIN_S = 300.0
"""Pauses between two attempts to read the list while there is none."""
_LINE = re.compile(r"\bGres Name=(?P<name>\S+) .*?\bCount=(?P<count>\d+) .*?\bFile=(?P<file>\S+)")
_SHARED = frozenset({"shard", "mps"})
_RANGES = re.compile(r"([^\[\],]+)\[([0-9,\-]+)\]|([^\[\],]+)")
_NVIDIA_MAJOR = 195
_CONTROL_MINOR = 255
"""/dev/nvidiactl."""
_NAME = re.compile(r"nvidia(\d+)")
_SERVED = "/run/slurm/conf/slurm.conf"
"""slurmd's copy of a configuration that slurmctld serves; with ``--conf-server`` it reads no other."""
_CONFIGURATIONS = ("/etc/slurm/slurm.conf", _SERVED, "/etc/slurm-llnl/slurm.conf")
_FILES = ("slurm.conf", "gres.conf")
_JUST_WRITTEN_S = 0.1
_MOST = 1024
"""Maximum number of files in one line."""
_NAME_OF_SLURMD = "slurmd"
"""Name under which the program is started. Slurm's library checks it: as ``slurmd-wlm``, Debian's file name, it ignores gres.conf."""


class GresUnproven(Exception):
    """It is not proved which GPU an index is."""


def parse(text: str, minor_of: Callable[[str], int | None]) -> Gres:
    """Parse the output of ``slurmd -G``. ``minor_of``: a file's NVIDIA minor; None: it is another file. Raises GresUnproven."""
    found: dict[str, list[int]] = {}
    for line in _LINE.finditer(text):
        name, count, files = line["name"], int(line["count"]), _files(line["file"])
        if name != "gpu" and name not in _SHARED:
            continue
        minors = [minor for file in files if (minor := minor_of(file)) is not None]
        whole = len(minors) == len(files) == count and name == "gpu"
        part = len(minors) == 1 and (name in _SHARED or count == 1)  # MIG: the GPU's file, and those of the instance
        if not whole and not part:
            raise GresUnproven(f"gres.conf: {name} with {count} of {line['file']} does not name one GPU for each index")
        found.setdefault(name, []).extend(minors)
    if "gpu" not in found:
        raise GresUnproven("slurmd shows no GPU with a file: gres.conf needs File= or AutoDetect")
    return {name: tuple(minors) for name, minors in found.items()}


def _files(text: str) -> list[str]:
    """``/dev/nvidia[0-3,5]`` or ``/dev/nvidia0,/dev/nvidia-caps/…`` in order. Raises GresUnproven."""
    found: list[str] = []
    for stem, ranges, plain in _RANGES.findall(text):
        found += [f"{stem}{number}" for number in _numbers(ranges)] if ranges else [plain]
    return found


def _numbers(ranges: str) -> list[int]:
    found: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise GresUnproven(f"gres.conf: the files [{ranges}] cannot be read")
        found += range(int(first), min(int(last or first), int(first) + _MOST) + 1)
    if found != sorted(set(found)) or len(found) > _MOST:
        raise GresUnproven(f"gres.conf: the files [{ranges}] are not in ascending order")
    return found


def device_minor(file: str) -> int | None:
    """Minor of an NVIDIA GPU's device file. A file that is no device counts by its name: Slurm accepts it, and only rehearsals use one."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    if stat.S_ISCHR(found.st_mode):
        minor = os.minor(found.st_rdev)
        return minor if os.major(found.st_rdev) == _NVIDIA_MAJOR and minor < _CONTROL_MINOR else None
    named = _NAME.fullmatch(Path(file).name)
    return int(named[1]) if named is not None and stat.S_ISREG(found.st_mode) else None


@dataclass(frozen=True, slots=True)
class Slurmd:
    """The running slurmd and its configuration at one moment."""

    pid: int
    started_ticks: int
    started_at: float
    """Wall clock, seconds since the epoch."""
    executable: str
    conf: Path
    written: tuple[float | None, ...]
    """Modification times of the configuration files; None: there is no such file."""

    @property
    def unchanged(self) -> bool:
        """Whether process and files are still the same."""
        return start_ticks(self.pid) == self.started_ticks and _written(self.conf) == self.written


def look(slurm: SlurmNode) -> Slurmd:
    """Read the node's slurmd. Raises Unavailable, GresUnproven.

    Its program is started again with the agent's rights, so it must run as root: a user's process may have got the pid of a pid file."""
    process = slurm.slurmd()
    try:
        before = _identity(process)
        here = os.path.samestat(os.stat(f"/proc/{process.pid}/root"), os.stat("/"))
        environment, ticks = process_files.environ(Path(f"/proc/{process.pid}")), start_ticks(process.pid)
        after = _identity(process)
    except (psutil.Error, OSError) as error:
        raise Unavailable(f"slurmd is gone: {error}") from error
    if before != after:
        raise Unavailable("slurmd has just started another program")
    users, command, executable = before
    if not users <= {0, os.geteuid()}:
        raise GresUnproven("slurmd does not run as root")
    if not here or executable.endswith(" (deleted)"):
        raise GresUnproven("slurmd runs in a container, or was upgraded and not started again")
    if any(word.startswith("--conf-server") for word in command):
        places = [_SERVED]
    elif named := command[command.index("-f") + 1] if "-f" in command[:-1] else environment.get("SLURM_CONF", ""):
        places = [named]
    else:
        places = [place for place in _CONFIGURATIONS if Path(place).exists()]
    if len(places) > 1:
        raise GresUnproven(f"slurmd's configuration may be any of {', '.join(places)}: remove what is left over")
    if ticks is None or not places or not Path(places[0]).exists():
        raise GresUnproven("slurmd's configuration file is not known")
    conf = Path(places[0])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return Slurmd(process.pid, ticks, time.time() - age_s, executable, conf, _written(conf))


def _identity(process: psutil.Process) -> tuple[frozenset[int], list[str], str]:
    """Its users, command line and program. All are compared, since a user may choose a program that gains root's rights."""
    command = process_files.words(Path(f"/proc/{process.pid}"))
    return process_files.uids(process.pid), command, os.readlink(f"/proc/{process.pid}/exe")


def _written(conf: Path) -> tuple[float | None, ...]:
    return tuple(_changed_at(conf if name == conf.name else conf.with_name(name)) for name in _FILES)


def _changed_at(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def read(slurmd: Slurmd, node: str, minor_of: Callable[[str], int | None] = device_minor) -> Gres:
    """Read the list of this slurmd. Blocks for up to 10 s. Raises GresUnproven, Unavailable."""
    newest = slurmd.written[-1]
    if newest is not None and newest > slurmd.started_at + _JUST_WRITTEN_S:
        raise GresUnproven("gres.conf was changed after slurmd had started: restart slurmd")
    command = [_NAME_OF_SLURMD, "-N", node, "-f", str(slurmd.conf), "-G"]
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "SLURM_CONF": str(slurmd.conf)}
    try:
        done = subprocess.run(
            command,
            executable=slurmd.executable,
            capture_output=True,
            text=True,
            timeout=SLURMD_TIMEOUT_S,
            env=environment,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"slurmd -G: {error}") from error
    if done.returncode:
        raise Unavailable(f"slurmd -G: exit status {done.returncode}")
    return parse(done.stdout + done.stderr, minor_of)


def proved(gres: Gres, known: Iterable[int]) -> Gres:
    """The same map if NVML shows each of the devices. ``known``: NVML's minors. Raises GresUnproven."""
    shown = sorted(known)
    wrong = sorted({minor for minors in gres.values() for minor in minors} - set(shown))
    if not shown:
        raise GresUnproven("NVML has not shown the minors of the GPUs in this boot")
    if wrong:
        raise GresUnproven(f"gres.conf: /dev/nvidia{_short(wrong)} is no GPU; NVML has minors {_short(shown)}")
    return gres


def _short(numbers: Sequence[int]) -> str:
    whole = list(numbers) == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]}-{numbers[-1]}" if whole and len(numbers) > 1 else ",".join(map(str, numbers))


class GresWatch:
    """Reads the list in a separate thread, and again when slurmd or its files change."""

    def __init__(self, slurm: SlurmNode, on_read: Callable[[], None] = lambda: None) -> None:
        """``on_read`` is called from the thread when there is a new list."""
        self._slurm = slurm
        self._on_read = on_read
        self._read: tuple[Slurmd, Gres] | None = None
        self._problem = "not read yet"
        self._again = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="gres", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._again.set()

    @property
    def listed(self) -> frozenset[int] | None:
        """Minors of the GPUs on the list, whether NVML shows them or not; None: there is no list, or it is outdated."""
        found = self._read
        return frozenset(found[1]["gpu"]) if found is not None and found[0].unchanged else None

    def told(self, known: Iterable[int]) -> tuple[Gres | None, str]:
        """The proved list, or None and why there is none. Costs a few system calls."""
        found = self._read
        if found is not None and not found[0].unchanged:
            self._read, self._problem = None, "slurmd or its configuration has changed: it is read again"
            self._again.set()
            found = None
        if found is None:
            return None, self._problem
        try:
            return proved(found[1], known), ""
        except GresUnproven as problem:
            return None, str(problem)

    def _run(self) -> None:
        pause_s = FIRST_AGAIN_S
        while not self._stopping:
            self._again.clear()
            if self._read is None:
                self._try()
            pause_s = FIRST_AGAIN_S if self._read is not None else min(2 * pause_s, LAST_AGAIN_S)
            self._again.wait(None if self._read is not None else pause_s)

    def _try(self) -> None:
        try:
            slurmd = look(self._slurm)
            gres = read(slurmd, self._slurm.node)
        except (GresUnproven, Unavailable, OSError, ValueError, psutil.Error) as problem:
            if str(problem) != self._problem:
                log.warning("event=gres_unproven reason=%r", str(problem))
            self._problem = str(problem)
            return
        log.info("event=gres %s", " ".join(f"{name}={','.join(map(str, minors))}" for name, minors in gres.items()))
        self._read = (slurmd, gres)
        self._on_read()
