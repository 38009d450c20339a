"""Presence of GPUs: GPUs that NVML refuses, NVML as a whole, what an instance type must have, and what a job left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_checks.catalog.instance_types import lookup, table
from holdfast_checks.checks import gpu_count, gpu_leftover, gpu_nvml, gpu_slurm
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Context, expected_gpus
from holdfast_checks.result import Verdict
from holdfast_checks.runner import Samples, run
from holdfast_checks.settings import CheckSettings, NetworkSettings
from holdfast_checks.snapshot import GpuSnapshot, NvmlFailure, Snapshot
from support.gpu_facts import OK, UNKNOWN, Short, degraded, facts, gpu, ref, short, warning


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (8, degraded("power", "human")),
        (11, degraded("irq", "reboot")),
        (14, degraded("inforom", "reboot")),
        (16, degraded("reset", "reset_gpu")),
        (17, degraded("refused", "reboot")),
        (999, degraded("refused", "reboot")),
        (10, UNKNOWN),
        (4, UNKNOWN),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_gpu_that_nvml_refuses(code: int, wanted: Short, named: bool) -> None:
    """With its name from the snapshot, or from what is known of the node."""
    known = GpuInventory((ref(0), ref(1)))
    refused = GpuSnapshot(ref(1) if named else GpuRef(index=1), failed=code)
    seen = Snapshot("580", "13", 2, (gpu(0), refused), 1.0)
    for expected in (None, 2):
        results = {r.component: short(r) for r in gpu_count.judge(gpu_count.GpuCountFacts(seen, known, expected))}
        assert results == {"GPU-0": OK, "GPU-1": wanted, "node": OK}


@pytest.mark.parametrize(
    ("at_work", "refused", "expected", "wanted"),
    [
        (2, 1, 2, OK),  # NVML counts one too many
        (2, 1, None, OK),
        (1, 1, 2, UNKNOWN),  # unknown which GPU it is, and for how long
        (0, 1, 2, ("failed", "count", "fatal", "reboot")),
    ],
)
def test_a_refused_gpu_without_a_name(at_work: int, refused: int, expected: int | None, wanted: Short) -> None:
    gpus = (*map(gpu, range(at_work)), *(GpuSnapshot(GpuRef(index=9), failed=2) for _ in range(refused)))
    seen = Snapshot("580", "13", len(gpus), gpus, 1.0)
    *_, node = gpu_count.judge(gpu_count.GpuCountFacts(seen, GpuInventory(), expected))
    assert short(node) == wanted


@pytest.mark.parametrize(
    ("failure", "wanted"),
    [
        (NvmlFailure("x", code=999, misses=2), UNKNOWN),
        (NvmlFailure("x", code=999, misses=3), degraded("unknown", "reboot")),
        (NvmlFailure("x", code=4, misses=3), degraded("permission", "human")),
        (NvmlFailure("x", code=13, misses=3), degraded("symbol", "human")),
        (NvmlFailure("x", code=15, misses=3), degraded("lost", "reboot")),
        (NvmlFailure("x", code=10, misses=3), warning("failing")),
        (NvmlFailure("x", code=77, misses=3), warning("failing")),
        (NvmlFailure("the NVML process ended with status -11", misses=3), warning("failing")),
        (NvmlFailure("x", code=18, misses=1), degraded("mismatch", "reboot")),
    ],
)
def test_failures_that_repeat(failure: NvmlFailure, wanted: Short) -> None:
    (found,) = gpu_nvml.judge(gpu_nvml.GpuNvmlFacts(failure, gpus_expected=True))
    assert short(found) == wanted
    (nobody,) = gpu_nvml.judge(gpu_nvml.GpuNvmlFacts(failure, gpus_expected=False))
    assert short(nobody) == UNKNOWN


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (CheckSettings(), None),
        (CheckSettings(expected_gpus=4, instance_type="p5.48xlarge"), 4),
        (CheckSettings(instance_type="p5.48xlarge"), 8),
        (CheckSettings(instance_type="ml.p5.4xlarge"), 1),
        (CheckSettings(instance_type="m7i.large"), None),
    ],
)
def test_how_many_gpus_are_expected(settings: CheckSettings, wanted: int | None) -> None:
    assert expected_gpus(settings) == wanted


def test_a_gpu_node_without_a_driver_is_not_taken_for_one_without_gpus() -> None:
    context = Context(CheckSettings(instance_type="p5.48xlarge"), nvml=NvmlFailure("not found", code=12))
    (result,) = run(all_checks()["gpu.nvml"], context)
    assert short(result) == degraded("library", "human")
    (result,) = run(all_checks()["gpu.count"], context)
    assert result.verdict is Verdict.UNKNOWN


def test_the_table_of_instance_types() -> None:
    rows = {name: (row.gpus, row.efa) for name, row in table().items()}
    for name, wanted in {
        "p4d.24xlarge": (8, 4),
        "p4de.24xlarge": (8, 4),
        "p5.48xlarge": (8, 32),
        "p5e.48xlarge": (8, 32),
        "p5en.48xlarge": (8, 16),
        "p6-b200.48xlarge": (8, 8),
        "g6.48xlarge": (8, 1),
    }.items():
        assert rows[name] == wanted
    assert lookup("p5.48xlarge") == lookup(" ml.p5.48xlarge")
    assert lookup("") is None
    assert all(0 < row.gpus <= 16 and 0 <= row.efa <= 32 and row.nvlinks in (0, 12, 18) for row in table().values())


@pytest.fixture
def idle(tmp_path: Path) -> Context:
    """An idle node whose GPU is used by four processes; one of them has ended."""
    for pid, name in ((10, "python"), (11, "nv-hostengine"), (12, "nvidia-cuda-mps-server")):
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "comm").write_text(f"{name[:15]}\n")
    (tmp_path / "spool").mkdir()
    node = facts(gpu(0), gpu(1, pids=(10, 11, 12, 13), process_count=4))
    network = NetworkSettings(slurmd_spool=str(tmp_path / "spool"))
    settings = CheckSettings(proc=tmp_path / "proc", sysfs=tmp_path / "sys", network=network)
    return Context(settings, nvml=node.snapshot)


def test_a_process_without_a_job_is_left_over(idle: Context) -> None:
    good, bad = run(gpu_leftover.CHECK, idle, Samples())
    assert (short(good), short(bad)) == (OK, warning("process"))
    assert bad.summary == "used by python (10) while no job is here"
    allowed = replace(idle.settings.gpu, allowed_processes=("nv", "python"))
    fine = replace(idle, settings=replace(idle.settings, gpu=allowed))
    assert [short(result) for result in run(gpu_leftover.CHECK, fine)] == [OK, OK]


def test_while_a_job_is_here_or_nobody_can_say_nothing_is_left_over(idle: Context, tmp_path: Path) -> None:
    (tmp_path / "spool" / "n1_12.0").touch()
    (result,) = run(gpu_leftover.CHECK, idle)
    assert (result.verdict, result.summary) == (Verdict.SKIPPED, "jobs are on this node")
    (tmp_path / "spool" / "n1_12.0").unlink()
    (tmp_path / "spool").rmdir()
    (result,) = run(gpu_leftover.CHECK, idle)
    assert result.verdict is Verdict.SKIPPED


@pytest.mark.parametrize(
    ("given", "shown", "known", "wanted"),
    [
        ({0, 1}, (0, 1), (), OK),
        ({0}, (0, 1), (), OK),  # a site may keep one from jobs
        ({0, 1, 2}, (0, 1), (), degraded("lacking", "human")),  # no agent has ever seen it
        ({0, 1, 2}, (0, 1), (2,), OK),  # gpu.count has it
        ({0, 1}, (0, None), (), UNKNOWN),
    ],
)
def test_a_gpu_that_slurm_has_and_nvml_lacks(
    given: set[int], shown: tuple[int | None, ...], known: tuple[int, ...], wanted: Short
) -> None:
    gpus = [gpu(index) if index is not None else GpuSnapshot(GpuRef(index=9), failed=15) for index in shown]
    seen = Snapshot("580", "13", len(gpus), tuple(gpus), 1.0)
    context = Context(nvml=seen, inventory=GpuInventory(tuple(map(ref, known))), slurm_gpus=frozenset(given))
    (result,) = gpu_slurm.judge(gpu_slurm.gather(context))
    assert short(result) == wanted
    assert ("/dev/nvidia2" in result.summary) == (wanted[1] == "lacking")


def test_what_slurm_gives_is_not_guessed() -> None:
    (result,) = run(gpu_slurm.CHECK, Context(nvml=Snapshot("580", "13", 1, (gpu(0),), 1.0)), Samples())
    assert result.verdict is Verdict.SKIPPED
