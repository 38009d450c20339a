"""Order to read the stacks of a job's Python processes: one stack of each, read from outside by py-spy with that user's rights.

py-spy pauses a process for some milliseconds (PTRACE_SEIZE, which ends with the reader, so nothing stays stopped). A process that it cannot
pause, since it hangs in the kernel or is stopped already, is read without a pause."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from holdfast.agent.node.as_owner import PathOwner, command, must_keep_ptrace, owner_in
from holdfast.agent.node.namespaces import user_behind
from holdfast.agent.node.processes import SlurmNode, owner_of, start_ticks
from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.verbs import job_id_of, number
from holdfast_checks.probes import process_files, users_process
from holdfast_checks.probes.child import CHILDREN, Children, Hung

_DEADLINE_S, _DEADLINE_MAX_S = 5.0, 30.0
_IN_ALL_S = 8.0
"""Total time: processes not started by then are listed as not read, so that the order is answered within 20 s."""
_PROCESSES_MAX = 64
_AT_A_TIME = 4
_FRAMES_MAX = 30
_FRAME_CHARS = 120
_SAID_BYTES_MAX = 4 * 1024 * 1024
_MAPS_BYTES_MAX = 4 * 1024 * 1024
_PLACE = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "HOLDFAST_GROUP")
"""Variables that distinguish a rank from its parent processes, and that its children inherit."""

Tool = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class PythonProcess:
    """One Python process of the job."""

    pid: int
    started_ticks: int
    ancestors: tuple[int, ...]
    """Ancestors, nearest first."""
    place: tuple[str, ...]
    """Values of :data:`_PLACE` in its initial environment; empty texts where there is none."""


def collect_stacks(slurm: SlurmNode, tool: Tool | None = None, children: Children = CHILDREN) -> OrderHandler:
    """Read the main thread of every Python process of the job on this node, innermost frame first. ok: at least one was read.

    ``detail``: ``ranks``, a list of ``pid``, ``rank`` (null: no rank, but a parent or child of one) and either ``frames``
    (``function (file:line)``, at most 30) or ``error``."""
    find = tool or find_tool

    def verb(order: ReceivedOrder) -> OrderResult:
        job_id = job_id_of(order.args)
        deadline_s = number(order.args, "deadline_s", _DEADLINE_S, _DEADLINE_MAX_S)
        path = find()
        if path is None:
            return OrderResult(
                False,
                "py-spy is not installed on this node (packages and bundles of the agent bring it)",
                {"ranks": []},
            )
        seen = python_processes(slurm.job_pids(job_id).get(job_id, frozenset()))
        ranks = ranks_of(seen)
        chosen = sorted(seen, key=lambda each: (ranks.get(each.pid) is None, ranks.get(each.pid), each.pid))
        reader = _Reader(path, children, deadline_s, time.monotonic() + _IN_ALL_S)
        with ThreadPoolExecutor(_AT_A_TIME, "stacks") as pool:
            read = list(pool.map(reader.read, chosen[:_PROCESSES_MAX]))
        told = [
            {"pid": each.pid, "rank": ranks.get(each.pid), **found} for each, found in zip(chosen, read, strict=False)
        ]
        good = sum("frames" in found for found in read)
        more = f", {len(chosen) - len(read)} more left out" if len(chosen) > len(read) else ""
        summary = f"read {good} of {len(read)} Python processes of job {job_id}{more}"
        return OrderResult(good > 0, summary, {"ranks": told})

    return verb


def find_tool() -> str | None:
    """Path of py-spy: next to this interpreter, else on PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def ranks_of(seen: Iterable[PythonProcess]) -> dict[int, int]:
    """Pid → rank, for the processes that are ranks. Pure.

    A data loader's worker has its rank's environment, and a launcher has its ranks' SLURM_PROCID. So a rank is the topmost process with
    its values, unless a descendant has other values: then it is a launcher."""
    by_pid = {each.pid: each for each in seen}
    first, launchers = [], set()
    for each in by_pid.values():
        above = [by_pid[pid] for pid in each.ancestors if pid in by_pid]
        if not any(other.place == each.place for other in above):
            first.append(each)
            launchers |= {other.pid for other in above}
    found = {each.pid: _rank(each.place) for each in first if each.pid not in launchers}
    return {pid: rank for pid, rank in found.items() if rank is not None}


def _rank(place: tuple[str, ...]) -> int | None:
    """RANK, else Slurm's number of the task in its step."""
    named = dict(zip(_PLACE, place, strict=True))
    words = (named["RANK"], named["SLURM_PROCID"])
    return next((int(word) for word in words if word.isascii() and word.isdigit() and len(word) < 10), None)


def python_processes(pids: frozenset[int]) -> list[PythonProcess]:
    """The Python processes among these and the descendants that their users started."""
    owners = {owner for pid in pids if (owner := owner_of(pid)) is not None}
    below = {child for pid in pids for child in _children(pid) if owner_of(child) in owners}
    found: list[PythonProcess] = []
    unread = False  # it hangs: no other one is waited for
    for pid in sorted(pids | below):
        try:
            seen = _seen(pid, unread=unread)
        except TimeoutError:
            unread, seen = True, _seen(pid, unread=True)
        found += [seen] if seen is not None else []
    return found


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def _seen(pid: int, *, unread: bool) -> PythonProcess | None:
    """Read one process. ``unread``: without its environment. Raises TimeoutError where that cannot be read."""
    ticks = start_ticks(pid)
    if ticks is None or pid == os.getpid() or not _is_python(pid):
        return None
    try:
        env = {} if unread else users_process.environ_of(pid)
        ancestors = tuple(parent.pid for parent in psutil.Process(pid).parents())
    except TimeoutError:
        raise
    except (psutil.Error, OSError):
        env, ancestors = {}, ()
    return PythonProcess(pid, ticks, ancestors, tuple(env.get(name, "") for name in _PLACE))


def _is_python(pid: int) -> bool:
    """Whether it is Python, by its executable or by the library that it has mapped."""
    try:
        if process_files.executable(pid).startswith("python"):
            return True
        return b"/libpython" in users_process.read(pid, "maps", _MAPS_BYTES_MAX)  # of any length that its user chooses
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class _Reader:
    path: str
    children: Children
    deadline_s: float
    until_s: float

    def read(self, seen: PythonProcess) -> dict[str, Any]:
        """``frames``, or ``error`` in one line."""
        if time.monotonic() > self.until_s:
            return {"error": "not read: no time left"}
        found = {"error": "it hangs in the kernel"} if _in_kernel(seen.pid) else self._once(seen, ())
        if "error" in found:
            found = self._once(seen, ("--nonblocking",))
        return found if start_ticks(seen.pid) == seen.started_ticks else {"error": "it has ended"}

    def _once(self, seen: PythonProcess, more: Sequence[str]) -> dict[str, Any]:
        argv = [self.path, "dump", "--json", *more, "--pid", str(seen.pid)]
        uid = os.geteuid()
        if uid == 0:
            owner = _owner_of(seen.pid)
            if owner is None:
                return {"error": "its user ids are not all the same: it is not read"}
            uid, argv = owner.uid, command(owner, argv, int(self.deadline_s) + 1, keep_ptrace=must_keep_ptrace())
        if (left := self.children.hung(f"stacks/{uid}/")) is not None:
            return {"error": f"not read: an earlier py-spy of uid {uid} (pid {left.pid}) hangs in the kernel"}
        env = {"LC_ALL": "C", "PATH": os.defpath}
        try:
            done = self.children.run(
                f"stacks/{uid}/{seen.pid}", argv, self.deadline_s, max_bytes=_SAID_BYTES_MAX, env=env
            )
        except OSError as error:
            return {"error": f"py-spy cannot be started: {error}"}
        if isinstance(done, Hung):
            return {"error": f"py-spy did not end within {self.deadline_s:g} s"}
        if done.status:
            return {"error": plain(done.complaint)}
        return frames_of(done.text, seen.pid)


def _owner_of(pid: int) -> PathOwner | None:
    """The user whose rights suffice to read it: in a user's container, the user who created its namespace. None: it is gone."""
    try:
        owner = owner_in(process_files.text(pid, "status"))
    except OSError:
        return None
    return None if owner is None else replace(owner, uid=user_behind(pid, owner.uid))


def _in_kernel(pid: int) -> bool:
    """Whether the process is in uninterruptible sleep: a pause would have to wait for its end."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_DISK_SLEEP
    except psutil.Error:
        return False


def frames_of(said: str, pid: int) -> dict[str, Any]:
    """The main thread's frames from py-spy's JSON, or the error. Pure."""
    try:
        threads = json.loads(said)
        main = next((thread for thread in threads if thread["os_thread_id"] == pid), None) or next(
            thread for thread in threads if thread["thread_name"] == "MainThread"
        )
        frames = [plain(_frame(frame)) for frame in main["frames"][:_FRAMES_MAX]]
    except (ValueError, LookupError, TypeError, RecursionError, StopIteration):
        return {"error": "py-spy's answer has no main thread that can be read"}
    return {"frames": frames} if frames else {"error": "its main thread is in no Python code"}


def _frame(frame: dict[str, Any]) -> str:
    return f"{frame['name']} ({frame['short_filename'] or frame['filename']}:{frame['line']})"


def plain(text: str) -> str:
    """Convert to one short line of printable ASCII: names in a job's code may contain any text."""
    return "".join(char if " " <= char <= "~" else "?" for char in text)[:_FRAME_CHARS]
