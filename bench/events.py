"""Latency of event-driven checks: from the fault to the finding at the controller's end of the wire.

``bench/events.py [--events 1000] [--pause-s 0.05] [--quick]``. The real agent with its NVML child on an emulated node with 8 GPUs, all
checks at their default intervals, against an endpoint that notes when a report had arrived. Two series, each event with its own
code, so that no storm limit holds it back: an Xid written into the kernel log, and an Xid reported by NVML alone. The emulated NVML polls
its events every 20 ms, which the real one does not; that wait is part of the second series."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import tomli_w

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.kit import figures, procs
from bench.kit.endpoint import Endpoint

from holdfast.model.errors import Unavailable
from holdfast.practice.cluster.host import PracticeHost
from holdfast.practice.hardware import host as host_files
from holdfast.practice.hardware.network import DEFAULT_ROUTE, FI_INFO
from holdfast.practice.nvml import state as nvml
from holdfast.practice.nvml.build import build, environment

GOAL_P99_S = 0.1
GPUS = 8
FIRST_CODE = 1000
"""Codes of unknown Xids: reported as warnings, by the same path as all others."""
_READY_WITHIN_S = 30.0
_ALL_WITHIN_S = 20.0


@contextmanager
def node(endpoint: Endpoint) -> Iterator[PracticeHost]:
    """A node's files and its running agent; all of it is removed afterwards."""
    procs.end_cleanly()
    folder = Path(tempfile.mkdtemp(prefix="hfevents-", dir="/tmp"))
    host = PracticeHost(folder, "n1", GPUS)
    agent: subprocess.Popen[bytes] | None = None
    try:
        host.create()
        (folder / "token").write_text("bench\n")
        (folder / "agent.toml").write_text(tomli_w.dumps(_config(host, endpoint.url)))
        argv = [sys.executable, "-m", "holdfast.agent", "--config", str(folder / "agent.toml")]
        with (folder / "agent.log").open("wb") as log:
            agent = subprocess.Popen(argv, stdout=log, stderr=log)
        if not endpoint.wait_for_inventory(_READY_WITHIN_S):
            raise Unavailable(f"the agent reports nothing: {(folder / 'agent.log').read_text()[-2000:]}")
        yield host
    finally:
        if agent is not None:
            agent.terminate()
            agent.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _config(host: PracticeHost, url: str) -> dict[str, object]:
    folder, library = host.folder, build(Path.home() / ".cache" / "holdfast" / "nvml")
    return {
        "node": host.name,
        "controllers": [url],
        "token_file": str(folder / "token"),
        "state_dir": str(folder / "agent"),
        "run_dir": str(folder / "run"),
        "kmsg_path": str(host.kmsg),
        "boot_id_path": str(host.boot_id_file),
        "instance_id_path": str(folder / "instance_id"),
        "sysfs_path": str(host.sysfs),
        "pstore_path": str(folder / "pstore"),
        "nvml_library": str(library),
        "nvml_env": environment(library, host.nvml_state),
        "gpu_count": GPUS,
        "act_on": ["*"],
        "disk_paths": [str(folder)],
        "slurmd_pid_file": str(folder / "slurmd.pid"),
        "disabled_checks": ["host.slurmd"],
        "dcgm": {"dcgmi": str(folder / "dcgmi")},
        "host": host_files.agent_settings(folder),
        "network": {
            "fi_info": str(folder / FI_INFO),
            "default_route_device": DEFAULT_ROUTE,
            "slurmd_spool": str(folder / "spool"),
            "memlock_gib": 0.0,
        },
    }


def kernel_line(host: PracticeHost) -> Callable[[int], None]:
    """Writes the kernel's line of an Xid as one append, as the kernel does."""
    addresses = [gpu.pci for gpu in nvml.read(host.nvml_state).gpus]
    sequence = 1_000_000
    log = os.open(host.kmsg, os.O_WRONLY | os.O_APPEND)

    def write(number: int) -> None:
        pci = addresses[number % GPUS].removesuffix(".0")
        text = f"NVRM: Xid (PCI:{pci}): {FIRST_CODE + number}, pid=17, name=python3, Ch 00000008"
        os.write(log, f"4,{sequence + number},{time.monotonic_ns() // 1000},-;{text}\n".encode())

    return write


def nvml_event(host: PracticeHost) -> Callable[[int], None]:
    """Make NVML report an Xid that is not in the kernel log."""
    return lambda number: nvml.add_xid(host.nvml_state, number % GPUS, FIRST_CODE + number)


def series(endpoint: Endpoint, cause: Callable[[int], None], numbers: range, pause_s: float) -> tuple[list[float], int]:
    """(seconds from each event to its finding, how many never came). Pauses vary, so that no timer of the agent keeps step with them."""
    caused: dict[str, float] = {}
    for number in numbers:
        caused[str(FIRST_CODE + number)] = time.monotonic()
        cause(number)
        time.sleep(random.uniform(0.5, 1.5) * pause_s)
    endpoint.wait(numbers.stop, _ALL_WITHIN_S)
    took = latencies(caused, {code: at_s for (check, code), at_s in endpoint.seen.items() if check == "gpu.xid"})
    return took, len(caused) - len(took)


def latencies(caused: Mapping[str, float], seen: Mapping[str, float]) -> list[float]:
    """Delays of the events that arrived."""
    return [seen[code] - at_s for code, at_s in caused.items() if code in seen]


def show(name: str, took: list[float], lost: int) -> None:
    p50, p90, p99 = (1000 * figures.percentile(took, share) for share in (0.5, 0.9, 0.99))
    print(
        f"\n{name}: {len(took)} events, P50 {p50:.1f} ms, P90 {p90:.1f} ms, P99 {p99:.1f} ms, max {1000 * max(took, default=0):.1f} ms"
    )
    if lost:
        print(f"  {lost} findings never came")
    figures.goal("P99 < 100 ms", met=bool(took) and p99 < 1000 * GOAL_P99_S and not lost)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1000, help="in each series")
    parser.add_argument("--pause-s", type=float, default=0.05, help="mean time between two events")
    parser.add_argument("--quick", action="store_true", help="50 events: shows that the bench works")
    options = parser.parse_args()
    events = 50 if options.quick else options.events
    figures.heading(f"events: {events} in each series, one every {options.pause_s:g} s")
    with Endpoint().listening() as endpoint, node(endpoint) as host:
        took, lost = series(endpoint, kernel_line(host), range(events), options.pause_s)
        show("kernel log line written → finding received", took, lost)
        took, lost = series(endpoint, nvml_event(host), range(events, 2 * events), options.pause_s)
        show("NVML event → finding received", took, lost)
    print(f"load at the end: {figures.load()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
