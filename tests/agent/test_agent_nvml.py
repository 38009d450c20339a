"""The real agent with the emulated NVML: lost and found GPUs, a hang, an Xid reported by two sources, validation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.practice.nvml import state
from support.agent_bench import FakeController, Folder
from support.emulated_nvml import library
from support.gpu_node import GpuNode

pytestmark = pytest.mark.slow


@pytest.fixture
def node(folder: Folder, controller: FakeController) -> Iterator[GpuNode]:
    node = GpuNode(folder, controller, library(), gpus=2)
    yield node
    node.close()


def test_a_lost_gpu_keeps_its_name_and_is_cleared_when_it_is_back(node: GpuNode) -> None:
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


def test_an_xid_of_the_kernel_log_and_of_nvml_is_one_finding(node: GpuNode) -> None:
    pci = str(node.gpus[0]["pci"])[:-2]
    node.folder.log(f"NVRM: Xid (PCI:{pci}): 95, pid=1, name=python, uncontained")
    state.add_xid(node.state, state.index_of_minor(state.read(node.state), 0), 95)
    state.add_xid(node.state, state.index_of_minor(state.read(node.state), 1), 48)
    node.wait_for("finding", "gpu.xid", node.uuids[1])
    node.wait_for("finding", "gpu.xid", node.uuids[0])
    assert sorted(node.findings("gpu.xid")) == sorted([("95", node.uuids[0]), ("48", node.uuids[1])])


@pytest.mark.soak
def test_a_hanging_nvml_is_a_finding_after_three_misses_and_the_kernel_log_goes_on_meanwhile(node: GpuNode) -> None:
    state.set_hang(node.state, True)
    pci = str(node.gpus[0]["pci"])[:-2]
    node.folder.log(f"NVRM: Xid (PCI:{pci}): 119, pid=1, name=python, Timeout waiting for RPC from GSP")
    node.wait_for("finding", "gpu.xid", node.uuids[0])
    assert node.findings("gpu.nvml") == []
    beats = len(node.controller.heartbeats)
    node.wait_for("finding", "gpu.nvml", "node")
    assert node.findings("gpu.nvml") == [("hang", "node")]
    assert len(node.controller.heartbeats) > beats


def test_validation_asks_afresh_and_names_the_gpus(node: GpuNode) -> None:
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
