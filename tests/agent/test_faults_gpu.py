"""Every class of GPU fault, injected as the practice does it, through the real agent: the right verdict, severity and remedy; what
is nearly a fault stays silent; what recovers is cleared."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.model.errors import Rejected
from holdfast.practice.faults import all_faults
from holdfast.practice.faults import gpu as gpu_faults
from holdfast.practice.nvml import state
from holdfast.practice.nvml.build import R470_LACKS
from support.agent_bench import FakeController, Folder
from support.emulated_nvml import OPTIONAL, library
from support.gpu_node import INTERVAL_S, GpuNode, gpu_machine

pytestmark = pytest.mark.slow

MINORS = (2, 0, 3, 1, 7, 6, 5, 4)
_SEEN = 4
"""Snapshots after which a missing finding will not come any more (any hysteresis but that of ``gpu.thermal`` is over)."""

Row = tuple[str, str, int, str, str, str, str, str]

FAULTS: tuple[Row, ...] = (
    # fault, value, GPU, check, component ("" for the GPU), code, severity, remedy
    ("thermal", "", 6, "gpu.thermal", "", "slowdown", "degraded", "none"),
    ("power_brake", "", 7, "gpu.power", "", "power_brake", "degraded", "none"),
    ("nvlink_down", "4", 0, "gpu.nvlink", "", "down", "degraded", "reset_gpu"),
    ("nvlink_errors", "9", 1, "gpu.nvlink_errors", "", "recoveries", "degraded", "reset_gpu"),
    ("fabric_failed", "", 2, "gpu.fabric", "", "not_ready", "degraded", "reboot"),
    ("fabric_unhealthy", "", 3, "gpu.fabric", "", "unhealthy", "degraded", "reset_gpu"),
    ("pcie_width", "", 4, "gpu.pcie", "", "width", "degraded", "reboot"),
    ("pcie_speed", "", 5, "gpu.pcie", "", "speed", "warning", "none"),
    ("pcie_replay", "", 6, "gpu.pcie_replay", "", "rate", "warning", "none"),
    ("margin", "", 7, "gpu.temperature", "", "margin", "warning", "none"),
    ("persistence_off", "", 0, "gpu.persistence", "", "off", "warning", "none"),
    ("mig_on", "", 1, "gpu.mig", "", "on", "warning", "none"),
    ("ecc_off", "", 2, "gpu.ecc_mode", "", "off", "warning", "none"),
    ("ecc", "2", 3, "gpu.ecc", "", "uncorrectable", "degraded", "reset_gpu"),
    ("ecc_corrected", "30000000", 4, "gpu.ecc_corrected", "", "storm", "warning", "none"),
    ("sram_flag", "", 5, "gpu.sram", "", "threshold", "degraded", "replace"),
    ("remap_pending", "", 6, "gpu.row_remap", "", "pending", "degraded", "reset_gpu"),
    ("remap_failed", "", 7, "gpu.row_remap", "", "failed", "fatal", "replace"),
    ("bank_low", "", 0, "gpu.memory_banks", "", "low", "warning", "none"),
    ("retired_pages", "", 1, "gpu.retired_pages", "", "count", "degraded", "replace"),
    ("repair_pending", "", 2, "gpu.repair", "", "pending", "degraded", "reboot"),
    ("unrepairable_memory", "", 3, "gpu.repair", "", "unrepairable", "degraded", "replace"),
    ("recovery_action", "1", 4, "gpu.recovery_action", "", "1", "fatal", "reset_gpu"),
    ("recovery_action", "6", 5, "gpu.recovery_action", "", "6", "fatal", "reboot"),
    ("recovery_action", "9", 6, "gpu.recovery_action", "", "9", "warning", "none"),
    ("vbios_mix", "", 0, "gpu.mix", "node", "vbios", "warning", "none"),
    ("leftover_process", "", 3, "gpu.leftover", "", "process", "warning", "none"),
    ("gpu_refused", "999", 2, "gpu.count", "", "refused", "degraded", "reboot"),
    ("lost", "", 5, "gpu.count", "", "lost", "fatal", "reboot"),
)
LAST = {"gpu_refused", "lost"}
"""They hide their GPU from the other checks."""
OF_THE_LIBRARY = {"driver_mismatch", "nvml_error", "nvml_count"}
HEALED = sorted({(row[0], row[2], row[3], row[4]) for row in FAULTS if all_faults()[row[0]].heal is not None})


@contextmanager
def gpu_node(path: Path, gpus: int = 8, without: tuple[str, ...] = ()) -> Iterator[GpuNode]:
    controller = FakeController()
    own = path / "lib" / "libnvidia-ml.so.1"
    own.parent.mkdir()
    shutil.copy(library(without), own)
    try:
        minors = MINORS if gpus == len(MINORS) else range(gpus)
        node = GpuNode(Folder(path, controller.url), controller, own, gpus=gpus, minors=minors)
        try:
            yield node
        finally:
            all_faults()["leftover_process"].heal(node.machine)  # type: ignore[misc]
            node.close()
    finally:
        controller.close()


def let_pass(node: GpuNode, snapshots: int = _SEEN) -> None:
    """Wait for this many more snapshots, by the agent's own heartbeats."""
    beats = len(node.controller.heartbeats) + round(snapshots * INTERVAL_S / 0.2) + 1
    node.controller.wait(lambda: len(node.controller.heartbeats) >= beats)


def nearly(node: GpuNode) -> None:
    """On every GPU something that looks like a fault and is none."""
    values: tuple[dict[str, int | str], ...] = (
        {"pcie_gen": 1, "utilisation_percent": 0},  # an idle link saves power
        {"temperature_c": 84},  # hot, with the margin that is allowed
        {"ecc_corrected_volatile": 19_999_000, "ecc_corrected_aggregate": 1 << 40},
        {"ecc_uncorrected_aggregate": 7},  # from before this boot
        {"remap_corrected": 3, "remap_uncorrected": 2},  # remapped, nothing pending
        {"clock_event_reasons": 0x4 | 0x1 | 0x2},  # power cap, idle, application clocks
        {
            "retired_pages": 63,
            "nvlink_recoveries": "3:505",
            "nvlink_crc": "1:9",
        },  # from before; a part that remaps rows
        {"fabric_health": 0, "pcie_replays": 1 << 20},  # a driver without a health mask; a count from before
    )
    for index, changed in enumerate(values):
        state.change_gpu(node.state, index, **changed)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuNode]:
    """A node with one fault of every class, on eight GPUs."""
    with gpu_node(tmp_path_factory.mktemp("faulty")) as node:
        let_pass(node)
        assert node.controller.items("finding") == []
        for fault, value, gpu, *_rest in FAULTS:
            if fault not in LAST:
                node.inject(fault, value, gpu)
        for fault, _value, gpu, check, component, code, *_rest in FAULTS:
            if fault not in LAST and check not in ("gpu.thermal", "gpu.power"):
                node.wait_for_code(check, component or node.uuids[gpu], code)
        for check, gpu, code in (("gpu.thermal", 6, "slowdown"), ("gpu.power", 7, "power_brake")):
            node.wait_for_code(check, node.uuids[gpu], code)
        for fault, value, gpu, *_rest in FAULTS:
            if fault in LAST:
                node.inject(fault, value, gpu)
        yield node


def test_what_is_nearly_a_fault_is_none(tmp_path: Path) -> None:
    with gpu_node(tmp_path) as node:
        node.process.kill()
        node.process.wait()
        nearly(node)
        node.process = node.folder.start()
        let_pass(node, 6)
        node.controller.wait(lambda: node.controller.heartbeats[-1]["all_ok"] is True)
        assert node.controller.items("finding") == []


@pytest.mark.parametrize("row", FAULTS, ids=[f"{row[0]}-{row[1]}-{row[3]}" for row in FAULTS])
def test_a_fault_is_found(faulty: GpuNode, row: Row) -> None:
    _fault, _value, gpu, check, component, code, severity, remedy = row
    found = faulty.wait_for_code(check, component or faulty.uuids[gpu], code)
    assert (found["severity"], found["remedy"]) == (severity, remedy)
    assert found["verdict"] == ("failed" if severity == "fatal" else "degraded")
    if not component:
        assert (found["gpu_minor"], found["gpu_uuid"]) == (gpu, faulty.uuids[gpu])
        assert found["pci"] == faulty.gpus[gpu]["pci"]


def test_there_is_no_finding_beyond_those(faulty: GpuNode) -> None:
    """Faults that cause a second finding: the first errors of a link, a storm's count, the lost GPU's node."""
    let_pass(faulty)
    wanted = {(row[3], row[4] or faulty.uuids[row[2]], row[5]) for row in FAULTS}
    along = {
        ("gpu.memory_banks", faulty.uuids[7], "none"),  # a failed remap is a bank without spare rows
        ("gpu.ecc_corrected", faulty.uuids[4], "count"),
    }
    found = {(item["check"], item["component"], item["code"]) for item in faulty.controller.items("finding")}
    assert found - along == wanted


def test_what_heals_is_cleared(faulty: GpuNode) -> None:
    for row in FAULTS:  # all of them first: the agent must still see them
        faulty.wait_for_code(row[3], row[4] or faulty.uuids[row[2]], row[5])
    for fault in {fault for fault, *_rest in HEALED}:
        faulty.heal(fault)
    lost = next(row[2] for row in FAULTS if row[0] == "lost")
    for _fault, gpu, check, component in HEALED:
        if gpu != lost and check not in ("gpu.thermal", "gpu.power"):  # these two take minutes to count
            faulty.wait_for("clear", check, component or faulty.uuids[gpu])


def test_every_fault_of_a_gpu_is_tried_here() -> None:
    assert {fault.name for fault in gpu_faults.FAULTS} == {row[0] for row in FAULTS} | OF_THE_LIBRARY


@pytest.mark.parametrize(
    ("fault", "value"),
    [("nvlink_down", "18"), ("nvlink_down", "x"), ("recovery_action", "-1"), ("ecc_corrected", "0"), ("lost", "")],
)
def test_a_value_that_makes_no_sense_is_rejected(tmp_path: Path, fault: str, value: str) -> None:
    machine = gpu_machine(tmp_path, 2)
    before = machine.host.nvml_state.read_text()
    with pytest.raises(Rejected):
        all_faults()[fault].apply(machine, value, 7 if fault == "lost" else 0)
    assert machine.host.nvml_state.read_text() == before


@pytest.fixture
def small(tmp_path: Path) -> Iterator[GpuNode]:
    with gpu_node(tmp_path, gpus=2) as node:
        yield node


@pytest.mark.parametrize(
    ("code", "wanted", "severity", "remedy"),
    [
        (9, "driver", "degraded", "reboot"),
        (18, "mismatch", "degraded", "reboot"),
        (17, "system", "degraded", "reboot"),
        (999, "unknown", "degraded", "reboot"),
        (10, "failing", "warning", "none"),
    ],
)
def test_an_error_of_the_library_is_a_finding_and_heals(
    small: GpuNode, code: int, wanted: str, severity: str, remedy: str
) -> None:
    small.inject("driver_mismatch" if code == 18 else "nvml_error", str(code))
    found = small.wait_for_code("gpu.nvml", "node", wanted)
    assert (found["severity"], found["remedy"]) == (severity, remedy)
    beats = len(small.controller.heartbeats)
    let_pass(small)
    assert len(small.controller.heartbeats) > beats
    assert {item["check"] for item in small.controller.items("finding")} == {"gpu.nvml"}
    small.heal("nvml_error")
    small.wait_for("clear", "gpu.nvml", "node")


@pytest.mark.parametrize("lie", ["1", "3"])
def test_a_count_that_lies(small: GpuNode, lie: str) -> None:
    """Too few: a known GPU is missing. Too many: the extra one is unknown, and all expected ones are present."""
    small.inject("nvml_count", lie)
    if lie == "1":
        index_1 = state.read(small.state).gpus[1].minor
        found = small.wait_for_code("gpu.count", small.uuids[index_1], "lost")
        assert (found["severity"], found["remedy"]) == ("fatal", "reboot")
        small.heal("nvml_count")
        small.wait_for("clear", "gpu.count", small.uuids[index_1])
    else:
        let_pass(small)
        assert small.controller.items("finding") == []


def test_a_library_that_vanishes_and_comes_back(small: GpuNode) -> None:
    """The process that has it mapped continues; a new one finds none, and that is the finding."""
    away = small.library.with_suffix(".away")
    small.library.rename(away)
    try:
        let_pass(small)
        assert small.controller.items("finding") == []
        small.kill_nvml_child(signal.SIGSEGV)
        found = small.wait_for_code("gpu.nvml", "node", "library")
        assert (found["severity"], found["remedy"]) == ("degraded", "human")
    finally:
        away.rename(small.library)
    small.wait_for("clear", "gpu.nvml", "node")


def test_a_busy_node_with_the_same_process_has_no_leftover(small: GpuNode) -> None:
    (small.spool / "n1_4711.0").touch()
    small.inject("leftover_process", gpu=1)
    let_pass(small)
    assert small.findings("gpu.leftover") == []
    (small.spool / "n1_4711.0").unlink()
    small.wait_for_code("gpu.leftover", small.uuids[1], "process")
    small.heal("leftover_process")
    small.wait_for("clear", "gpu.leftover", small.uuids[1])


@pytest.mark.parametrize("without", [R470_LACKS, OPTIONAL], ids=["R470", "nothing-optional"])
def test_a_driver_that_lacks_calls_is_healthy(tmp_path: Path, without: tuple[str, ...]) -> None:
    """Values that cannot be read are skipped; the others still lead to findings."""
    with gpu_node(tmp_path, gpus=2, without=without) as node:
        let_pass(node)
        node.controller.wait(lambda: node.controller.heartbeats[-1]["all_ok"] is True)
        assert node.controller.items("finding") == []
        node.inject("lost", gpu=1)
        node.wait_for_code("gpu.count", node.uuids[1], "lost")
