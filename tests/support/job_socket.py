"""The job's end of the agent's socket, and a node whose slurmd knows given jobs."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.agent.node.processes import SlurmNode
from holdfast.model.errors import Unavailable


class KnownJobs(SlurmNode):
    """A node whose slurmd knows these jobs; None: scontrol does not answer."""

    def __init__(self, jobs: Mapping[int, frozenset[int]] | None) -> None:
        self.jobs = jobs
        self.asked = 0

    def job_pids(self, job_id: int | None = None) -> Mapping[int, frozenset[int]]:
        self.asked += 1
        if self.jobs is None:
            raise Unavailable("scontrol did not answer")
        return self.jobs


class Job:
    """One connection."""

    def __init__(self, path: Path, within_s: float = 20.0) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(within_s)
        try:
            self.connection.connect(str(path))
        except OSError:
            self.connection.close()
            raise
        self._lines = self.connection.makefile("rb")

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_error: object) -> None:
        self._lines.close()
        self.connection.close()

    def say(self, line: object) -> None:
        self.connection.sendall(json.dumps(line).encode() + b"\n")

    def hear(self) -> Any:
        """The next line; None: the other side has closed."""
        line = self._lines.readline()
        return json.loads(line) if line else None

    def ask(self, line: object) -> Any:
        self.say(line)
        return self.hear()
