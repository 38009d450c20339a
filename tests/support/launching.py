"""``holdfast run`` as a process, programs for it to run, and a stand-in for the agent's side of the job socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast_checks.probes import process_files

ROOM: dict[str, Any] = {
    "v": 1, "kind": "room", "room": "job-71", "url": "http://127.0.0.1:40001", "token": "s3cret",
    "group": 2, "start": "73.1", "min": 2, "max": 4, "sizes": [2, 4], "spares": 0,
}  # fmt: skip
ELEMENT = {"SLURM_JOB_ID": "73", "SLURM_ARRAY_TASK_ID": "2", "SLURM_RESTART_COUNT": "1"}
"""As Slurm starts the second run of a group."""

SHOW = (
    'import json, os; told = ("RANK", "LOCAL_", "WORLD_", "MASTER_", "HOLDFAST_", "TORCHFT_", "SLURM_NODEID");'  # word: a name
    " text = json.dumps({n: v for n, v in os.environ.items() if n.startswith(told)}); os.write(1, (text + chr(10)).encode());"
    ' here = os.environ.get("SHOWN"); here and open(here + "/" + str(os.getpid()) + ".json", "w").write(text)'
)
"""Prints the environment that a rank was given, in one write: ranks share the output, and print(flush=True) unbuffered writes the end
of the line apart. Also into a separate file where SHOWN names a folder, since srun mixes lines of several nodes. No
single quotes: it goes through shells."""
AWARE = """
import os, pathlib, signal, sys, time
from holdfast_checks.probes import process_files
came = []
signal.signal(signal.SIGUSR1, lambda *_: came.append("USR1"))
signal.signal(signal.SIGTERM, lambda *_: came.append("TERM"))
print("step", flush=True)
while not came:
    time.sleep(0.02)
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0.2)  # the step is finished
print("left", came[0], pathlib.Path(os.environ["HOLDFAST_EVENT_FILE"]).read_text().strip(), flush=True)
sys.exit(85)
"""
"""A training that leaves when it is asked to."""


class Launch:
    """One launcher; its lines and its ranks' output go to one file."""

    def __init__(self, folder: Path, *argv: str, env: Mapping[str, str] | None = None, via: Sequence[str] = ()) -> None:
        self.output = folder / "output"
        clean = {
            k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "HOLDFAST_", "TORCHFT_", "MASTER_"))
        }
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [*(via or (sys.executable, "-m", "holdfast.launcher")), *argv],
                env={
                    **clean,
                    "HOLDFAST_AGENT_SOCKET": str(folder / "agent.sock"),
                    "TMPDIR": str(folder),
                    **(env or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def lines(self) -> list[str]:
        """Lines of the launcher itself."""
        return [
            line.removeprefix("holdfast run: ") for line in self.said.splitlines() if line.startswith("holdfast run: ")
        ]

    @property
    def shown(self) -> list[dict[str, str]]:
        """Environments that ranks have printed with SHOW."""
        return [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]

    def until(self, true: Callable[[], object], within_s: float = 20.0) -> None:
        deadline_s = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < deadline_s, self.said
            time.sleep(0.02)

    def until_said(self, text: str, times: int = 1) -> None:
        self.until(lambda: self.said.count(text) >= times)

    def end(self, within_s: float = 20.0) -> int:
        """Its exit status."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the launcher is still there:\n{self.said}") from None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()  # its guard ends what it has started
        self.process.wait()


@contextmanager
def launched(folder: Path, *argv: str, **env: str) -> Iterator[Launch]:
    launch = Launch(folder, *argv, env=env)
    try:
        yield launch
    finally:
        launch.close()


def shown_in(folder: Path) -> list[dict[str, str]]:
    """Environments that ranks have printed there, by group and rank."""
    texts = [text for file in folder.glob("*.json") if (text := file.read_text()).endswith("}")]
    return sorted(map(json.loads, texts), key=lambda env: (env.get("HOLDFAST_GROUP", ""), int(env["RANK"])))


def python(code: str, *argv: str) -> list[str]:
    return [sys.executable, "-c", code, *argv]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not reaped does not."""
    stat = process_files.stat(pid)
    return stat is not None and not stat.ended


class RoomAgent:
    """The agent's end of the protocol, in a thread: every question gets the next of these answers, and the last one repeatedly."""

    def __init__(self, path: Path, *answers: dict[str, Any]) -> None:
        self.path = path
        self.asked: list[dict[str, Any]] = []
        self._answers = list(answers)
        self._connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def push(self, **event: Any) -> None:
        """Send to every connected client."""
        for connection in self._connections:
            with suppress(OSError):
                connection.sendall(json.dumps({"v": 1, "kind": "event", **event}).encode() + b"\n")

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._listener.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self.path.unlink()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection.makefile("rb") as lines:
            for line in lines:
                self.asked.append(json.loads(line))
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                connection.sendall(json.dumps(answer).encode() + b"\n")


@contextmanager
def room_agent(folder: Path, *answers: dict[str, Any]) -> Iterator[RoomAgent]:
    agent = RoomAgent(folder / "agent.sock", *answers)
    try:
        yield agent
    finally:
        agent.stop()


def fake_scontrol(folder: Path, text: str | None) -> str:
    """A PATH on which ``scontrol`` prints this; None: it fails."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    answer = "exit 1" if text is None else f"cat <<'END'\nJobId=73 ArrayJobId=72 JobName=x\n   {text}\n   Power=\nEND"
    (programs / "scontrol").write_text(f"#!/bin/sh\n{answer}\n")
    (programs / "scontrol").chmod(0o755)
    return f"{programs}{os.pathsep}{os.environ['PATH']}"
