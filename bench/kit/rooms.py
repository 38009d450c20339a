"""A real quorum service with real torchft groups, as processes, and the record of their steps."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.model.errors import Unavailable
from holdfast.quorum.identity import replica_name

_WORKER = Path(__file__).with_name("quorum_worker.py")
_UP_WITHIN_S = 20.0


@dataclass(slots=True)
class Group:
    """A replica group: a process and the file that it writes its steps to."""

    name: str
    process: subprocess.Popen[bytes]
    file: Path

    def steps(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines() if line.endswith("}")]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def errors(self) -> str:
        return self.file.with_suffix(".err").read_text(errors="replace")


@dataclass(slots=True)
class Rooms:
    """The quorum service with its own folder. ``stop`` ends it and every group."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    groups: list[Group] = field(default_factory=list)

    def start(self) -> None:
        """Also after :meth:`kill`, on the same state. Raises Unavailable."""
        argv = [sys.executable, "-m", "holdfast.quorum", "--store", f"sqlite:///{self.folder}/holdfast.db"]
        argv += ["--key", f"{self.folder}/quorum.key", "--socket", f"{self.folder}/quorum.sock"]
        with (self.folder / "quorum.log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        until_s = time.monotonic() + _UP_WITHIN_S
        while time.monotonic() < until_s and self.process.poll() is None:
            try:
                self.ask(do="status")
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise Unavailable((self.folder / "quorum.log").read_text()[-2000:])

    def ask(self, **asked: Any) -> dict[str, Any]:
        """One question to the service. Raises OSError when it is not there, Unavailable for a no."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(f"{self.folder}/quorum.sock")
            connection.sendall(json.dumps(asked).encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile().readline())
        if not answer["ok"]:
            raise Unavailable(answer["error"])
        return answer

    def join(self, opened: dict[str, Any], group: str, start: str = "a", token: str | None = None) -> Group:
        """Start a group in an opened rendezvous. ``token``: another one, as a forger would use."""
        name = replica_name(token or opened["token"], group, start) if opened["needs_token"] else group
        file = self.folder / f"group-{group}-{start}.jsonl"
        own = {
            "TORCHFT_LIGHTHOUSE": opened["url"],
            "TORCHFT_QUORUM_TIMEOUT_SEC": "600",
            "TORCHFT_QUORUM_RETRIES": "1200",
        }
        with file.open("wb") as out, file.with_suffix(".err").open("wb") as err:
            argv = [sys.executable, "-W", "ignore", str(_WORKER), name]
            process = subprocess.Popen(argv, stdout=out, stderr=err, env={**os.environ, **own, "RUST_LOG": "info"})
        self.groups.append(Group(group, process, file))
        return self.groups[-1]

    def kill(self) -> None:
        """As by power loss."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        for process in [g.process for g in self.groups] + ([self.process] if self.process else []):
            if process.poll() is None:
                process.kill()
            process.wait()


def wait_for_groups(groups: list[Group], count: int, within_s: float = 60.0, more: int = 3) -> None:
    """Until each of these has committed ``more`` new steps together with ``count`` groups. Raises Unavailable."""
    since_s, until_s = time.time(), time.monotonic() + within_s
    while time.monotonic() < until_s:
        if all(sum(s["at_s"] > since_s and s["groups"] == count for s in g.steps()) >= more for g in groups):
            return
        time.sleep(0.1)
    raise Unavailable(f"not {count} groups within {within_s:g} s: {[g.steps()[-1:] for g in groups]}")


def longest_gap_s(group: Group, after_s: float) -> float:
    """The longest time between two of its commits, from the last one before that moment on."""
    at_s = [s["at_s"] for s in group.steps()]
    first = max((i for i, moment_s in enumerate(at_s) if moment_s <= after_s), default=0)
    late = at_s[first:]
    return max((b - a for a, b in itertools.pairwise(late)), default=float("inf"))


def diverging(groups: list[Group]) -> int:
    """Steps after which two groups had other weights."""
    seen: dict[int, set[float]] = {}
    for group in groups:
        for s in group.steps():
            seen.setdefault(s["step"], set()).add(s["weight"])
    return sum(len(weights) > 1 for weights in seen.values())
