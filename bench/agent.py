"""Cost of one agent on an idle node: CPU of its process tree in percent of a core, and memory.

``bench/agent.py [--minutes 10] [--before FOLDER] [--breakdown] [--against] [--nhc FOLDER] [--gcm FOLDER] [--quick]``. The real agent with
its NVML child and all checks acting, at its default intervals, against a running controller, on an emulated node (8 GPUs with 18 NVLinks
each, 32 EFA devices, 3,000 processes) without a job: once with the node's emulated kernel log, and where it may be read once more with
this machine's own /dev/kmsg. Start-up is not part of the figure: what is measured begins after the first minute (``--settle-s``).

``--before``: also the agent of another checkout of this repository, at the same time on a separate node: figures of one machine and one
load, to be compared. ``--breakdown``: also the cost of each single check. ``--against``: also one run of other tools, named by ``--nhc``
(a checkout of github.com/mej/nhc) and ``--gcm`` (a virtual environment with gpucm), which are no part of this repository."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.kit import breakdown, figures, others, procs
from bench.kit.stage import site

from holdfast.config.agent import AgentConfig, load_agent_config
from holdfast.model.errors import Unavailable
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.cluster.site import PracticeSite
from holdfast.practice.hardware import network
from holdfast.practice.hardware.host import HostFiles

GOAL_CPU_PERCENT = 0.2
GOAL_PSS_BYTES = 64 * procs.MIB
KMSG = Path("/dev/kmsg")
EFA_DEVICES = 32
COUNT_S = 60.0
"""System calls are counted this long."""
SHOWN_CALLS = 12
PROCESSES = 3000
"""On a node with 192 CPUs the kernel threads alone are this many."""
REAL_LOG = {"kmsg_path": str(KMSG), "boot_id_path": "/proc/sys/kernel/random/boot_id"}
"""This machine's own kernel log and boot."""


def equip(
    made: PracticeSite, node: str, checkout: Path | None = None, changed: Mapping[str, Any] | None = None
) -> PracticeMachine:
    """EFA devices and processes of a large machine, all checks acting; ``changed``: keys of the agent's file. Restarts the agent,
    from ``checkout`` or from here."""
    machine = made.practice.machine(node)
    made.practice.processes.stop(machine.agent)
    folder = machine.host.folder
    (folder / "network.json").write_text(json.dumps({"efa": EFA_DEVICES}))
    network.install(folder.resolve())
    host = HostFiles(folder.resolve())
    for number in range(PROCESSES):
        host.process(100 + number, f"kworker/{number}:1", "I")
    host.write("proc/loadavg", f"0.10 0.10 0.10 1/{PROCESSES} 4321\n")
    path = folder / "agent.toml"
    table = tomllib.loads(path.read_text()) | {"act_on": ["*"], **(changed or {})}
    path.write_text(tomli_w.dumps(table))
    sources = [str(checkout.resolve() / part) for part in ("daemon", "healthchecks")] if checkout is not None else []
    machine.start_agent({"PYTHONPATH": ":".join(sources)} if sources else None)
    return machine


def readable_kernel_log() -> bool:
    try:
        KMSG.open("rb").close()
    except OSError:
        return False
    return True


def in_memory() -> str:
    """Where the emulated /proc and /sys are: as the real ones, reading them shall never wait for a disk, which counts as a wake-up."""
    memory = Path("/dev/shm")
    fit = os.access(memory, os.W_OK) and not os.statvfs(memory).f_flag & os.ST_NOEXEC
    return str(memory) if fit else "/tmp"


class Subject:
    """One agent under measurement."""

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self._began_s = time.monotonic()
        self._before = procs.tree_cpu(pid)
        self._wakeups = procs.wakeups(pid)

    def report(self) -> None:
        """Print its figures."""
        wall_s = time.monotonic() - self._began_s
        used = procs.tree_cpu(self.pid) - self._before
        percent = 100 * used.total_s / wall_s
        each = [(one, procs.pss_bytes(one)) for one in procs.tree(self.pid)]
        pss = sum(size for _, size in each)
        print(
            f"\n{self.name}: {percent:.3f} % of a core over {wall_s:.0f} s ({used.total_s:.2f} s user + system, ",
            end="",
        )
        print(f"{used.total_s * 3600 / wall_s:.2f} s an hour; {used.ended_s:.2f} s of it commands)")
        print(
            f"  PSS {pss / procs.MIB:.1f} MiB: " + "; ".join(f"{s / procs.MIB:.1f} {procs.command(p)}" for p, s in each)
        )
        print(f"  {(procs.wakeups(self.pid) - self._wakeups) / wall_s:.2f} wake-ups a second")
        figures.goal(f"CPU <= {GOAL_CPU_PERCENT} % of a core", met=percent <= GOAL_CPU_PERCENT)
        figures.goal("PSS of the tree <= 64 MiB", met=pss <= GOAL_PSS_BYTES)

    def show_system_calls(self, seconds: float) -> None:
        """Print how many a second. It slows the agent down, so after its figures."""
        calls = procs.system_calls(self.pid, seconds)
        if not calls:
            print(f"{self.name}: system calls cannot be counted here (strace)")
            return
        most = ", ".join(f"{name} {each:.1f}" for name, each in list(calls.items())[:SHOWN_CALLS])
        print(f"{self.name}: {sum(calls.values()):.1f} system calls a second over {seconds:.0f} s: {most}")


def measure(options: argparse.Namespace) -> None:
    figures.heading(f"agent: {options.minutes:g} minutes at default intervals, {EFA_DEVICES} EFA devices")
    with site(base=in_memory()) as made:
        nodes = {"emulated kernel log": equip(made, made.practice.nodes[0])}
        if readable_kernel_log():
            nodes["/dev/kmsg of this machine"] = equip(made, made.practice.nodes[1], changed=REAL_LOG)
        else:
            print("/dev/kmsg cannot be read here: that part is left out")
        if options.before is not None:
            nodes[f"as of {options.before}"] = equip(made, made.practice.nodes[2], options.before)
        made.wait_for_agents()
        time.sleep(options.settle_s)
        subjects = []
        for name, machine in nodes.items():
            pid = made.practice.processes.main_pid(machine.agent)
            assert pid is not None, f"the agent of {machine.name} is gone"
            subjects.append(Subject(name, pid))
        time.sleep(options.minutes * 60)
        for subject in subjects:
            subject.report()
        for subject in subjects:
            subject.show_system_calls(min(COUNT_S, options.minutes * 60))
        config = load_agent_config(machine_config(made))
        if options.breakdown:
            breakdown.show(breakdown.breakdown(config))
        if options.against:
            against(options, config)
    print(f"load at the end: {figures.load()}")


def machine_config(made: PracticeSite) -> Path:
    """The first node's file."""
    return made.practice.machine(made.practice.nodes[0]).host.folder / "agent.toml"


def against(options: argparse.Namespace, config: AgentConfig) -> None:
    """One run of each of the other tools that were named."""
    library = Path(config.nvml_library).parent
    env = {**config.nvml_env, "LD_LIBRARY_PATH": str(library)}
    wanted = (("NHC", options.nhc, others.nhc), ("GCM", options.gcm, lambda folder: others.gcm(folder, env)))
    print(f"\nother tools, one run on this machine, every {others.INTERVAL_S:g} s as they document it")
    for name, folder, ask in wanted:
        if folder is None:
            print(f"  {name}: left out (--{name.lower()} FOLDER)")
            continue
        try:
            spent = ask(folder)
        except Unavailable as error:
            print(f"  {name}: {error}")
            continue
        percent = spent.per_hour_s / 36
        print(
            f"  {spent.name}: {spent.cpu_s:.2f} s of CPU, {spent.wall_s:.1f} s; {spent.per_hour_s:.1f} s/h, {percent:.3f} % of a core"
        )
        for part, cpu_s in spent.parts.items():
            print(f"    {part:<40} {cpu_s:.2f} s")
        if spent.failed:
            print(f"    without a verdict: {', '.join(spent.failed)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--settle-s", type=float, default=60.0)
    parser.add_argument(
        "--before", type=Path, metavar="FOLDER", help="another checkout, whose agent runs at the same time"
    )
    parser.add_argument("--breakdown", action="store_true", help="the cost of each single check")
    parser.add_argument("--against", action="store_true", help="also one run of NHC and GCM")
    parser.add_argument("--nhc", type=Path, metavar="FOLDER", help="checkout of github.com/mej/nhc")
    parser.add_argument("--gcm", type=Path, metavar="FOLDER", help="virtual environment with gpucm")
    parser.add_argument("--quick", action="store_true", help="20 s: shows that the bench works; the figures say little")
    options = parser.parse_args()
    if options.quick:
        options.minutes, options.settle_s = 1 / 3, 5.0
    measure(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
