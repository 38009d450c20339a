"""Faults of the host through the real agent: injected as in the practice, reported with the right code, severity and remedy, and cleared.

One agent serves all cases. Checks run every half second here, and count as they would."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.practice.cluster.host import PracticeHost
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.faults import all_faults
from holdfast.practice.faults.host import FAULTS
from holdfast.practice.hardware import host as hardware
from holdfast.practice.hardware.host import HostFiles
from holdfast_checks.known import all_checks
from support.agent_bench import FakeController, Folder, seen_right
from support.practice import eventually

pytestmark = pytest.mark.slow

BY_PLACE = ("host.munge", "host.credential", "host.services", "host.mounts", "host.modules")
"""These act only once they have seen their objects in place."""
CHECKS = [name for name in all_checks() if name.startswith("host.") and name != "host.slurmd"]


class Node:
    """A running agent on an emulated host, and the machine that the practice breaks."""

    def __init__(self, path: Path) -> None:
        self.controller = FakeController()
        self.folder = Folder(path, self.controller.url)
        self.files = HostFiles(path)
        # Faults use only the host of a machine.
        self.machine = cast(PracticeMachine, SimpleNamespace(host=PracticeHost(path, "n1", 0)))
        intervals = "\n".join(f'"{name}" = 0.5' for name in CHECKS)
        acts = ", ".join(f'"{name}"' for name in CHECKS)
        self.folder.write_config(
            f'controllers = ["{self.controller.url}"]\nact_on = [{acts}]\nreminder_s = 600\n'
            f'disabled_checks = ["host.slurmd"]\n[intervals]\n{intervals}',
            mount_deadline_s=0.3,
        )
        self.process: subprocess.Popen[bytes] = self.folder.start()
        eventually(lambda: set(BY_PLACE) <= seen_right(path), within_s=30)

    def inject(self, fault: str, value: str = "") -> None:
        all_faults()[fault].apply(self.machine, value, 0)

    def heal(self, fault: str) -> None:
        heal = all_faults()[fault].heal
        if heal is None:
            hardware.install(self.folder.path)
        else:
            heal(self.machine)

    def wait_for(self, kind: str, places: set[tuple[str, str]], since: int) -> None:
        """Wait until every (check, component) was reported."""

        def all_came() -> bool:
            return places <= {(item["check"], item["component"]) for item in self.controller.items(kind)[since:]}

        self.controller.wait(all_came)

    def count(self, kind: str) -> int:
        return len(self.controller.items(kind))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.controller.close()
        assert "Traceback" not in self.folder.agent_log


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    yield node
    node.close()


FABRIC = "nvidia-fabricmanager.service"
DISK = "."
"""The path that the agent of these tests watches."""
PERSISTENCED = "nvidia-persistenced.service"

Case = tuple[str, str, str, str, str, str, str]

WAVES: tuple[tuple[Case, ...], ...] = (
    (
        ("disk_full", "", "host.disk", DISK, "full", "degraded", "human"),
        ("munge_down", "", "host.munge", "node", "down", "degraded", "reboot"),
        ("service_down", FABRIC, "host.services", FABRIC, "down", "degraded", "reboot"),
        ("clock_unsync", "", "host.time", "node", "unsynchronised", "warning", "none"),
        ("mount_hang", "", "host.mounts", "/fsx", "hang", "degraded", "reboot"),
        ("memory_low", "", "host.memory", "available", "low", "warning", "none"),
        ("fds_full", "", "host.fds", "node", "exhausted", "degraded", "reboot"),
        ("pids_full", "", "host.pids", "node", "exhausted", "degraded", "reboot"),
        ("zombies", "", "host.zombies", "node", "too_many", "degraded", "reboot"),
        ("dstate", "nvidia-smi", "host.dstate", "node", "driver", "degraded", "reboot"),
        ("cpu_offline", "", "host.cpu", "node", "offline", "degraded", "reboot"),
        ("module_unloaded", "gdrdrv", "host.modules", "gdrdrv", "missing", "degraded", "reboot"),
    ),
    (
        ("inodes_full", "", "host.disk", DISK, "full", "degraded", "human"),
        ("munge_refuses", "", "host.credential", "node", "refused", "degraded", "human"),
        ("service_down", "chronyd", "host.services", "chronyd.service", "down", "degraded", "reboot"),
        ("clock_offset", "-0.4", "host.time", "node", "offset", "warning", "none"),
        ("mount_gone", "", "host.mounts", "/fsx", "missing", "degraded", "reboot"),
        ("dimm_lost", "", "host.memory", "modules", "lost", "degraded", "replace"),
        ("file_server_wait", "nvidia-smi", "host.dstate", "node", "stuck", "warning", "none"),
        ("cpu_lost", "", "host.cpu", "node", "lost", "degraded", "replace"),
        ("version_drift", "2.4", "host.manifest", "module gdrdrv", "drift", "warning", "none"),
    ),
    (
        ("disk_read_only", "", "host.disk", DISK, "read_only", "degraded", "human"),
        ("service_down", PERSISTENCED, "host.services", PERSISTENCED, "down", "warning", "none"),
    ),
)
"""Faults that are there at the same time, at most one for each check."""
CASES = [(number, case) for number, wave in enumerate(WAVES) for case in wave]

Told = tuple[str, str, str, str, str]


@pytest.fixture(scope="module")
def told(node: Node) -> list[tuple[set[Told], set[tuple[str, str]]]]:
    """By wave: what was found when its faults came (check, component, code, severity, remedy), and what was cleared when they went."""
    return [_wave(node, wave) for wave in WAVES]


def _wave(node: Node, wave: tuple[Case, ...]) -> tuple[set[Told], set[tuple[str, str]]]:
    findings, clears = node.count("finding"), node.count("clear")
    for fault, value, *_wanted in wave:
        node.inject(fault, value)
    node.wait_for("finding", {(case[2], case[3]) for case in wave}, findings)
    time.sleep(1.5)  # a check that mistakes the fault for its own reports by now
    found = {
        (item["check"], item["component"], item["code"], item["severity"], item["remedy"])
        for item in node.controller.items("finding")[findings:]
    }
    for fault, *_ in wave:
        node.heal(fault)
    node.wait_for("clear", {(case[2], case[3]) for case in wave}, clears)
    return found, {(item["check"], item["component"]) for item in node.controller.items("clear")[clears:]}


def test_every_fault_of_the_host_has_a_case() -> None:
    assert {fault.name for fault in FAULTS} == {case[0] for _wave, case in CASES}


@pytest.mark.parametrize(("wave", "case"), CASES, ids=[f"{case[0]}-{case[3]}" for _wave, case in CASES])
def test_a_fault_is_told_as_it_is_and_cleared(
    told: list[tuple[set[Told], set[tuple[str, str]]]], wave: int, case: Case
) -> None:
    _fault, _value, *wanted = case
    found, cleared = told[wave]
    assert {each for each in found if each[0] == wanted[0]} == {tuple(wanted)}
    assert (wanted[0], wanted[1]) in cleared


def test_no_check_takes_the_fault_of_another_for_its_own(told: list[tuple[set[Told], set[tuple[str, str]]]]) -> None:
    for (found, _cleared), wave in zip(told, WAVES, strict=True):
        assert {each[0] for each in found} == {case[2] for case in wave}


def test_near_misses_stay_silent(node: Node, told: list[tuple[set[Told], set[tuple[str, str]]]]) -> None:
    """One sample with nvidia-smi in D, busy readers, zombies that are called munged, numbers just below their limits."""
    assert told
    findings = node.count("finding")
    node.files.write("proc/sys/fs/file-nr", "799000\t0\t1000000\n")
    node.files.threads(719_000)
    node.files.memory(257 * 1024)
    node.files.clock(offset_s=0.09, max_error_s=4.9)
    node.files.processes(range(9000, 9999), "munged", "Z")
    node.files.process(4242, "nvidia-smi", "D")
    for look in range(16):
        node.files.process(4343, "python", "D", switches=look)
        time.sleep(0.25)
        if look == 2:  # one or two samples; five are a finding
            node.files.process(4242, "nvidia-smi", "S")
    assert node.controller.items("finding")[findings:] == []
