"""What one agent costs an idle node: CPU of its process tree in percent of a core, and memory.

``bench/agent.py [--minutes 10] [--quick]``. The real agent with its NVML child at its default intervals, against a running controller,
on an emulated node without a job: once with the node's emulated kernel log, and where it may be read once more with this machine's
own /dev/kmsg. Start-up is not part of the figure: what is measured begins after the first minute (``--settle-s``)."""

from __future__ import annotations

import argparse
import sys
import time
import tomllib
from pathlib import Path

import tomli_w

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.kit import figures, procs
from bench.kit.stage import site

from holdfast.config.agent import AgentConfig
from holdfast.practice.site import Site

GOAL_CPU_PERCENT = 0.2
GOAL_PSS_BYTES = 64 * procs.MIB
KMSG = Path("/dev/kmsg")


def use_real_kernel_log(made: Site, node: str) -> None:
    """Restart the node's agent on this machine's own kernel log and boot id."""
    machine = made.practice.machine(node)
    path = machine.host.folder / "agent.toml"
    table = tomllib.loads(path.read_text())
    table |= {"kmsg_path": str(KMSG), "boot_id_path": "/proc/sys/kernel/random/boot_id"}
    path.write_text(tomli_w.dumps(table))
    made.practice.processes.stop(machine.agent)
    machine.start_agent()


def readable_kernel_log() -> bool:
    try:
        KMSG.open("rb").close()
    except OSError:
        return False
    return True


class Subject:
    """One agent under measurement."""

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self._began_s = time.monotonic()
        self._before = procs.tree_cpu(pid)

    def report(self) -> None:
        """Print its figures."""
        wall_s = time.monotonic() - self._began_s
        used = procs.tree_cpu(self.pid) - self._before
        percent = 100 * used.total_s / wall_s
        each = [(one, procs.pss_bytes(one)) for one in procs.tree(self.pid)]
        pss = sum(size for _, size in each)
        print(f"\n{self.name}: {percent:.3f} % of a core over {wall_s:.0f} s ({used.total_s:.2f} s user + system)")
        print(
            f"  PSS {pss / procs.MIB:.1f} MiB: " + "; ".join(f"{s / procs.MIB:.1f} {procs.command(p)}" for p, s in each)
        )
        figures.goal(f"CPU <= {GOAL_CPU_PERCENT} % of a core", met=percent <= GOAL_CPU_PERCENT)
        figures.goal("PSS of the tree <= 64 MiB", met=pss <= GOAL_PSS_BYTES)


def measure(minutes: float, settle_s: float) -> None:
    figures.heading(f"agent: {minutes:g} minutes at default intervals")
    with site(heartbeat_s=AgentConfig().heartbeat_s) as made:
        nodes = {"emulated kernel log": made.practice.nodes[0]}
        if readable_kernel_log():
            nodes["/dev/kmsg of this machine"] = made.practice.nodes[1]
            use_real_kernel_log(made, made.practice.nodes[1])
        else:
            print("/dev/kmsg cannot be read here: that part is left out")
        made.wait_for_agents()
        time.sleep(settle_s)
        subjects = []
        for name, node in nodes.items():
            pid = made.practice.processes.main_pid(made.practice.machine(node).agent)
            assert pid is not None, f"the agent of {node} is gone"
            subjects.append(Subject(name, pid))
        time.sleep(minutes * 60)
        for subject in subjects:
            subject.report()
    print(f"load at the end: {figures.load()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--settle-s", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="20 s: shows that the bench works; the figures say little")
    options = parser.parse_args()
    minutes, settle_s = (1 / 3, 5.0) if options.quick else (options.minutes, options.settle_s)
    measure(minutes, settle_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
