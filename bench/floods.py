"""Effect of a flood on honest callers: the real controller's memory, ``/healthz`` and heartbeats while another process floods it.

``bench/floods.py [--seconds 20] [--agents 300] [--kinds heads,viewer] [--plain] [--shared]``. The controller (no Slurm, SQLite, TLS) has
core 0, the flood core 1 at nice 10, so that what is slow is the controller and not the machine; root puts the controller and the honest
callers before other work (nice -10). ``--shared`` pins neither. All from loopback, where no bound per address holds: the worst case;
with ``--stranger`` the flood comes from a separate address, as on a network."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from bench.kit import figures, flood, procs
from bench.kit.flooded import Flooded, Seen

from holdfast.descriptors import raise_limit

GOAL_HEALTH_S = 1.0
MOST_WAITING = 0.3
"""Share of the time, summed over the controller's threads, which also wait for each other."""
GOAL_MEMORY_BYTES = 512 * procs.MIB
"""More than before the flood: 2,048 connections that are not known, under TLS."""


def certificates(folder: Path) -> Path:
    """The command of docs/how-to-tls.md."""
    command = [sys.executable, "-m", "holdfast.cli", "tls", "init", "--dir", str(folder), "--name", "localhost"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def one(made: Flooded, kind: str, seconds: float, *before: str) -> Seen:
    """Flood the controller in one way, then leave it alone for a moment."""
    began, cpu = procs.pss_bytes(made.pid), procs.cpu(made.pid)
    waited_s = procs.waited_s(made.pid)
    with made.watched() as seen:
        told = made.flood(kind, seconds, *before)
        used_s = (procs.cpu(made.pid) - cpu).own_s
        waited_s = procs.waited_s(made.pid) - waited_s
    time.sleep(2)
    after = procs.pss_bytes(made.pid)
    most = max(seen.memory_bytes, default=began)
    p50, worst = figures.percentile(seen.health_s, 0.5), max(seen.health_s, default=0.0)
    print(
        f"  {kind:<15} {began / procs.MIB:5.0f} {most / procs.MIB:5.0f} {after / procs.MIB:5.0f}  "
        f" {1000 * p50:7.1f} {1000 * worst:7.0f} {len(seen.health_failed):4} of {len(seen.health_s) + len(seen.health_failed):<4}"
        f" {seen.beats:5} of {seen.beats + len(seen.beats_refused):<4} {1000 * max(seen.beats_s, default=0):6.0f}"
        f"   {100 * used_s / seconds:4.0f} % {100 * waited_s / seconds:4.0f} %  {figures.load()}",
        flush=True,
    )
    print(f"      the flood was answered: {', '.join(f'{n} x {what}' for what, n in sorted(told.items()))}", flush=True)
    for why in sorted(set(seen.health_failed + seen.beats_refused))[:3]:
        print(f"      failed: {why}")
    if waited_s / seconds > MOST_WAITING:
        print("      VOID as to latency: other processes had the controller's core")
    else:
        figures.goal("/healthz < 1 s, always", met=0 < worst < GOAL_HEALTH_S and not seen.health_failed)
        figures.goal("all heartbeats taken", met=not seen.beats_refused)
    if most - began > GOAL_MEMORY_BYTES:
        figures.goal(f"memory < {GOAL_MEMORY_BYTES // procs.MIB} MiB more", met=False)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each kind")
    parser.add_argument("--agents", type=int, default=300, help="nodes whose agents reported once")
    parser.add_argument("--kinds", help=f"of: {', '.join(flood.KINDS)}")
    parser.add_argument("--plain", action="store_true", help="without TLS")
    parser.add_argument("--stranger", action="store_true", help="the flood comes from a separate address")
    parser.add_argument("--shared", action="store_true", help="controller and flood share all cores")
    parser.add_argument("--quick", action="store_true", help="3 s each, 20 agents: shows that the bench works")
    options = parser.parse_args()
    kinds = options.kinds.split(",") if options.kinds else list(flood.KINDS)
    pinned = not options.shared and (os.cpu_count() or 1) > 1
    on, off = (["taskset", "-c", "0"], ["taskset", "-c", "1", "nice", "-n", "20"]) if pinned else ([], [])
    if os.geteuid() == 0:
        os.nice(-10)
    procs.end_cleanly()
    raise_limit()
    agents, seconds = (20, 3.0) if options.quick else (options.agents, options.seconds)
    folder = Path(tempfile.mkdtemp(prefix="hfflood-", dir="/tmp"))
    try:
        etc = None if options.plain else certificates(folder / "etc")
        figures.heading(
            f"floods{' of a stranger' if options.stranger else ''}: {'plain' if etc is None else 'TLS'}, {agents} agents known, "
            f"{'one core each' if pinned else 'cores shared'}"
        )
        print("                   memory MiB         /healthz ms            heartbeats      controller: CPU, waited")
        print("  kind           before  most after      P50     max   failed       taken     max ms            load")
        with Flooded(folder, etc, agents, stranger=options.stranger).up(*on) as made:
            for kind in kinds:
                one(made, kind, seconds, *off)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
