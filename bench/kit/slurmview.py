"""Slurm's own view of one job and one node, read every few milliseconds without starting a process each time.

One ``scontrol`` is kept open and asked again and again (it reads commands from its standard input): a sample costs under 1 ms of CPU
at either end, so that sampling does not slow down what is measured."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from holdfast.model.errors import Unavailable
from holdfast.practice.cluster.cluster import Practice

LOOK_EVERY_S = 0.015
_PROMPT = b"scontrol: "
_NODE = re.compile(r"\bState=(\S+)")
_JOB = re.compile(r"\bJobState=(\S+).*\bRestarts=(\d+).* NodeList=(\S+)")


class Scontrol:
    """One interactive ``scontrol``."""

    def __init__(self, practice: Practice) -> None:
        env = {**os.environ, **practice.command_env(), "LC_ALL": "C"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._process = subprocess.Popen(["scontrol", "-a", "-o"], env=env, bufsize=0, **pipes)  # type: ignore[call-overload]

    def ask(self, command: str) -> str:
        """The answer to one command. Raises Unavailable when scontrol ended."""
        self._process.stdin.write(command.encode() + b"\n")
        answer = b""
        while not answer.endswith(_PROMPT):
            more = os.read(self._process.stdout.fileno(), 65536)
            if not more:
                raise Unavailable("scontrol ended")
            answer += more
        return answer.decode(errors="replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True, slots=True)
class Look:
    """What Slurm showed. It became true between ``before_s`` and ``at_s`` (CLOCK_MONOTONIC): figures take the later."""

    before_s: float
    """When the last sample that still showed something else was requested."""
    at_s: float
    """When the answer was there."""
    node: str
    """The node's State, such as ``IDLE+DRAIN``."""
    job: str
    """JobState."""
    restarts: int
    job_nodes: str

    @property
    def out(self) -> bool:
        """The node takes no further job."""
        return "DRAIN" in self.node or "DOWN" in self.node

    @property
    def down(self) -> bool:
        return self.node.startswith("DOWN")


@dataclass
class Trace:
    """All changes that Slurm showed since the trace began, and all lines of the job's output with the time they were seen."""

    node: str
    job_id: int
    output: Path
    looks: list[Look] = field(default_factory=list)
    lines: list[tuple[float, str]] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    """Between two consecutive samples: the resolution of every time here."""

    def first(self, wanted: Callable[[Look], bool]) -> Look | None:
        return next((look for look in tuple(self.looks) if wanted(look)), None)

    def line(self, start: str, since_s: float) -> float | None:
        """When a line with this beginning was first seen after a moment."""
        return next((at_s for at_s, line in tuple(self.lines) if at_s > since_s and line.startswith(start)), None)

    def word(self, start: str) -> str | None:
        """The last field of the last line with this prefix."""
        found = [line for _, line in tuple(self.lines) if line.startswith(start)]
        return found[-1].split()[-1] if found else None


class Watcher:
    """A thread that follows one node and one job at a time. Use as a context manager."""

    def __init__(self, practice: Practice) -> None:
        self._scontrol = Scontrol(practice)
        self._jobs = practice.folder / "jobs"
        self._trace: Trace | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slurmview", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(5.0)
        self._scontrol.close()

    def follow(self, node: str, job_id: int) -> Trace:
        """Start a new trace; returns once it has its first sample."""
        trace = Trace(node, job_id, self._jobs / f"{job_id}.out")
        self._trace = trace
        while not trace.looks:
            if not self._thread.is_alive():
                raise Unavailable("the watcher of Slurm has ended")
            time.sleep(LOOK_EVERY_S)
        return trace

    def rest(self) -> None:
        """Stop sampling until the next :meth:`follow`."""
        self._trace = None

    def _run(self) -> None:
        asked_s, seen_bytes, last = 0.0, 0, None
        while not self._ended.wait(LOOK_EVERY_S):
            trace = self._trace
            if trace is None:
                continue
            if trace is not last:
                asked_s, seen_bytes, last = time.monotonic(), 0, trace
            asked_s = self._look(trace, asked_s)
            seen_bytes = _read_lines(trace, seen_bytes)

    def _look(self, trace: Trace, before_s: float) -> float:
        asked_s = time.monotonic()
        node = _NODE.search(self._scontrol.ask(f"show node {trace.node}"))
        job = _JOB.search(self._scontrol.ask(f"show job {trace.job_id}"))
        now_s = time.monotonic()
        trace.gaps_s.append(now_s - before_s)
        if node and job:
            look = Look(before_s, now_s, node[1], job[1], int(job[2]), job[3])
            seen = (look.node, look.job, look.restarts, look.job_nodes)
            old = trace.looks[-1] if trace.looks else None
            if old is None or (old.node, old.job, old.restarts, old.job_nodes) != seen:
                trace.looks.append(look)
        return asked_s


def _read_lines(trace: Trace, seen_bytes: int) -> int:
    """Whole new lines of the job's output; returns the place up to which it has been read."""
    if not trace.output.exists() or trace.output.stat().st_size <= seen_bytes:
        return seen_bytes
    with trace.output.open("rb") as file:
        file.seek(seen_bytes)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    now_s = time.monotonic()
    trace.lines += [(now_s, line) for line in whole.decode(errors="replace").splitlines()]
    return seen_bytes + len(whole)
