"""The judges of the NVML and host checks, as tables; and what a runner does with checks that fail."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast_checks.checks import gpu_count, gpu_nvml, host_disk, host_slurmd
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Check, Context, NotApplicable, NotGathered
from holdfast_checks.result import NotBad, Remedy, Result, Severity, Verdict
from holdfast_checks.runner import run, run_with_deadline
from holdfast_checks.settings import CheckSettings
from holdfast_checks.snapshot import GpuSnapshot, NvmlFailure, NvmlReading, Snapshot

Short = tuple[str, str, str | None, str]


def ref(index: int) -> GpuRef:
    return GpuRef(uuid=f"GPU-{index}", minor=index, pci=f"0000:{index:02x}:00.0", index=index)


def gpu(index: int = 0, **readings: int | NvmlReading) -> GpuSnapshot:
    zero = dict.fromkeys(
        ("ecc_uncorrected_volatile", "remap_pending", "remap_failed", "recovery_action", "clock_event_reasons"),
        NvmlReading(0),
    )
    given = {name: value if isinstance(value, NvmlReading) else NvmlReading(value) for name, value in readings.items()}
    return GpuSnapshot(ref(index), **{**zero, **given})  # type: ignore[arg-type]


def snapshot(*gpus: GpuSnapshot) -> Snapshot:
    return Snapshot("580.95.05", "13.580", len(gpus), gpus, 1.0)


def short(result: Result) -> Short:
    return (result.verdict, result.code, result.severity, result.remedy)


OK: Short = ("ok", "", None, "none")
UNSUPPORTED: Short = ("skipped", "", None, "none")
NOT_READ: Short = ("unknown", "", None, "none")


@pytest.mark.parametrize(
    ("check", "readings", "wanted"),
    [
        ("gpu.recovery_action", {}, OK),
        ("gpu.recovery_action", {"recovery_action": 1}, ("failed", "1", "fatal", "reset_gpu")),
        ("gpu.recovery_action", {"recovery_action": 2}, ("failed", "2", "fatal", "reboot")),
        ("gpu.recovery_action", {"recovery_action": 4}, ("degraded", "4", "degraded", "reset_gpu")),
        ("gpu.recovery_action", {"recovery_action": 7}, ("failed", "7", "fatal", "reboot")),
        ("gpu.recovery_action", {"recovery_action": 8}, ("degraded", "8", "warning", "none")),
        ("gpu.recovery_action", {"recovery_action": NvmlReading(unsupported=True)}, UNSUPPORTED),
        ("gpu.recovery_action", {"recovery_action": NvmlReading(error="x (999)")}, NOT_READ),
        ("gpu.ecc", {}, OK),
        ("gpu.ecc", {"ecc_uncorrected_volatile": 1}, ("degraded", "uncorrectable", "degraded", "reset_gpu")),
        ("gpu.ecc", {"ecc_uncorrected_volatile": NvmlReading(unsupported=True)}, UNSUPPORTED),
        ("gpu.ecc", {"ecc_uncorrected_volatile": NvmlReading()}, NOT_READ),
        ("gpu.row_remap", {}, OK),
        ("gpu.row_remap", {"remap_pending": 1}, ("degraded", "pending", "degraded", "reset_gpu")),
        ("gpu.row_remap", {"remap_failed": 1}, ("failed", "failed", "fatal", "replace")),
        ("gpu.row_remap", {"remap_pending": 1, "remap_failed": 1}, ("failed", "failed", "fatal", "replace")),
        ("gpu.row_remap", {"remap_pending": NvmlReading(unsupported=True)}, UNSUPPORTED),
        ("gpu.row_remap", {"remap_failed": NvmlReading(error="x")}, NOT_READ),
        ("gpu.row_remap", {"remap_uncorrected": 5}, OK),
        ("gpu.thermal", {"clock_event_reasons": 0x5}, OK),
        ("gpu.thermal", {"clock_event_reasons": 0x40}, ("degraded", "slowdown", "degraded", "none")),
        ("gpu.thermal", {"clock_event_reasons": 0x48}, ("degraded", "slowdown", "degraded", "none")),
        ("gpu.thermal", {"clock_event_reasons": 0x88}, OK),
        ("gpu.thermal", {"clock_event_reasons": 0xC8}, ("degraded", "slowdown", "degraded", "none")),
        ("gpu.power", {"clock_event_reasons": 0x88}, ("degraded", "power_brake", "degraded", "none")),
        ("gpu.power", {"clock_event_reasons": 0x4C}, OK),
        ("gpu.power", {"clock_event_reasons": NvmlReading(error="x")}, NOT_READ),
        ("gpu.thermal", {"clock_event_reasons": 0x20}, ("degraded", "warm", "warning", "none")),
        ("gpu.thermal", {"clock_event_reasons": NvmlReading(unsupported=True)}, UNSUPPORTED),
    ],
)
def test_per_gpu(check: str, readings: dict[str, int | NvmlReading], wanted: Short) -> None:
    good, judged = all_checks()[check].judge(snapshot(gpu(0), gpu(1, **readings)))
    assert short(good) == OK
    assert short(judged) == wanted
    assert (judged.component, judged.gpu_minor, judged.pci) == ("GPU-1", 1, "0000:01:00.0")
    assert judged.sticky


@pytest.mark.parametrize("check", ["gpu.recovery_action", "gpu.ecc", "gpu.row_remap", "gpu.thermal"])
def test_a_lost_gpu_is_unknown_to_the_other_checks(check: str) -> None:
    (judged,) = all_checks()[check].judge(snapshot(GpuSnapshot(ref(0), lost=True)))
    assert short(judged) == NOT_READ


LOST: Short = ("failed", "lost", "fatal", "reboot")
FOUR = GpuInventory(tuple(ref(index) for index in range(4)))


@pytest.mark.parametrize(
    ("gpus", "inventory", "expected", "wanted"),
    [
        ([0, 1, 2, 3], FOUR, None, {}),
        ([0, 1, 2, 3], GpuInventory(), 4, {}),
        ([0, 1, 2], FOUR, None, {"GPU-3": LOST}),
        ([0, 1, 2], FOUR, 4, {"GPU-3": LOST}),
        ([0, 1, 2], GpuInventory(), 4, {"node": ("failed", "count", "fatal", "reboot")}),
        ([0, 1, 2], GpuInventory(), None, {}),
        ([0, 1, -2, 3], FOUR, 4, {"GPU-2": LOST}),
        ([0, 1, -2, 3], GpuInventory(), 4, {"node": ("failed", "count", "fatal", "reboot")}),
        ([0, 1, -2, 3], GpuInventory(), None, {"node": ("failed", "count", "fatal", "reboot")}),
        ([0, 1, -2], FOUR, 4, {"GPU-2": LOST, "GPU-3": LOST}),
        ([-1, -2], FOUR, None, {f"GPU-{index}": LOST for index in range(4)}),
        ([0, 1, 2, 3, 4], FOUR, 4, {}),
    ],
)
def test_count(gpus: list[int], inventory: GpuInventory, expected: int | None, wanted: dict[str, Short]) -> None:
    """Negative numbers are lost GPUs, of which NVML reports only the index."""
    seen = snapshot(*(gpu(i) if i >= 0 else GpuSnapshot(GpuRef(index=-i), lost=True) for i in gpus))
    results = gpu_count.judge(gpu_count.GpuCountFacts(seen, inventory, expected))
    assert {result.component: short(result) for result in results if result.bad} == wanted
    assert {r.component for r in results if r.verdict is Verdict.OK} >= {f"GPU-{i}" for i in gpus if i >= 0}


def test_inventory_learns_and_forgets_only_another_machine() -> None:
    inventory = GpuInventory().learn(snapshot(gpu(0), gpu(1)))
    lost = inventory.learn(snapshot(gpu(0), GpuSnapshot(GpuRef(index=1), lost=True)))
    assert lost == inventory
    assert [missing.uuid for missing in lost.missing(snapshot(gpu(0)))] == ["GPU-1"]
    assert inventory.learn(snapshot()) == inventory
    assert inventory.learn(snapshot(gpu(7))).gpus == (ref(7),)
    assert inventory.learn(snapshot(gpu(0), GpuSnapshot(GpuRef(uuid="GPU-1", index=1)))) == inventory
    assert GpuInventory.from_wire(inventory.to_wire()) == inventory
    assert inventory.by_pci() == {"0000:00:00.0": ref(0), "0000:01:00.0": ref(1)}


@pytest.mark.parametrize(
    ("answer", "gpus_expected", "wanted"),
    [
        (snapshot(gpu(0)), True, OK),
        (NvmlFailure("slow", hang=True, misses=1), True, NOT_READ),
        (NvmlFailure("slow", hang=True, misses=2), True, NOT_READ),
        (NvmlFailure("slow", hang=True, misses=3), True, ("degraded", "hang", "degraded", "reboot")),
        (NvmlFailure("mismatch", code=18), True, ("degraded", "mismatch", "degraded", "reboot")),
        (NvmlFailure("not loaded", code=9), True, ("degraded", "driver", "degraded", "reboot")),
        (NvmlFailure("not loaded", code=9), False, NOT_READ),
        (NvmlFailure("no library", code=12), True, ("degraded", "library", "degraded", "human")),
        (NvmlFailure("ended with status -11"), True, NOT_READ),
        (NvmlFailure("unknown", code=999), True, NOT_READ),
    ],
)
def test_nvml(answer: Snapshot | NvmlFailure, gpus_expected: bool, wanted: Short) -> None:
    (result,) = gpu_nvml.judge(gpu_nvml.GpuNvmlFacts(answer, gpus_expected))
    assert short(result) == wanted


@pytest.mark.parametrize("check", ["gpu.count", "gpu.ecc", "gpu.recovery_action", "gpu.row_remap", "gpu.thermal"])
@pytest.mark.parametrize(
    ("context", "verdict"),
    [
        (Context(), Verdict.UNKNOWN),
        (Context(nvml=NvmlFailure("NVML did not answer", hang=True)), Verdict.UNKNOWN),
        (Context(nvml=NvmlFailure("not found", code=12)), Verdict.SKIPPED),
        (Context(CheckSettings(expected_gpus=8), nvml=NvmlFailure("not found", code=12)), Verdict.UNKNOWN),
    ],
)
def test_no_snapshot_is_never_bad_news(check: str, context: Context, verdict: Verdict) -> None:
    (result,) = run(all_checks()[check], context)
    assert result.verdict is verdict
    assert result.summary


@pytest.mark.parametrize(
    ("volume", "wanted"),
    [
        ({"used_percent": 10.0}, OK),
        ({"used_percent": 89.9}, OK),
        ({"used_percent": 90.0}, ("degraded", "filling", "warning", "none")),
        ({"used_percent": 95.0}, ("failed", "full", "degraded", "human")),
        ({"inodes_used_percent": 96.0}, ("failed", "full", "degraded", "human")),
        ({"read_only": True}, ("failed", "read_only", "degraded", "human")),
        ({"skipped": "nfs may hang the agent"}, UNSUPPORTED),
    ],
)
def test_disk(volume: dict[str, Any], wanted: Short) -> None:
    facts = host_disk.HostDiskFacts((replace(host_disk.Volume("/data", 0, 0, read_only=False), **volume),))
    (result,) = host_disk.judge(facts)
    assert short(result) == wanted
    assert result.component == "/data"


def test_disk_asks_local_file_systems_once_and_network_ones_never(tmp_path: Path) -> None:
    mounts = tmp_path / "proc" / "self" / "mounts"
    mounts.parent.mkdir(parents=True)
    mounts.write_text("/dev/root / ext4 rw 0 0\nserver:/x /shared nfs4 rw 0 0\ns3 /bucket\\040x fuse.s3 rw 0 0\n")
    paths = (str(tmp_path), str(tmp_path.parent), "/shared/deep", "/bucket x", str(tmp_path / "absent"))
    facts = host_disk.gather(Context(CheckSettings(disk_paths=paths, proc=tmp_path / "proc")))
    assert [(v.path, v.skipped != "") for v in facts.volumes] == [
        (str(tmp_path), False),
        ("/shared/deep", True),
        ("/bucket x", True),
    ]
    assert 0 < facts.volumes[0].used_percent < 100


@pytest.fixture
def fake_proc(tmp_path: Path) -> Callable[..., Path]:
    def process(pid: int, name: str, *args: str, state: str = "S") -> Path:
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} ({name}) {state} 1 1 1")
        (folder / "cmdline").write_bytes("\0".join((f"/usr/sbin/{name}", *args, "")).encode())
        return tmp_path / "proc"

    return process


@pytest.mark.parametrize(
    ("node", "pid_file", "wanted"),
    [
        ("n1", None, 11),
        ("n2", None, 12),
        ("n3", None, None),
        ("n4", None, None),
        ("", None, 11),
        ("n2", "12", 12),
        ("n1", "12", 11),
        ("n4", "14", None),
        ("", "15", 11),
        ("", "absent", 11),
    ],
)
def test_slurmd(
    fake_proc: Callable[..., Path], tmp_path: Path, node: str, pid_file: str | None, wanted: int | None
) -> None:
    fake_proc(11, "slurmd", "-D", "-N", "n1")
    fake_proc(12, "slurmd", "-Nn2")
    fake_proc(14, "slurmd", "-N", "n4", state="Z")
    proc = fake_proc(15, "slurmstepd")
    path = tmp_path / "slurmd.pid" if pid_file else None
    if path and pid_file != "absent":
        path.write_text(f"{pid_file}\n")
    settings = CheckSettings(slurmd_pid_file=path, slurmd_node=node, proc=proc, sysfs=tmp_path / "sys")
    facts = host_slurmd.gather(Context(settings))
    assert facts.pid == wanted
    (result,) = host_slurmd.judge(facts)
    assert short(result) == (OK if wanted else ("degraded", "down", "degraded", "reboot"))


def fake_check(gather: Callable[[Context], Any]) -> Check:
    return replace(all_checks()["host.disk"], id="test.check", gather=gather, judge=lambda facts: facts)


def raising(error: Exception) -> Callable[[Context], Any]:
    def gather(_: Context) -> Any:
        raise error

    return gather


@pytest.mark.parametrize(
    ("error", "verdict", "summary"),
    [
        (NotApplicable("no such thing"), Verdict.SKIPPED, "no such thing"),
        (NotGathered("no answer"), Verdict.UNKNOWN, "no answer"),
        (PermissionError(13, "Permission denied"), Verdict.UNKNOWN, "[Errno 13] Permission denied"),
        (ZeroDivisionError("a\nb"), Verdict.UNKNOWN, "the check itself failed: a b"),
    ],
)
def test_what_goes_wrong_is_unknown_with_its_reason(error: Exception, verdict: NotBad, summary: str) -> None:
    assert run(fake_check(raising(error)), Context()) == (Result("test.check", verdict, summary=summary),)


def test_a_check_that_hangs_is_unknown() -> None:
    (result,) = run_with_deadline(fake_check(lambda _: time.sleep(0.5)), Context(), 0.05)
    assert (result.verdict, result.summary) == (Verdict.UNKNOWN, "no answer within 0.05 s")


def test_the_registry_is_complete_and_says_where_numbers_come_from() -> None:
    checks = all_checks()
    assert {"gpu.count", "gpu.xid", "gpu.nvml", "host.disk", "host.slurmd"} <= checks.keys()
    files = [p for p in Path(gpu_count.__file__).parent.glob("*.py") if p.stem != "__init__"]
    modules = [import_module(f"holdfast_checks.checks.{file.stem}") for file in files]
    declared = [
        check for m in modules for check in (*getattr(m, "CHECKS", ()), *filter(None, [getattr(m, "CHECK", None)]))
    ]
    assert [m.__name__ for m in modules if not hasattr(m, "CHECK") and not getattr(m, "CHECKS", ())] == []
    assert sorted(check.id for check in declared) == sorted(checks)
    for check in checks.values():
        assert check.title
        assert 1 <= check.hysteresis[0] <= check.hysteresis[1]
        assert all(threshold.source for threshold in check.thresholds)
        assert check.severity is not Severity.FATAL or check.remedy is not Remedy.NONE


@pytest.mark.slow
def test_importing_the_checks_needs_only_the_standard_library() -> None:
    """The agent imports these; only the child imports the binding of NVML, so that a hang and its memory stay there."""
    program = (
        "import sys, holdfast_checks.cli, holdfast_checks.known as r\n"
        "before = set(sys.stdlib_module_names)\n"
        "r.all_checks()\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - before))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program], env=_ENV, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"__main__", "holdfast_checks"}


_ENV = {"PYTHONPATH": str(Path(gpu_count.__file__).parents[2])}
