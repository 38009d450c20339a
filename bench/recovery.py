"""Recovery time: from a line in the kernel log to the node drained and the job running again, on a practice cluster.

``bench/recovery.py [--faults 50] [--queue N] [--quick]``. Slurm's own view is read about every 20 ms; every time is the moment at
which Slurm's answer was there, so a figure errs on the long side by at most one sample. The truth is the injector's log."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.kit import figures
from bench.kit.slurmview import Watcher
from bench.kit.stage import FIRST_LINE, GPU_MINORS, Stage, Struck, came_back, print_changes, print_logs, site

from holdfast.model.errors import HoldfastError
from holdfast.practice.faults.inject import Injector

DRAINED = "kernel line -> node drained in Slurm"
STOPPED = "kernel line -> old run over in Slurm"
RUNNING = "kernel line -> job RUNNING elsewhere"
FIRST = "kernel line -> first line of the job's script"
RESUMED = "kernel line -> training resumes"
RETURNED = "kernel line -> node back in service"
GOALS = {DRAINED: 1.0, RUNNING: 5.0}
HEAL_WITHIN_S = 90.0

RESTART = "old run over -> RUNNING again"
RESUME = "RUNNING again -> training resumes"


def truth(struck: Struck) -> dict[str, float]:
    """Seconds from the injection to what Slurm, or the job itself, showed. What was not seen is left out."""
    began_s, trace = struck.injection.monotonic_s, struck.trace
    restarts = trace.looks[0].restarts
    out = trace.first(lambda look: look.at_s > began_s and look.out)
    stopped = trace.first(lambda look: look.restarts > restarts)
    running = trace.first(lambda look: look.restarts > restarts and look.job == "RUNNING")
    back = trace.first(lambda look: out is not None and look.at_s > out.at_s and not look.out)
    seen = {DRAINED: out, STOPPED: stopped, RUNNING: running, RETURNED: back}
    found = {name: look.at_s - began_s for name, look in seen.items() if look is not None}
    if (resumed_s := came_back(trace, began_s)) is not None:
        found[RESUMED] = resumed_s - began_s
    if (stamp := trace.word(FIRST_LINE)) is not None:
        found[FIRST] = float(stamp) - datetime.fromisoformat(struck.injection.wall).timestamp()
    if RUNNING in found:
        found[RESTART] = found[RUNNING] - found[STOPPED]
        found[RESUME] = max(found[RESUMED] - found[RUNNING], 0.0)
    return found


def recorded(story: Mapping[str, Any]) -> dict[str, float]:
    """The same durations as ``holdfast metrics`` has them."""
    timings = story["timings"] or {}
    phases = timings.get("phases", {})
    before = phases.get("detect", 0.0) + phases.get("decide", 0.0)
    sums: dict[str, Callable[[], float | None]] = {
        DRAINED: lambda: before + phases["drain"],
        STOPPED: lambda: before + phases["stop_job"],
        RUNNING: lambda: timings["time_to_running_s"],
        RESUMED: lambda: timings["time_to_resumed_s"],
        RETURNED: lambda: timings["time_to_return_s"],
        RESTART: lambda: phases["restart"],
        RESUME: lambda: phases["resume"],
    }
    found: dict[str, float] = {}
    for name, get in sums.items():
        try:
            value = get()
        except KeyError:
            continue
        if value is not None:
            found[name] = value
    return found


def fault_error_s(struck: Struck) -> float:
    """Recorded time of the fault minus the injector's."""
    at = datetime.fromisoformat(struck.story["incident"]["fault_at"])
    return (at - datetime.fromisoformat(struck.injection.wall)).total_seconds()


def xid_79(gpu: int, injector: Injector, node: str) -> None:
    injector.xid(node, 79, gpu)


def measure(faults: int, queue: int) -> bool:
    """One series; prints its figures. False: a fault was not healed."""
    figures.heading(f"recovery: {faults} faults, {f'{queue} jobs of others waiting' if queue else 'empty queue'}")
    struck: list[Struck] = []
    with site() as made, Watcher(made.practice) as watcher:
        print_changes(made)
        stage = Stage(made, watcher, queue=queue)
        for number in range(faults):
            began_s = time.monotonic()
            try:
                struck.append(stage.strike(partial(xid_79, number % GPU_MINORS), heal_within_s=HEAL_WITHIN_S))
            except HoldfastError as error:
                print(f"fault {number + 1}: NOT HEALED: {error}")
                print_logs(made)
                break
            seen = truth(struck[-1])
            print(
                f"fault {number + 1}: {struck[-1].injection.node} drained {seen.get(DRAINED, -1):.2f} s, running"
                f" {seen.get(RUNNING, -1):.2f} s ({time.monotonic() - began_s:.0f} s, load {figures.load()})",
                flush=True,
            )
    report(struck)
    return len(struck) == faults


def report(struck: list[Struck]) -> None:
    truths = [truth(one) for one in struck]
    books = [recorded(one.story) for one in struck]
    names = (DRAINED, STOPPED, RUNNING, FIRST, RESUMED, RETURNED)
    figures.durations("as Slurm showed it", {n: [t[n] for t in truths if n in t] for n in names}, GOALS)
    gaps = [gap for one in struck for gap in one.trace.gaps_s[1:]]
    print(
        f"  a sample every {figures.percentile(gaps, 0.5) * 1000:.0f} ms (P99 {figures.percentile(gaps, 0.99) * 1000:.0f} ms)"
    )
    pairs = {
        name: [
            (book[name], true[name]) for book, true in zip(books, truths, strict=True) if name in book and name in true
        ]
        for name in (DRAINED, STOPPED, RESTART, RESUME, RUNNING, RESUMED, RETURNED)
    }
    off = {"time of the fault (against a true 0)": [(fault_error_s(one), 0.0) for one in struck]}
    figures.errors("holdfast metrics against the truth (recorded - true)", off | pairs)
    print(f"load at the end: {figures.load()}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument(
        "--queue", type=int, help="jobs of another user that wait; both without and with 20 if not given"
    )
    parser.add_argument("--quick", action="store_true", help="2 faults of each kind: shows that the bench works")
    options = parser.parse_args()
    faults = 2 if options.quick else options.faults
    queues = (0, 20) if options.queue is None else (options.queue,)
    healed = [measure(faults, queue) for queue in queues]
    return 0 if all(healed) else 1


if __name__ == "__main__":
    sys.exit(main())
