"""The real agent with the emulated NVML: lost and found GPUs, a hang, an Xid told by two sources, validation."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.practice.nvml import state
from holdfast.practice.nvml.build import environment
from support.agent_bench import FakeController, Folder
from support.emulated_nvml import library

pytestmark = pytest.mark.slow

GPUS = 2


class Node:
    """A running agent on a node with emulated GPUs."""

    def __init__(self, folder: Folder, controller: FakeController, library: Path) -> None:
        self.folder = folder
        self.controller = controller
        self.state = folder.path / "nvml.ini"
        state.write(self.state, state.default_state("n1", GPUS, 0))
        env = "\n".join(f'{key} = "{value}"' for key, value in environment(library, self.state).items())
        folder.write_config(
            f'controllers = ["{controller.url}"]\ngpu_count = {GPUS}\nnvml_library = "{library}"\nnvml_deadline_s = 1.5\n'
            'disabled_checks = ["host.slurmd"]\n'
            f'[intervals]\n"gpu.count" = 0.5\n[nvml_env]\n{env}'
        )
        self.process: subprocess.Popen[bytes] = folder.start()
        controller.wait(lambda: bool(controller.items("inventory")))
        self.gpus = {int(gpu["minor"]): gpu for gpu in controller.items("inventory")[0]["gpus"].values()}
        self.uuids = {int(gpu["minor"]): uuid for uuid, gpu in controller.items("inventory")[0]["gpus"].items()}

    def findings(self, check: str) -> list[tuple[str, str]]:
        return [
            (item["code"], item["component"]) for item in self.controller.items("finding") if item["check"] == check
        ]

    def wait_for(self, kind: str, check: str, component: str) -> None:
        def came() -> bool:
            return any((i["check"], i["component"]) == (check, component) for i in self.controller.items(kind))

        self.controller.wait(came)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert "Traceback" not in self.folder.agent_log


@pytest.fixture
def node(folder: Folder, controller: FakeController) -> Iterator[Node]:
    node = Node(folder, controller, library())
    yield node
    node.close()


def test_a_lost_gpu_keeps_its_name_and_is_cleared_when_it_is_back(node: Node) -> None:
    node.controller.wait(lambda: bool(node.controller.heartbeats and node.controller.heartbeats[-1]["all_ok"]))
    state.lose_gpu(node.state, state.index_of_minor(state.read(node.state), 1))
    node.wait_for("finding", "gpu.count", node.uuids[1])
    (found,) = [item for item in node.controller.items("finding") if item["check"] == "gpu.count"]
    assert (found["gpu_minor"], found["sticky"], found["severity"]) == (1, True, "fatal")
    node.controller.wait(lambda: "gpu.count" in node.controller.heartbeats[-1]["failing"])

    node.process.kill()
    node.process.wait()
    state.reboot(node.state)
    node.process = node.folder.start()
    node.wait_for("clear", "gpu.count", node.uuids[1])


def test_an_xid_of_the_kernel_log_and_of_nvml_is_one_finding(node: Node) -> None:
    pci = str(node.gpus[0]["pci"])[:-2]
    node.folder.log(f"NVRM: Xid (PCI:{pci}): 95, pid=1, name=python, uncontained")
    state.add_xid(node.state, state.index_of_minor(state.read(node.state), 0), 95)
    state.add_xid(node.state, state.index_of_minor(state.read(node.state), 1), 48)
    node.wait_for("finding", "gpu.xid", node.uuids[1])
    node.wait_for("finding", "gpu.xid", node.uuids[0])
    assert sorted(node.findings("gpu.xid")) == sorted([("95", node.uuids[0]), ("48", node.uuids[1])])


@pytest.mark.soak
def test_a_hanging_nvml_is_a_finding_after_three_misses_and_the_kernel_log_goes_on_meanwhile(node: Node) -> None:
    state.set_hang(node.state, True)
    pci = str(node.gpus[0]["pci"])[:-2]
    node.folder.log(f"NVRM: Xid (PCI:{pci}): 119, pid=1, name=python, Timeout waiting for RPC from GSP")
    node.wait_for("finding", "gpu.xid", node.uuids[0])
    assert node.findings("gpu.nvml") == []
    beats = len(node.controller.heartbeats)
    node.wait_for("finding", "gpu.nvml", "node")
    assert node.findings("gpu.nvml") == [("hang", "node")]
    assert len(node.controller.heartbeats) > beats


def test_validation_asks_afresh_and_names_the_gpus(node: Node) -> None:
    def validate(number: int) -> dict[str, object]:
        order = {"id": f"v/{number}", "verb": "validate", "args": {"checks": []}, "boot_id": "boot-1", "expires_s": 30}
        node.controller.orders.clear()
        node.controller.give(order)
        node.controller.wait(lambda: len(node.controller.items("order_outcome")) >= number)
        return node.controller.items("order_outcome")[number - 1]

    good = validate(1)
    assert good["ok"], good["summary"]
    assert isinstance(good["detail"], dict)
    assert sorted(good["detail"]["gpu_uuids"]) == sorted(node.uuids.values())
    state.set_remap(node.state, 0, failed=True)
    bad = validate(2)
    assert not bad["ok"]
    assert "gpu.row_remap" in str(bad["summary"])
