"""Groups of several ranks around a real rendezvous, as processes, and checks of what they committed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.kit.rooms import Rooms  # noqa: E402

WORKER = ROOT / "tests" / "support" / "elastic_ranks_worker.py"


@dataclass
class Groups:
    """One job. ``stop`` ends every process and the rendezvous."""

    folder: Path
    rooms: Rooms
    opened: dict[str, Any]
    kind: str
    ranks: int
    until: int
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self, group: int, start: str, fault: str = "none", faulty: int = -1, **env: str) -> list[str]:
        """All ranks of a group, each under the name GROUP.RANK.START; ``faulty``: the rank that has the fault."""
        port, names = str(free_port()), []
        for rank in range(self.ranks):
            names.append(f"{group}.{rank}.{start}")
            told = fault if rank == faulty else "none" if fault == "none" else "never"
            with (self.folder / f"{names[-1]}.err").open("w") as errors:
                self.running[names[-1]] = subprocess.Popen(
                    [sys.executable, "-W", "ignore", str(WORKER), self.kind, str(self.folder), names[-1], str(self.until), told],
                    env={
                        **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "HOLDFAST_", "TORCH"))},
                        "PYTHONPATH": f"{ROOT / 'training'}:{ROOT / 'daemon'}",
                        "HOLDFAST_QUORUM": self.opened["url"],
                        "HOLDFAST_QUORUM_TOKEN": self.opened["token"],
                        "HOLDFAST_GROUP": str(group),
                        "HOLDFAST_INCARNATION": start,
                        "HOLDFAST_MIN_GROUPS": "1",
                        "HOLDFAST_MAX_GROUPS": "3",
                        "HOLDFAST_COLLECTIVE_TIMEOUT_S": "20",
                        "HOLDFAST_AGENT_SOCKET": str(self.folder / "no-agent"),
                        "RANK": str(rank), "WORLD_SIZE": str(self.ranks), "LOCAL_RANK": str(rank),
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RUST_LOG": "error",
                        **env,
                    },
                    stderr=errors,
                    text=True,
                )  # fmt: skip
        return names

    def lines(self, name: str, kind: str) -> list[dict[str, Any]]:
        file = self.folder / f"{name}.jsonl"
        whole = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [said for line in whole if line.endswith("\n") and (said := json.loads(line))["kind"] == kind]

    def wait(self, what: Callable[[], bool], limit_s: float = 240) -> None:
        until_s = time.monotonic() + limit_s
        while not what():
            assert time.monotonic() < until_s, self.errors()
            time.sleep(0.02)

    def asks(self, start: str) -> Callable[[], bool]:
        """Whether this start of a group waits to be admitted to the rendezvous."""
        return lambda: any(
            f"~{start}:" in who for who in self.rooms.ask(do="status", room="job-7")["rooms"][0]["asking"]
        )

    def is_there(self, name: str) -> bool:
        """Whether this process has come to its first step, or waits to be admitted to the rendezvous."""
        return bool(self.lines(name, "attempt")) or self.asks(name.split(".", 2)[2])()

    def at(self, name: str, step: int) -> Callable[[], bool]:
        return lambda: any(line["step"] >= step for line in self.lines(name, "commit"))

    def ends(self, names: list[str], status: int, limit_s: float = 240) -> None:
        self.wait(lambda: all(self.running[n].poll() is not None for n in names), limit_s)
        assert [self.running[n].returncode for n in names] == [status] * len(names), self.errors()

    def errors(self) -> dict[str, str]:
        return {p.stem: p.read_text()[-2500:] for p in self.folder.glob("*.err") if p.stat().st_size}

    def check(self, m: int) -> None:
        """Check that every step was committed, with each of the m micro-batches once, and one and the same shard i in every
        group's rank i."""
        attempts = {name: self.lines(name, "attempt") for name in self.running}
        commits = {name: {line["step"]: line["digest"] for line in self.lines(name, "commit")} for name in self.running}
        for step in range(1, self.until + 1):
            digests: dict[str, set[str]] = {}
            for name, found in commits.items():
                digests.setdefault(name.split(".")[1], set()).update({found[step]} if step in found else set())
            assert len(digests) == self.ranks, (step, digests)
            assert all(len(found) == 1 for found in digests.values()), (step, digests)
            tried = {n: [a for a in said if a["step"] == step - 1] for n, said in attempts.items()}
            quorums = {tried[n][-1]["quorum"] for n in tried if tried[n] and step in commits[n]}
            assert len(quorums) == 1, (step, quorums)
            shares = {
                n.split(".")[0]: tuple(a["share"]) for n, said in tried.items() for a in said if a["quorum"] in quorums
            }
            assert sorted(i for share in shares.values() for i in share) == list(range(m)), (step, shares)

    def stop(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self.rooms.stop()


def open_room(folder: Path, kind: str, ranks: int, until: int) -> Groups:
    """A quorum service with a rendezvous for up to three groups. Raises Unavailable."""
    rooms = Rooms(folder)
    rooms.start()
    rules = {"min_groups": 1, "max_groups": 3, "join_timeout_s": 5}
    return Groups(folder, rooms, rooms.ask(do="open", room="job-7", rules=rules), kind, ranks, until)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
