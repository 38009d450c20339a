"""Groups of one elastic job in a real rendezvous, as processes that record every attempt at a step; faults for them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.kit.rooms import Rooms  # noqa: E402

from holdfast.practice.elastic import steps  # noqa: E402

WORKER = ROOT / "training" / "examples" / "watched.py"
M = 12
HEARTBEAT_TIMEOUT_S = 5.0


def write_tokens(folder: Path, dice: random.Random) -> None:
    """What the groups train on."""
    (folder / "tokens").write_bytes(array("H", (dice.randrange(64) for _ in range(4000))).tobytes())


def start_group(
    rooms: Rooms, opened: Mapping[str, Any], group: int, start: str, *options: str, **env: str
) -> subprocess.Popen[bytes]:
    """One start of a group of two to three in an open rendezvous. Its stderr is in ``GROUP-START.err``."""
    told = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "HOLDFAST_", "TORCH"))},
        "HOLDFAST_QUORUM": opened["url"],
        "HOLDFAST_QUORUM_TOKEN": opened["token"],
        "HOLDFAST_GROUP": str(group),
        "HOLDFAST_INCARNATION": start,
        "HOLDFAST_MIN_GROUPS": "2",
        "HOLDFAST_MAX_GROUPS": "3",
        "HOLDFAST_AGENT_SOCKET": str(rooms.folder / "no-agent"),
        "RUST_LOG": "error",
        **env,
    }
    argv = [sys.executable, "-W", "ignore", str(WORKER), f"{rooms.folder}/tokens", str(rooms.folder), *options]
    with (rooms.folder / f"{group}-{start}.err").open("w") as errors:
        return subprocess.Popen(argv, env=told, stderr=errors)


@dataclass
class WatchedJob:
    """Groups 0 to 3, of which three have a place. ``stop`` ends every process; the rendezvous belongs to the caller."""

    rooms: Rooms
    dice: random.Random
    living: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    ended: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)
    """Starts that must not survive: the fault that ended each, and its process."""
    faults: Counter[str] = field(default_factory=Counter)
    _starts: Counter[int] = field(default_factory=Counter)
    _opened: dict[str, Any] = field(default_factory=dict)

    def begin(self) -> None:
        write_tokens(self.rooms.folder, self.dice)
        rules = {"min_groups": 2, "max_groups": 3, "heartbeat_timeout_s": HEARTBEAT_TIMEOUT_S}
        self._opened = self.rooms.ask(do="open", room="job-1", rules=rules)
        for group in range(4):
            self.start(group)

    def start(self, group: int) -> None:
        """A start as Slurm would make one, however the one before ended."""
        self._starts[group] += 1
        self.living[group] = start_group(self.rooms, self._opened, group, self.start_of(group), "--micro-s", "0.05")

    def start_of(self, group: int) -> str:
        return f"{70 + group}.{self._starts[group] - 1}"

    def victim(self) -> int:
        """Usually a member; sometimes any group, also one that is not ready yet."""
        members = self.rooms.ask(do="status", room="job-1")["rooms"][0]["members"]
        there = [g for g in range(4) if any(who.startswith(f"{g}~{self.start_of(g)}:") for who in members)]
        return self.dice.choice(there if there and self.dice.random() < 0.75 else range(4))

    def evict(self, group: int) -> None:
        self.rooms.ask(do="evict", room="job-1", member=f"{group}~{self.start_of(group)}", reason="drill")

    def strike(self, group: int, fault: str) -> None:
        """One fault; the group that is hit starts again at once, if it is to be gone."""
        self.faults[fault] += 1
        process = self.living[group]
        if fault == "hiccup":
            self.hang(process, self.dice.uniform(0.2, 2 * HEARTBEAT_TIMEOUT_S))
            return
        if fault.startswith("service"):
            self.rooms.kill()
            time.sleep(self.dice.uniform(0, 2))
        if "kill" in fault:
            process.kill()
        elif fault == "leave":
            process.send_signal(signal.SIGUSR1)
        elif fault.startswith("hang"):
            self.hang(process, self.dice.uniform(0.2, 2 * HEARTBEAT_TIMEOUT_S))
        if fault.startswith("service"):
            self.rooms.start()
        if fault.endswith("evict"):
            self.evict(group)
        if fault != "service":
            self.ended.append((fault, process))
            self.start(group)

    def hang(self, process: subprocess.Popen[bytes], for_s: float) -> None:
        process.send_signal(signal.SIGSTOP)
        threading.Timer(for_s, process.send_signal, [signal.SIGCONT]).start()

    def go_on(self, groups: int, more: int = 3, limit_s: float = 300) -> None:
        """Wait until this many groups have begun ``more`` further steps: this many have the state. A start that is already being
        replaced does not count: its end is a fault that was done already."""
        since_s = time.time()

        def enough() -> bool:
            begun: dict[str, set[int]] = defaultdict(set)
            for a in steps.read(self.rooms.folder):
                if a.at_s > since_s and a.start == self.start_of(a.group):
                    begun[a.start].add(a.step)
            return sum(len(seen) > more for seen in begun.values()) >= groups

        wait(enough, limit_s, lambda: str(self.rooms.ask(do="status")["rooms"]))

    def stop(self) -> None:
        for process in [*self.living.values(), *(process for _fault, process in self.ended)]:
            if process.poll() is None:
                process.kill()
            process.wait()


def wait(what: Callable[[], bool], limit_s: float, why: Callable[[], str] = str) -> None:
    end_s = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > end_s:
            raise TimeoutError(why())
        time.sleep(0.2)
