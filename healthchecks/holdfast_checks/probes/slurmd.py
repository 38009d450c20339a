"""This node's slurmd, found in the process table.

Slurm 23.11 and later runs ``slurmd --systemd``, which writes no pid file: a file that is missing says nothing. A pid file, and
systemd's list of a unit's processes, only say where to look first. What counts is the process itself: what it executes, who runs it,
which node and which slurm.conf it was started for. A user who calls a program slurmd changes none of that."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.probes import process_files
from holdfast_checks.probes.procfs import named, owner, text, whole

NAMES = frozenset({"slurmd", "slurmd-wlm"})
"""The executable; Debian installs it with the suffix."""
UNIT = "slurmd.service"
"""Its unit in Slurm's sources, in Debian and in SchedMD's packages."""
_FIRST_USER = 1000
"""UID_MIN of login.defs: below are root and the accounts of services."""
_COPIES = ("/conf-cache/", "/run/slurm/conf/")
"""Where a slurmd without a local configuration keeps what slurmctld gave it."""


@dataclass(frozen=True, slots=True)
class WantedSlurmd:
    """Whose slurmd is looked for, and where."""

    node: str = ""
    """A slurmd that was started for a named node (``-N``) must name this one; empty: any."""
    pid_file: Path | None = None
    """SlurmdPidFile, a hint."""
    slurm_conf: Path | None = None
    """A slurmd that was started for a named node and with its own file must name this one; None: any."""
    proc: Path = Path("/proc")
    cgroups: Path = Path("/sys/fs/cgroup")


def find(wanted: WantedSlurmd) -> int | None:
    """Process id of the node's slurmd; None: the process table has none. Raises OSError without procfs."""
    written = whole(text(wanted.pid_file) or "") if wanted.pid_file is not None else None
    named_by_root = [written] if written is not None else []
    # The file may be stale, and its number a user's process by now: that is believed only where no other process is a slurmd.
    for entries, trusted in (
        (named_by_root, False),
        (_unit_pids(wanted.cgroups), False),
        (None, False),
        (named_by_root, True),
    ):
        found = _choose(wanted, os.listdir(wanted.proc) if entries is None else entries, trusted=trusted)
        if found is not None:
            return found
    return None


def may_run(wanted: WantedSlurmd) -> bool:
    """Whether any process, of whichever user, may be the node's slurmd: for callers that need proof that there is none. Raises OSError."""
    return _choose(wanted, os.listdir(wanted.proc), trusted=True) is not None


def of_others(wanted: WantedSlurmd) -> frozenset[int]:
    """Slurmds of other nodes on this machine (a simulated cluster), by their ``-N`` or slurm.conf. Raises OSError without procfs."""
    return frozenset(
        each.pid
        for each in named(wanted.proc, (entry for entry in os.listdir(wanted.proc) if entry.isdigit()))
        if each.name in NAMES
        and each.state not in "ZX"
        and _trusted_owner(wanted.proc, each.pid)
        and not _is_wanted(wanted, wanted.proc / str(each.pid))
    )


def _unit_pids(cgroups: Path) -> list[str]:
    """What systemd lists for the unit, under cgroups v2, v1 and both: slurmd, and with some plug-ins its steps and their tasks."""
    listed = (text(cgroups / place / "system.slice" / UNIT / "cgroup.procs") for place in ("", "systemd", "unified"))
    return next((words.split() for words in listed if words), [])


def _choose(wanted: WantedSlurmd, entries: Iterable[str | int], *, trusted: bool = False) -> int | None:
    """The slurmd among these processes that no other one of them has started: slurmd forks before it starts a script or a step.

    ``trusted``: root's own files name the process, so that any user may run it (SlurmdUser may be anyone)."""
    pids = (entry for entry in entries if isinstance(entry, int) or entry.isdigit())
    parents = {
        each.pid: stat.parent if (stat := process_files.stat(each.pid, wanted.proc)) is not None else None
        for each in named(wanted.proc, pids)
        if each.name in NAMES
        and each.state not in "ZX"
        and (trusted or (_trusted_owner(wanted.proc, each.pid) and _is_of_this_machine(wanted.proc, each.pid)))
        and _is_wanted(wanted, wanted.proc / str(each.pid))
    }
    return next((pid for pid, parent in parents.items() if parent not in parents), None)


def _is_wanted(wanted: WantedSlurmd, process: Path) -> bool:
    """A program of Slurm's, for this node and by this slurm.conf as far as it says."""
    try:
        executable = os.path.basename(os.readlink(process / "exe").removesuffix(" (deleted)"))
    except OSError:
        executable = ""  # not shown to us: then its name has to do
    if executable and executable not in NAMES:
        return False
    words = _words(process)
    served = _option(words, "-N")
    if not served or not wanted.node:
        return True
    conf = _option(words, "-f") or _environ(process).get("SLURM_CONF", "")
    return served == wanted.node and _may_be_same(wanted.slurm_conf, conf)


def _may_be_same(wanted: Path | None, named_file: str) -> bool:
    """Whether both may be the same cluster's: asked where a machine may run slurmd for several nodes."""
    if wanted is None or not named_file or any(copy in named_file for copy in _COPIES):
        return True
    return os.path.realpath(wanted) == os.path.realpath(named_file)


def _words(process: Path) -> list[str]:
    """Empty where they cannot be read."""
    with contextlib.suppress(OSError):
        return process_files.words(process)
    return []


def _environ(process: Path) -> Mapping[str, str]:
    """Empty where it cannot be read."""
    with contextlib.suppress(OSError):
        return process_files.environ(process)
    return {}


def _trusted_owner(proc: Path, pid: int) -> bool:
    """Root, a system account or the user that we are: anyone may run a program called slurmd."""
    uid = owner(proc, pid)
    return uid is not None and (uid < _FIRST_USER or uid == os.geteuid())


def _is_of_this_machine(proc: Path, pid: int) -> bool:
    """Not inside a container that is like a machine: those number their processes separately. True where that is not shown."""
    try:
        return os.readlink(proc / str(pid) / "ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:
        return True


def _option(words: list[str], name: str) -> str:
    """Value of a one-letter option, written apart or together; empty: it was not given."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == name:
            return following
        if word.startswith(name):
            return word[len(name) :]
    return ""
