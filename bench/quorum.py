"""Cost of a lost, leaving or cut-off replica group for the others: stock torchft Managers in a rendezvous of Holdfast.

``bench/quorum.py [--runs 3] [--cases NAME,…]``. Three groups of one CPU rank on gloo, steps of 50 ms, torchft's default heartbeat timeout
of 5 s; a stall is the longest time between two commits of a survivor. Needs the extras ``quorum`` and ``train``. The last case is the same
kill with torchft's own lighthouse."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.kit import figures, procs
from bench.kit.rooms import Group, Rooms, diverging, longest_gap_s, wait_for_groups

GROUPS = ("0", "1", "2")
GOAL_EVICTED_S = 1.0


@contextmanager
def training(*, stock: bool = False) -> Iterator[tuple[Rooms, list[Group]]]:
    """Three groups that train together; nothing of them is left."""
    with tempfile.TemporaryDirectory(prefix="hfquorum-", dir="/tmp") as folder:
        rooms = Rooms(Path(folder))
        lighthouse: subprocess.Popen[bytes] | None = None
        try:
            if stock:
                lighthouse, opened = own_lighthouse()
            else:
                rooms.start()
                opened = rooms.ask(do="open", room="bench", rules={"min_groups": 1})
            groups = [rooms.join(opened, name) for name in GROUPS]
            wait_for_groups(groups, len(groups))
            yield rooms, groups
            if diverging(groups):
                raise SystemExit(f"{diverging(groups)} steps have diverging weights")
        finally:
            rooms.stop()
            if lighthouse is not None:
                lighthouse.kill()
                lighthouse.wait()


def own_lighthouse() -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"127.0.0.1:{free.getsockname()[1]}"
    argv = [str(Path(sys.executable).with_name("torchft_lighthouse")), "--bind", url]
    argv += ["--min_replicas", "1", "--join_timeout_ms", "60000"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return process, {"url": f"http://{url}", "needs_token": False}


def kill_only(rooms: Rooms, groups: list[Group]) -> list[Group]:
    groups[2].process.kill()
    wait_for_groups(groups[:2], 2)
    return groups[:2]


def kill_and_evict(rooms: Rooms, groups: list[Group]) -> list[Group]:
    groups[2].process.kill()
    rooms.ask(do="evict", room="bench", member="2", reason="node n2: gpu.xid 79")
    wait_for_groups(groups[:2], 2)
    return groups[:2]


def leave(rooms: Rooms, groups: list[Group]) -> list[Group]:
    groups[2].send(signal.SIGUSR1)
    wait_for_groups(groups[:2], 2)
    return groups[:2]


def service_away(rooms: Rooms, groups: list[Group]) -> list[Group]:
    rooms.kill()
    time.sleep(3)
    rooms.start()
    wait_for_groups(groups, 3)
    return groups


Case = Callable[[Rooms, list[Group]], list[Group]]
CASES: dict[str, tuple[str, Case, bool]] = {
    "evict": ("killed, and evicted on a verdict", kill_and_evict, False),
    "leave": ("leaves gracefully", leave, False),
    "away": ("none; the service is killed for 3 s", service_away, False),
    "kill": ("killed, not reported (heartbeat 5 s)", kill_only, False),
    "stock": ("the same with torchft's own lighthouse", kill_only, True),
}


def run(case: Case, *, stock: bool) -> list[float]:
    with training(stock=stock) as (rooms, groups):
        begun_s = time.time()
        survivors = case(rooms, groups)
        return [longest_gap_s(group, begun_s) for group in survivors]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    options = parser.parse_args()
    procs.end_cleanly()
    os.environ["RUST_LOG"] = "warn"
    figures.heading("Rendezvous: stall of the survivors, 3 groups, torchft 0.2.0's Managers, gloo")
    rows: dict[str, list[float]] = {}
    for name in options.cases.split(","):
        title, case, stock = CASES[name]
        rows[title] = []
        for _ in range(options.runs):
            rows[title].append(max(run(case, stock=stock)))
            print(f"  {title}: {rows[title][-1]:.3f} s", flush=True)
    figures.durations("A group …", rows, {CASES["evict"][0]: GOAL_EVICTED_S, CASES["leave"][0]: GOAL_EVICTED_S})
    return 0


if __name__ == "__main__":
    sys.exit(main())
