"""DCGM findings through the real agent: injected into the emulated ``dcgmi``, reported by check, GPU, severity and remedy."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.faults import all_faults
from holdfast.practice.hardware import dcgm
from holdfast.practice.nvml.build import environment
from holdfast_checks.known import all_checks
from support.agent_bench import FakeController, Folder, Json
from support.emulated_nvml import library
from support.gpu_node import gpu_machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

GPU = 2
"""Minor of the faulty GPU. The node has four."""


class Node:
    """A machine whose agent asks DCGM twice a second, and its GPUs so that it knows their names."""

    def __init__(self, path: Path) -> None:
        self.controller = FakeController()
        self.folder = Folder(path, self.controller.url)
        self.machine: PracticeMachine = gpu_machine(path, 4)
        dcgm.install(self.machine.host.folder)
        self._orders = 0
        ours = ("dcgm.", "gpu.count")
        others = [name for name in all_checks() if not name.startswith(ours)]
        env = "\n".join(
            f'{key} = "{value}"' for key, value in environment(library(), self.machine.host.nvml_state).items()
        )
        self.folder.write_config(
            f'controllers = ["{self.controller.url}"]\ngpu_count = 4\nnvml_library = "{library()}"\nact_on = ["*"]\n'
            f'disabled_checks = {json.dumps(others)}\n[intervals]\n"dcgm.health" = 0.5\n'
            f'[dcgm]\ndcgmi = "{self.machine.host.folder / dcgm.COMMAND}"\nhealth_deadline_s = 3\n[nvml_env]\n{env}'
        )
        self.process = self.folder.start()
        self.controller.wait(lambda: bool(self.controller.items("inventory")))
        gpus = self.controller.items("inventory")[0]["gpus"]
        self.uuid = next(uuid for uuid, gpu in gpus.items() if gpu["minor"] == GPU)

    def inject(self, fault: str, value: str = "") -> None:
        all_faults()[fault].apply(self.machine, value, GPU)

    def heal(self) -> None:
        for name in ("dcgm_diag_fail", "dcgm_health_fail", "dcgm_hang"):
            heal = all_faults()[name].heal
            assert heal is not None
            heal(self.machine)

    def findings(self) -> list[Json]:
        return [item for item in self.controller.items("finding") if item["check"].startswith("dcgm.")]

    def validate(self, *checks: str, **args: bool) -> Json:
        """Order these checks, on a machine that has no slurmd, and wait for the outcome."""
        args = args or {"expect_no_job": False}
        self._orders += 1
        name = f"a/{self._orders}"
        order = {
            "id": name,
            "verb": "validate",
            "args": {"checks": list(checks), **args},
            "expires_s": 60,
            "incident": "0h3k",
        }
        self.controller.give(order)

        def outcomes() -> list[Json]:
            return [item for item in self.controller.items("order_outcome") if item["order_id"] == name]

        self.controller.wait(lambda: bool(outcomes()))
        return outcomes()[0]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.controller.close()


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("dcgm"))
    yield node
    node.close()
    assert "Traceback" not in node.folder.agent_log


@pytest.fixture
def node(one_node: Node) -> Iterator[Node]:
    yield one_node
    one_node.heal()


def test_a_healthy_dcgm_stays_silent_and_every_level_passes(node: Node) -> None:
    outcome = node.validate("dcgm.diag1", "dcgm.diag3", "dcgm.health")
    assert outcome["ok"], outcome
    assert {result["verdict"] for result in outcome["detail"]["results"]} == {"ok"}
    time.sleep(1.5)
    assert node.findings() == []


@pytest.mark.parametrize(
    ("system", "code", "severity", "remedy"),
    [
        ("memory", "80", "fatal", "replace"),
        ("nvlink", "14", "fatal", "reset_gpu"),
        ("recovery", "126", "fatal", "reboot"),
        ("inforom", "9", "degraded", "human"),
        ("pcie", "3", "degraded", "human"),
        ("thermal", "10", "warning", "none"),
    ],
)
def test_a_system_that_dcgm_calls_unhealthy(node: Node, system: str, code: str, severity: str, remedy: str) -> None:
    node.inject("dcgm_health_fail", system)
    node.controller.wait(lambda: any(item["code"] == code for item in node.findings()))
    (found,) = [item for item in node.findings() if item["code"] == code]
    assert (found["check"], found["component"], found["gpu_minor"]) == ("dcgm.health", node.uuid, GPU)
    assert (found["severity"], found["remedy"]) == (severity, remedy)
    clears = len(node.controller.items("clear"))
    node.heal()
    node.controller.wait(lambda: len(node.controller.items("clear")) > clears)


@pytest.mark.parametrize(
    ("test", "level", "code", "severity"),
    [
        ("software", "dcgm.diag1", "85", "degraded"),
        ("memory", "dcgm.diag2", "52", "fatal"),
        ("diagnostic", "dcgm.diag3", "111", "fatal"),
        ("targeted_power", "dcgm.diag3", "63", "degraded"),
    ],
)
def test_a_diagnostic_that_fails_on_one_gpu(node: Node, test: str, level: str, code: str, severity: str) -> None:
    node.inject("dcgm_diag_fail", test)
    outcome = node.validate(level)
    assert not outcome["ok"]
    bad = [result for result in outcome["detail"]["results"] if result["verdict"] not in ("ok", "skipped")]
    assert [(one["component"], one["code"], one["severity"]) for one in bad] == [(node.uuid, code, severity)]


def test_where_nobody_can_say_whether_a_job_is_there_no_active_check_is_run(node: Node) -> None:
    outcome = node.validate("dcgm.diag2", expect_no_job=True)
    assert not outcome["ok"]
    assert "no slurmd of" in outcome["summary"]


def test_a_test_of_a_higher_level_is_not_seen_by_a_lower_one(node: Node) -> None:
    node.inject("dcgm_diag_fail", "memory")
    assert node.validate("dcgm.diag1")["ok"]


def test_a_dcgm_that_hangs_is_unknown_clears_nothing_and_stops_nobody(node: Node) -> None:
    node.inject("dcgm_health_fail", "nvlink")
    known = len(node.findings())
    node.controller.wait(lambda: len(node.findings()) > known)
    node.inject("dcgm_hang")
    beats, clears = len(node.controller.heartbeats), len(node.controller.items("clear"))
    outcome = node.validate("dcgm.diag1")
    assert not outcome["ok"]
    assert "no answer within" in outcome["summary"]
    assert len(node.controller.heartbeats) - beats > 10
    assert len(node.controller.items("clear")) == clears
