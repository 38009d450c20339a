"""Faults of the kernel log through the real agent: injected as the practice does it, reported with the right component, code, severity and
remedy within a moment; similar lines that are no faults stay silent. One agent serves all cases."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agent.sources.kernel import KernelLog
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.cluster.processes import Processes
from holdfast.practice.cluster.spec import Spec
from holdfast.practice.faults import all_faults
from holdfast.practice.faults.kernel import FAULTS
from holdfast.practice.hardware.network import efa_name
from holdfast.practice.nvml.build import environment
from holdfast_checks.known import all_checks
from support.agent_bench import FakeController, Folder, Json
from support.emulated_nvml import library
from support.kernel_lines import LINES, ORDINARY

pytestmark = pytest.mark.slow

GPUS = 2
MARKER = "marker-"


class Node:
    """A running agent that follows only the kernel log and NVML, and the machine below it."""

    def __init__(self, path: Path) -> None:
        self.controller = FakeController()
        self._markers = 0
        spec = Spec("t", ("n1",), GPUS, "", 1, "127.0.0", 0, (0,), 0, (0,), 0, "")
        self.machine = PracticeMachine(spec, path, "n1", Processes(path), {})
        self.machine.host.create()
        folder = self.machine.host.folder
        self.folder = Folder(folder, self.controller.url)
        others = [name for name in all_checks() if not name.startswith(("kernel.", "gpu.xid", "gpu.count"))]
        env = "\n".join(
            f'{key} = "{value}"' for key, value in environment(library(), self.machine.host.nvml_state).items()
        )
        self.folder.write_config(
            f'controllers = ["{self.controller.url}"]\ngpu_count = {GPUS}\nnvml_library = "{library()}"\nact_on = ["*"]\n'
            f'pstore_path = "pstore"\ndisabled_checks = {json.dumps(others)}\n[intervals]\n"kernel.panic" = 0.5\n'
            f'[kernel]\npstore_archive = "{folder / "archive"}"\n[nvml_env]\n{env}'
        )
        self.process: subprocess.Popen[bytes] = self.folder.start()
        self.controller.wait(lambda: bool(self.controller.items("inventory")))
        gpus = self.controller.items("inventory")[0]["gpus"]
        self.uuids = {int(gpu["minor"]): uuid for uuid, gpu in gpus.items()}
        self.controller.wait(lambda: bool(self.controller.heartbeats))

    def said(self, since: int = 0) -> list[Json]:
        """Lines of the kernel log, markers left out."""
        found = [item for item in self.controller.items("finding") if item["check"].startswith(("kernel.", "gpu.xid"))]
        return [item for item in found if not item["component"].startswith(MARKER)][since:]

    def settle(self) -> int:
        """Wait until everything that was logged has been judged and reported; returns the number of reports."""
        self._markers += 1
        name = f"{MARKER}{self._markers}"
        self.machine.host.log_kernel(3, f"nfs: server {name} not responding, still trying")
        self.controller.wait(lambda: any(item["component"] == name for item in self.controller.items("finding")))
        return len(self.said())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.controller.close()
        assert "Traceback" not in self.folder.agent_log


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("practice"))
    yield node
    node.close()


SWITCH = "0000:c5:00.0/link46"
EFA = efa_name(0)
DIMMS = ("CPU_SrcID#0_MC#0_Chan#0_DIMM#0", "CPU_SrcID#1_MC#0_Chan#1_DIMM#0")
CASES = [
    ("sxid", "", "kernel.sxid", SWITCH, "19047", "fatal", "reboot"),
    ("sxid", "12020", "kernel.sxid", SWITCH, "12020", "fatal", "stop_start"),
    ("sxid", "12028", "kernel.sxid", SWITCH, "12028", "warning", "none"),
    ("sxid", "26006", "kernel.sxid", SWITCH, "26006", "warning", "none"),
    ("fallen_off", "", "gpu.xid", "gpu0", "79", "fatal", "reboot"),
    ("fallen_off", "lines", "gpu.xid", "gpu1", "79", "fatal", "reboot"),
    ("gpu_init_failed", "", "kernel.gpu_driver", "gpu0", "init_failed", "fatal", "reboot"),
    ("peermem", "", "kernel.gpu_driver", "node", "peermem", "warning", "none"),
    ("efa_admin", "", "kernel.efa", EFA, "admin_timeout", "fatal", "reboot"),
    ("efa_admin", efa_name(3), "kernel.efa", efa_name(3), "admin_closed", "fatal", "reboot"),
    ("efa_refuses", "", "kernel.efa", EFA, "command_failed", "warning", "none"),
    ("mlx5_health", "", "kernel.mlx5", "0000:a0:03.0", "health", "fatal", "reboot"),
    ("mlx5_error", "", "kernel.mlx5", "0000:a0:03.0", "command_failed", "warning", "none"),
    ("pcie_fatal", "", "kernel.pcie", "gpu0", "fatal", "degraded", "reboot"),
    ("oom", "", "kernel.oom", "node", "global", "warning", "none"),
    ("hung_task", "", "kernel.hung_task", "node", "blocked", "warning", "none"),
    ("soft_lockup", "", "kernel.lockup", "node", "soft", "warning", "none"),
    ("hard_lockup", "", "kernel.lockup", "node", "hard", "degraded", "reboot"),
    ("oops", "", "kernel.oops", "node", "oops", "degraded", "reboot"),
    ("mce", "", "kernel.machine_check", "cpu12", "uncorrected", "fatal", "stop_start"),
    ("edac_ue", "", "kernel.edac", DIMMS[1], "ue", "fatal", "stop_start"),
    ("edac_ce", "", "kernel.edac", DIMMS[0], "ce", "warning", "none"),
    ("read_only_remount", "", "kernel.read_only", "nvme1n1p1", "remounted", "degraded", "reboot"),
    ("fs_error", "", "kernel.file_system", "nvme1n1p1", "damaged", "degraded", "reboot"),
    ("io_error", "", "kernel.block_io", "nvme1n1", "medium", "degraded", "stop_start"),
    ("nvme_timeout", "", "kernel.nvme", "nvme1", "timeout", "warning", "none"),
    ("nvme_lost", "", "kernel.nvme", "nvme1", "lost", "degraded", "stop_start"),
    ("lustre", "", "kernel.lustre", "scratch-OST0004", "evicted", "warning", "none"),
    ("nfs", "", "kernel.nfs", "10.0.3.7", "not_responding", "warning", "none"),
    ("panic", "", "kernel.panic", "node", "panic", "warning", "human"),
]


def test_every_fault_of_the_kernel_log_has_a_case() -> None:
    assert {fault.name for fault in FAULTS} == {case[0] for case in CASES}


@pytest.mark.parametrize(
    ("fault", "value", "check", "component", "code", "severity", "remedy"),
    CASES,
    ids=[f"{case[0]}-{case[1]}" for case in CASES],
)
def test_a_fault_is_told(
    node: Node, fault: str, value: str, check: str, component: str, code: str, severity: str, remedy: str
) -> None:
    gpu = int(component[3:]) if component.startswith("gpu") else 0
    where = node.uuids[gpu] if component.startswith("gpu") else component
    before = node.settle()
    known = all_faults()[fault]
    known.apply(node.machine, value, gpu)
    node.settle()
    node.controller.wait(lambda: any(item["code"] == code for item in node.said(before)))
    (found,) = [item for item in node.said(before) if item["code"] == code]
    told = (found["check"], found["component"], found["code"], found["severity"], found["remedy"])
    assert told == (check, where, code, severity, remedy)
    assert {item["check"] for item in node.said(before)} == {check}
    assert (found["gpu_minor"] == gpu) is component.startswith("gpu")
    if known.heal is not None:
        known.heal(node.machine)
        node.controller.wait(lambda: any(item["check"] == check for item in node.controller.items("clear")))


# {bus}: the address of a GPU that the node has.
FORGED = (
    "python3[4711]: segfault at 0 ip 00007f2c sp 00007ffd error 4 in NVRM: Xid (PCI:{bus}): 79, x[7f2c+1000]",
    "cgroup: fork rejected by pids controller in /NVRM: Xid (PCI:{bus}): 79, pid=1, name=x, GPU has fallen off the bus",
    "NVRM: Xid (PCI:[4711]: segfault at 0 ip 00007f2c sp 00007ffd error 4 in {bus}): 79, x[7f2c+1000]",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,task_memcg=/EDAC MC0: 1 UE on DIMM (page:0x0",
    "x\\x0aNVRM: Xid (PCI:{bus}): 79, pid=1, name=x",
    "Memory cgroup out of memory: Killed process 4711 (Kernel panic - ) total-vm:2101004kB, anon-rss:1950136kB",
    "NVRM: Xid (PCI:{bus}): 7",
)


def test_near_misses_stay_silent(node: Node) -> None:
    """Ordinary lines, lines that a user causes, the same text from a user, and text about GPUs of other nodes."""
    gpus = node.controller.items("inventory")[0]["gpus"].values()
    buses = [str(gpu["pci"]).removesuffix(".0") for gpu in gpus]
    host = node.machine.host
    before = node.settle()
    for bus in buses:
        for text in FORGED:
            host.log_kernel(3, text.replace("{bus}", bus))
    for text in ORDINARY:
        if text.isprintable():
            host.log_kernel(3, text)
    for line in LINES:
        host.log_kernel(3, line.text, facility=1)
    for bus in buses:
        host.log_kernel(3, f"NVRM: Xid (PCI:{bus}): 79, pid=1, name=x, GPU has fallen off the bus.", facility=1)
    host.log_kernel(3, "NVRM: Xid (PCI:0000:fe:00): 79, pid=1, name=x, GPU has fallen off the bus.")
    assert node.settle() == before


def test_a_device_that_is_not_there_is_only_recorded(node: Node) -> None:
    before = len(node.said())
    node.machine.host.log_kernel(3, "nvidia-nvswitch9: SXid (PCI:0000:fe:00.0): 19047, Fatal, Link 07 AN1 Heartbeat")
    node.controller.wait(lambda: bool(node.said(before)))
    (found,) = node.said(before)
    assert (found["severity"], found["remedy"], found["evidence"]["present"]) == ("warning", "none", False)


def test_a_class_that_is_off_is_passed_over(tmp_path: Path) -> None:
    kmsg = tmp_path / "kmsg"
    kmsg.write_text("")
    log = KernelLog(kmsg, "boot-1", None, tmp_path, off=("kernel.nfs",))
    assert log.read({}, 1.0) == []
    with kmsg.open("a") as file:
        file.write(
            "3,1,1000,-;nfs: server a not responding, still trying\n3,2,1000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [x:1]\n"
        )
    assert [seen.result.check for seen in log.read({}, 2.0)] == ["kernel.lockup"]
    log.close()


def test_a_line_is_told_within_a_moment(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    taken: list[float] = []
    for number in range(10):
        before = len(node.said())
        began_s = time.monotonic()
        node.machine.host.log_kernel(3, f"nfs: server fs{number} not responding, still trying")
        node.controller.wait(lambda since=before: bool(node.said(since)))  # type: ignore[misc]
        taken.append(time.monotonic() - began_s)
    with capsys.disabled():
        print(f"\nfrom the kernel's line to the controller: median {sorted(taken)[5] * 1e3:.0f} ms")  # noqa: T201
    assert sorted(taken)[5] < 1.0, "ten times the goal, for a busy machine"
