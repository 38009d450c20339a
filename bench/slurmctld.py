"""Load that Holdfast puts on slurmctld and the controller, and time until a faulty node is drained, by the size of the cluster.

``bench/slurmctld.py [--nodes 5,512,4096] [--jobs 0,1000,10000] [--array 100000] [--seconds 60] [--faults 20] [--texts]
[--quick]``. The real controller and actor on a real slurmctld whose nodes exist in its configuration only, with this many jobs,
each with its own record, that wait, an array whose elements share one, and one job that runs. Requests are counted by
``sdiag``. Then fatal findings are reported, one after the other, and last one under a running job that has not consented to be
stopped: its recovery stays open. With ``--texts`` the waiting jobs' texts read like Slurm's own fields."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.kit import figures, load, procs
from bench.kit.head import Head, head

from holdfast.model.errors import Unavailable
from holdfast.practice.cluster.cluster import Practice
from holdfast.store import open_store

SETTLE_S = 100.0
"""Agents are waited for after a start (30 s), and what happened last is long ago."""
COUNTED = re.compile(r"^\t(REQUEST_\w+) .*count:(\d+)", re.MULTILINE)
DUMPS = ("REQUEST_NODE_INFO", "REQUEST_JOB_INFO")
"""Of all nodes, of all jobs."""
OURS = "REQUEST_STATS_INFO"
"""The bench's own question."""
ASKED = "REQUEST_NODE_INFO_SINGLE"
"""What the bench asks for until a node is drained, each time with the partitions."""
BETWEEN_FAULTS_S = 3.0
DRAINED_WITHIN_S = 30.0
HOSTILE = "--network=x JobState=RUNNING Requeue=1 Restarts=0 BatchFlag=1 SubmitTime=1 NodeList=n1"
"""What a user may write, and what reads like Slurm's own words."""
LOTS = 1_000_000
"""Brakes that hold nothing."""


def slurm_conf(jobs: int, array: int) -> str:
    return f"MaxJobCount={jobs + array + 1000}\nMaxArraySize={max(array, jobs, 1000) + 2}\nSchedulerParameters=default_queue_depth=1\n"


def submit(practice: Practice, jobs: int, array: int, texts: bool) -> None:
    """Jobs that wait: elements of an array, each of which is given its own record, and an array that keeps its single record."""
    wait = ("-H", "-N1", "-o", "/dev/null", *([HOSTILE] if texts else []), "--wrap", "sleep 60")
    if array:
        practice.command("sbatch", f"--array=0-{array - 1}", *wait)
    if jobs:
        number = int(practice.command("sbatch", "--parsable", f"--array=0-{jobs - 1}", *wait))
        lines = "".join(f"update JobId={number}_{task} Name=job{task}\n" for task in range(jobs))
        subprocess.run(
            ["scontrol"], input=lines, text=True, env=practice.command_env(), stdout=subprocess.DEVNULL, check=False
        )
    records = len(practice.command("squeue", "-h", "-o", "%A").split())
    if records < jobs:
        raise Unavailable(f"Slurm has {records} records for {jobs} jobs")


def requests(practice: Practice) -> dict[str, int]:
    """Since the last :func:`reset`, by kind."""
    text = practice.command("sdiag")
    return {kind: int(count) for kind, count in COUNTED.findall(text.partition("by user")[0]) if kind != OURS}


def idle(made: Head, seconds: float, when: str = "idle") -> None:
    """Requests and CPU while nothing happens, or nothing more."""
    practice = made.practice
    practice.command("sdiag", "-r")
    before = procs.cpu(made.pid)
    time.sleep(seconds)
    used, counted = procs.cpu(made.pid) - before, requests(practice)
    dumps = sum(counted.get(kind, 0) for kind in DUMPS)
    print(f"  {when}, {seconds:.0f} s: {sum(counted.values()) / seconds:.2f} requests/s; ", end="")
    print(
        f"all nodes or all jobs: {dumps / seconds:.2f}/s; controller {100 * used.own_s / seconds:.1f} % of a core, ",
        end="",
    )
    print(f"its commands {100 * used.ended_s / seconds:.1f} %")
    most = sorted(counted.items(), key=lambda each: -each[1])
    print("    " + ", ".join(f"{kind.removeprefix('REQUEST_')} {count}" for kind, count in most), flush=True)


def faults(made: Head, number: int, seconds: float) -> None:
    """Fatal findings on one node after the other: report sent → drained in Slurm."""
    practice, took_s = made.practice, list[float]()
    practice.command("sdiag", "-r")
    began_s = time.monotonic()
    for each in range(number):
        node = load.node_name(each)
        sent_s = time.monotonic()
        _report(made, node, made.tokens[each])
        _until(lambda node=node: "drain" in practice.command("sinfo", "-h", "-N", "-n", node, "-o", "%T"))  # type: ignore[misc]
        took_s.append(time.monotonic() - sent_s)
        time.sleep(max(0.0, BETWEEN_FAULTS_S - took_s[-1]))
    wall_s = time.monotonic() - began_s
    counted = requests(practice)
    own = sum(counted.values()) - 2 * counted.get(ASKED, 0)
    shown = ", ".join(
        f"{name} {figures.percentile(took_s, share):.2f}" for name, share in (("P50", 0.5), ("P99", 0.99), ("max", 1.0))
    )
    print(f"  report -> drained, {number} faults: {shown} s; {own / wall_s:.1f} requests/s meanwhile", flush=True)
    if number < seconds:
        print("    all: " + " ".join(f"{value:.2f}" for value in took_s))


def open_recovery(made: Head, settle_s: float) -> None:
    """A fault under a job that runs on and awaits its owner's consent, until that is long ago."""
    practice, node, token = made.practice, "n1", "bench-token-of-n1"
    store = open_store(made.store_url)
    try:
        store.add_token("agent", node, hashlib.sha256(token.encode()).hexdigest(), datetime.now(UTC))
    finally:
        store.close()
    job = practice.sbatch("sleep 600", "-N1", "-w", node)
    _until(lambda: practice.command("squeue", "-h", "-j", str(job), "-o", "%T").strip() == "RUNNING")
    _report(made, node, token)
    _until(lambda: "drain" in practice.command("sinfo", "-h", "-N", "-n", node, "-o", "%T"))
    time.sleep(settle_s)


def _report(made: Head, node: str, token: str) -> None:
    named = {"check": "gpu.xid", "component": "GPU-3", "code": "79", "gpu_uuid": "GPU-3", "gpu_minor": 3}
    judged = {"verdict": "failed", "severity": "fatal", "remedy": "replace", "summary": "GPU has fallen off the bus"}
    item: dict[str, Any] = {"kind": "finding", **named, **judged, "age_s": 0.01, "sticky": True, "evidence": {}}
    port = made.practice.spec.controller_port
    raw = load.Agent(0, token, port, node).report(item)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/reports",
        data=raw.partition(b"\r\n\r\n")[2],
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - loopback
        if not json.load(answer)["accepted"]:
            raise Unavailable("the report was not accepted")


def _until(done: Callable[[], bool]) -> None:
    until_s = time.monotonic() + DRAINED_WITHIN_S
    while not done():
        if time.monotonic() > until_s:
            raise Unavailable(f"not drained within {DRAINED_WITHIN_S:g} s")
        time.sleep(0.01)


def measure(options: argparse.Namespace) -> None:
    figures.heading("slurmctld: requests, the controller's CPU, detection to drain")
    brakes = {"drains_10min": LOTS, "drains_60min": LOTS}
    for nodes in options.nodes:
        for jobs in options.jobs:
            array = options.array if jobs else 0
            number = min(options.faults, max(nodes - 2, 1))
            print(f"\n{nodes} nodes, {jobs} jobs, an array of {array} elements (load {figures.load()})", flush=True)
            conf = slurm_conf(jobs, array)
            with head(
                agents=number, slurm_nodes=nodes, store_url=None, slurm_conf=conf, tables={"brakes": brakes}
            ) as made:
                submit(made.practice, jobs, array, options.texts)
                made.practice.sbatch("sleep 3600", "-N1", "-w", "n1")
                time.sleep(options.settle_s)
                idle(made, options.seconds)
                faults(made, number, 50)
                open_recovery(made, options.settle_s)
                idle(made, options.seconds, "a job awaits consent")
    print(f"load at the end: {figures.load()}")


def main() -> int:
    numbers: Callable[[str], list[int]] = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=numbers, default=[5, 512, 4096])
    parser.add_argument("--jobs", type=numbers, default=[0, 1000, 10000])
    parser.add_argument("--array", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--texts", action="store_true", help="the waiting jobs' texts read like Slurm's fields")
    parser.add_argument("--settle-s", type=float, default=SETTLE_S)
    parser.add_argument("--quick", action="store_true", help="one small cluster: shows that the bench works")
    options = parser.parse_args()
    if options.quick:
        options.nodes, options.jobs, options.array = [5], [50], 1000
        options.seconds, options.settle_s, options.faults = 5.0, 45.0, 2
    measure(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
