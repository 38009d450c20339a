"""The processes of one practice cluster: started detached, recorded on disk, found and stopped from any other process.

A record holds the pid *and* the kernel's start time of the process, so that a reused pid is never signalled. Every process
also has ``HOLDFAST_PRACTICE=<folder>`` in its environment, which identifies processes that a crash left unrecorded.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from holdfast.model.errors import Unavailable
from holdfast.practice.cluster import launch, nursery
from holdfast_checks.probes import process_files
from holdfast_checks.whole_file import write_whole

MARK = "HOLDFAST_PRACTICE"
"""Environment variable that every process of a practice cluster carries: the cluster's folder."""

_LAUNCH_WITHIN_S = 30.0
"""Start timeout: a fraction of a second on an idle machine, far longer on one that thrashes."""
_DIE_WITHIN_S = 5.0
"""SIGKILL is immediate except for the kernel's own clean-up; taking longer than this is reported as an error."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One started process. ``main_pid`` differs from ``pid`` for a node, whose ``pid`` is its reaper."""

    name: str
    pid: int
    start_ticks: int
    main_pid: int
    main_start_ticks: int
    argv: list[str]
    log: str


def start_ticks(pid: int) -> int | None:
    """Start time of a live process in clock ticks after boot; None: gone or a zombie."""
    stat = process_files.stat(pid)
    return None if stat is None or stat.ended else stat.started_ticks


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below a process, itself not among them; empty when it is gone."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to each pid that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Processes:
    """Starts, stops and finds the processes recorded in ``folder/run``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records = folder / "run"

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        log: Path | None = None,
        reaper: bool = False,
    ) -> ProcessRecord:
        """Start a process that outlives the caller. Succeeds without effect if one of this name is alive.

        ``env`` is added to this process's environment. ``reaper``: put an adopting parent above it (see ``launch``).
        Raises Unavailable when it cannot be started."""
        old = self.record(name)
        if old and self._live(old):
            return old
        log, cwd = log or self._folder / "log" / f"{name}.log", cwd or self._folder
        environment = {**os.environ, **(env or {}), MARK: str(self._folder)}
        birth = nursery.birth(argv, env=environment, cwd=cwd, log=log, reaper=reaper)
        forked = nursery.fork(self._nursery, birth, lambda: self.alive(nursery.NAME)) if birth else None
        pid, main_pid = forked or self._launch(name, argv, environment, cwd, log, reaper=reaper)
        record = ProcessRecord(
            name, pid, start_ticks(pid) or 0, main_pid, start_ticks(main_pid) or 0, list(argv), str(log)
        )
        self._write(record)
        return record

    def start_nursery(self) -> None:
        """Start the process of which daemons are forked from now on; without one each is a program. Does not wait for its imports."""
        self._records.mkdir(parents=True, exist_ok=True)
        self.start(nursery.NAME, nursery.command(self._nursery))

    @property
    def _nursery(self) -> Path:
        return self._records / "nursery.sock"

    def _launch(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str], cwd: Path, log: Path, *, reaper: bool
    ) -> tuple[int, int]:
        """Start a program; returns the pid of what was started and that of the main process. Raises Unavailable."""
        options = ["--reaper"] if reaper else []
        command = [sys.executable, "-I", "-S", str(launch.__file__), *options, str(log), str(cwd), "--"]
        try:
            done = subprocess.run(
                [*command, *argv],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_LAUNCH_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"cannot start {name}: not within {_LAUNCH_WITHIN_S:.0f} s") from None
        if done.returncode or len(done.stdout.split()) != 2:
            raise Unavailable(f"cannot start {name}: {(done.stderr or done.stdout).strip()[-300:]}")
        pid, main_pid = (int(word) for word in done.stdout.split())
        return pid, main_pid

    def record(self, name: str) -> ProcessRecord | None:
        """The record of a name, alive or not."""
        try:
            return ProcessRecord(**json.loads((self._records / f"{name}.json").read_text()))
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """All recorded names, sorted."""
        return sorted(path.stem for path in self._records.glob("*.json"))

    def alive(self, name: str) -> bool:
        """Whether the recorded main process still runs."""
        record = self.record(name)
        return bool(record and start_ticks(record.main_pid) == record.main_start_ticks)

    def main_pid(self, name: str) -> int | None:
        """Pid of the live main process; None when it is not running."""
        record = self.record(name)
        return record.main_pid if record and self.alive(name) else None

    def tree(self, name: str) -> list[int]:
        """Pids of the recorded process and of everything below it, parents first; empty when it is gone."""
        record = self.record(name)
        if not record or not self._live(record):
            return []
        return [record.pid, *(child.pid for child in descendants(record.pid))]

    def stop(self, name: str, *, grace_s: float = 5.0) -> None:
        """SIGTERM, wait up to ``grace_s``, then kill the whole tree. Idempotent; forgets the record."""
        pid = self.main_pid(name)
        if pid:
            signal_all([pid], signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while self.alive(name) and time.monotonic() < deadline:
                time.sleep(0.02)
        self.kill(name)

    def kill(self, name: str, *, forget: bool = True) -> None:
        """SIGKILL the process and everything below it, repeatedly until nothing is left. Idempotent.

        Raises Unavailable when something survives SIGKILL."""
        record = self.record(name)
        if record and self._live(record):
            self._kill_tree(record.pid)
        if forget:
            (self._records / f"{name}.json").unlink(missing_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Rename a record; a process recorded under the new name is killed."""
        record = self.record(old)
        if record:
            self.kill(new)
            self._write(replace(record, name=new))
            (self._records / f"{old}.json").unlink()

    def kill_main(self, name: str) -> None:
        """SIGKILL only the main process, as ``kill -9`` does; processes below it stay."""
        pid = self.main_pid(name)
        if pid:
            signal_all([pid], signal.SIGKILL)
            self._await_gone([pid])

    def kill_marked(self) -> list[int]:
        """SIGKILL every process that carries this cluster's mark, recorded or not; the caller and its parents excepted.

        Returns the pids found: none after a clean stop."""
        spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
        found: list[int] = []
        while True:
            pids = [pid for pid in self._marked() if pid not in spared]
            if not pids:
                return found
            found += pids
            below = [child.pid for pid in pids for child in descendants(pid)]
            signal_all([pid for pid in (*pids, *below) if pid not in spared], signal.SIGKILL)
            self._await_gone(pids)

    def _marked(self) -> Iterable[int]:
        mark = f"{MARK}={self._folder}".encode()
        for pid in psutil.pids():
            try:
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if mark in variables and start_ticks(pid) is not None:
                yield pid

    def _live(self, record: ProcessRecord) -> bool:
        return start_ticks(record.pid) == record.start_ticks

    def _kill_tree(self, root: int) -> None:
        # The reaper stays until all below it are gone: an orphan created meanwhile stays below it and is found by the
        # next round.
        deadline = time.monotonic() + _DIE_WITHIN_S
        while below := [pid for pid in self._below(root) if start_ticks(pid) is not None]:
            signal_all(below, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise Unavailable(f"processes {below} survive SIGKILL")
            time.sleep(0.005)
        signal_all([root], signal.SIGKILL)
        self._await_gone([root])

    @staticmethod
    def _below(root: int) -> list[int]:
        # The caller may be below it itself: a node that reboots runs its reboot program.
        return [child.pid for child in descendants(root) if child.pid != os.getpid()]

    @staticmethod
    def _await_gone(pids: Sequence[int]) -> None:
        deadline = time.monotonic() + _DIE_WITHIN_S
        while left := [pid for pid in pids if start_ticks(pid) is not None]:
            if time.monotonic() > deadline:
                raise Unavailable(f"processes {left} survive SIGKILL")
            time.sleep(0.005)

    def _write(self, record: ProcessRecord) -> None:
        self._records.mkdir(parents=True, exist_ok=True)
        write_whole(self._records / f"{record.name}.json", json.dumps(asdict(record), indent=1) + "\n")
