"""Cost of a newcomer for the groups that train: joining at once with the whole state, against catching up first; and a warm spare.

``bench/heal.py [--runs 3] [--megabytes 200,1000] [--ways whole,one,all,spare]``. Three groups of one CPU rank on gloo in a rendezvous
of Holdfast; one is killed and evicted, and comes back once the others continue. A stall is a survivor's longest time between two commits
while the newcomer joins, less its usual one; the newcomer's time runs from the moment that its model is built, a spare's from the eviction.
Needs the extras ``quorum`` and ``train``."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.kit import figures, procs
from bench.kit.rooms import Rooms

_WORKER = Path(__file__).with_name("kit") / "heal_worker.py"
_LIMIT_S = 240.0
WAYS = {
    "whole": "joins at once, whole state in that step",
    "one": "catches up from one peer",
    "all": "catches up from two peers",
    "spare": "waits outside, and comes in for who is evicted",
}


class Job:
    """Groups of one job, and what they wrote."""

    def __init__(self, folder: Path, megabytes: float, step_s: float) -> None:
        self.folder, self.megabytes, self.step_s = folder, megabytes, step_s
        self.rooms = Rooms(folder)
        self.running: list[subprocess.Popen[bytes]] = []
        self.opened: dict[str, Any] = {}

    def open(self) -> None:
        self.rooms.start()
        self.opened = self.rooms.ask(do="open", room="bench", rules={"min_groups": 2, "max_groups": 3})

    def start(self, name: str, group: int, way: str) -> subprocess.Popen[bytes]:
        own = {
            "HOLDFAST_QUORUM": self.opened["url"],
            "HOLDFAST_QUORUM_TOKEN": self.opened["token"],
            "HOLDFAST_GROUP": str(group),
            "HOLDFAST_INCARNATION": name,
            "HOLDFAST_MIN_GROUPS": "2",
            "HOLDFAST_MAX_GROUPS": "4",
            "HOLDFAST_COLLECTIVE_TIMEOUT_S": "60",
            "HOLDFAST_ADDRESS": "127.0.0.1",
            "RUST_LOG": "error",
        }
        others = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "HOLDFAST_", "TORCHFT_"))}
        argv = [sys.executable, "-W", "ignore", str(_WORKER), str(self.megabytes), str(self.step_s), way]
        with self.file(name).open("wb") as out, self.file(name).with_suffix(".err").open("wb") as err:
            self.running.append(subprocess.Popen(argv, stdout=out, stderr=err, env={**others, **own}))
        return self.running[-1]

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"

    def lines(self, name: str, kind: str = "commit") -> list[dict[str, Any]]:
        whole = [line for line in self.file(name).read_text().splitlines() if line.endswith("}")]
        return [said for line in whole if (said := json.loads(line))["kind"] == kind]

    def wait(self, what: Callable[[], bool]) -> None:
        until_s = time.monotonic() + _LIMIT_S
        while not what():
            if time.monotonic() > until_s:
                told = {p.name: p.read_text()[-800:] for p in self.folder.glob("*.err")}
                raise SystemExit(f"it did not come about in {_LIMIT_S:g} s: {told}")
            time.sleep(0.05)

    def steps_with(self, name: str, groups: int) -> int:
        return sum(line["groups"] == groups for line in self.lines(name))

    def stop(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.rooms.stop()


def run(megabytes: float, step_s: float, way: str) -> tuple[float, float, float]:
    """A survivor's stall and its usual step, and the newcomer's time until its first commit; in seconds."""
    with tempfile.TemporaryDirectory(prefix="hfheal-", dir="/tmp") as folder:
        job = Job(Path(folder), megabytes, step_s)
        try:
            job.open()
            for group in range(3):
                job.start(f"g{group}", group, way)
            job.wait(lambda: job.steps_with("g0", 3) >= 2)
            since_s = spare_in(job) if way == "spare" else comes_back(job, way)
            job.wait(lambda: len(job.lines("again")) >= 3)
            return judged(job, since_s)
        finally:
            job.stop()


def comes_back(job: Job, way: str) -> float:
    """Kill one group and start it again once the others continue. Returns when its model is built."""
    lose(job)
    job.wait(lambda: job.steps_with("g0", 2) >= 3)
    job.start("again", 2, way)
    job.wait(lambda: bool(job.lines("again", "ready")))
    return float(job.lines("again", "ready")[0]["at_s"])


def spare_in(job: Job) -> float:
    """A fourth group waits outside a rendezvous of three, until one of these is killed and evicted. Returns when."""
    job.start("again", 3, "all")
    job.wait(lambda: any("~again" in who for who in job.rooms.ask(do="status", room="bench")["rooms"][0]["asking"]))
    committed = len(job.lines("g0"))
    job.wait(lambda: len(job.lines("g0")) >= committed + 3)
    return lose(job)


def lose(job: Job) -> float:
    """Returns when it was evicted."""
    job.running[2].kill()
    now_s = time.time()
    job.rooms.ask(do="evict", room="bench", member="2", reason="bench")
    return now_s


def judged(job: Job, ready_s: float) -> tuple[float, float, float]:
    digests: dict[int, set[str]] = {}
    for name in ("g0", "g1", "again"):
        for line in job.lines(name):
            digests.setdefault(line["step"], set()).add(line["digest"])
    if any(len(found) > 1 for found in digests.values()):
        raise SystemExit("groups had other weights after the same step")
    first = job.lines("again")[0]
    gaps, usual = [], []
    for name in ("g0", "g1"):
        for before, after in itertools.pairwise(job.lines(name)):
            gap_s = after["at_s"] - before["at_s"]
            if after["at_s"] > ready_s and after["step"] <= first["step"] + 1:
                gaps.append(gap_s)
            elif before["groups"] == after["groups"] and after["at_s"] < ready_s:
                usual.append(gap_s)
    step_s = statistics.median(usual or gaps)
    return max(gaps) - step_s, step_s, first["at_s"] - ready_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", default="200,1000")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--step-s", type=float, default=0.3)
    options = parser.parse_args()
    procs.end_cleanly()
    figures.heading("A group comes back: stall of the survivors, and when it takes part")
    stalls: dict[str, list[float]] = {}
    joins: dict[str, list[float]] = {}
    for megabytes in map(float, options.megabytes.split(",")):
        for way in options.ways.split(","):
            title = f"{megabytes:g} MB, {WAYS[way]}"
            for _ in range(options.runs):
                stall_s, step_s, join_s = run(megabytes, options.step_s, way)
                stalls.setdefault(title, []).append(stall_s)
                joins.setdefault(title, []).append(join_s)
                print(
                    f"  {title}: stall {stall_s:.2f} s at a step of {step_s:.2f} s, took part after {join_s:.2f} s",
                    flush=True,
                )
    figures.durations("Stall of the survivors beyond their usual step", stalls)
    figures.durations("From a built model, or the eviction, to the newcomer's first commit", joins)
    return 0


if __name__ == "__main__":
    sys.exit(main())
