"""Active tests: their findings, the verdicts, and how a process in trouble is classified."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
import time
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_checks.active import baseline as baselines
from holdfast_checks.active import compute, efa, tcp
from holdfast_checks.active.backend import BackendUnusable, Burn, DevicePlace
from holdfast_checks.active.check import GPU_CALLS, ActiveFacts, Calls, judge
from holdfast_checks.active.learn import learn_baseline
from holdfast_checks.active.plain_backend import PlainBackend
from holdfast_checks.active.report import ActiveReport, Corruption, Figure, PlaceTrouble
from holdfast_checks.active.torch_backend import TorchBackend
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Context, Cost
from holdfast_checks.result import Remedy, Severity, Verdict
from holdfast_checks.runner import run
from holdfast_checks.settings import ActiveSettings, CheckSettings

QUICK = ActiveSettings(seconds=0.1, start_s=20, device="plain")


class BitFlips(PlainBackend):
    """The second place changes what it stores, from the second time on."""

    def __init__(self) -> None:
        super().__init__(places=3)
        self.times = 0

    def stored(self, place: DevicePlace, data: bytes) -> bytes:
        self.times += place.index == 1
        if place.index != 1 or self.times < 2:
            return data
        words = array("Q", data)
        words[4711] ^= 1 << 13
        return words.tobytes()


class WrongSums(PlainBackend):
    """The second place computes wrong: each time (``steady``), or only the second time."""

    def __init__(self, places: int, *, steady: bool) -> None:
        super().__init__(places)
        self.steady, self.times = steady, 0

    def multiplied(self, place: DevicePlace, product: list[int]) -> list[int]:
        if place.index != 1:
            return product
        self.times += 1
        wrong = self.steady or self.times == 2
        return [*product[:100], product[100] + 1, *product[101:]] if wrong else product


def test_a_memory_that_flips_one_bit_is_found_and_only_there() -> None:
    report = compute.memory(BitFlips(), 0.0, 0.9)
    assert [(one.component, one.code) for one in report.corruptions] == [("plain-1", "memory")]
    assert report.places == ("plain-0", "plain-1", "plain-2")


@pytest.mark.parametrize(("places", "steady"), [(3, False), (3, True), (2, True), (2, False)])
def test_a_place_that_computes_wrong_now_and_then_or_always_is_found_and_only_that_one(
    places: int, steady: bool
) -> None:
    report = compute.burn(WrongSums(places, steady=steady), 0.05)
    assert [(one.component, one.code) for one in report.corruptions] == [("plain-1", "arithmetic")]


def test_one_place_that_is_always_wrong_is_not_taken_for_the_truth_where_it_is_alone() -> None:
    """With PyTorch rows of the product are computed by the processor too; here only the checksum could show it."""
    backend = PlainBackend(places=1)
    report = compute.burn(backend, 0.0)
    assert not report.corruptions
    assert backend.burn(backend.places()[0], 0.0).checksum == backend.expected_checksum()


def test_bytes_that_change_on_their_way_are_found_on_both_ways() -> None:
    flips = BitFlips()
    assert [one.component for one in compute.copy(flips, 0.0).corruptions] == ["plain-1", "plain-1"]
    assert {one.component for one in compute.pair(flips, 0.0).corruptions} == {"plain-0", "plain-2"}


def test_good_places_have_figures_and_no_corruption() -> None:
    backend = PlainBackend()
    for report in (compute.burn(backend, 0.0), compute.copy(backend, 0.0), compute.pair(backend, 0.0)):
        assert not report.corruptions + report.troubles
        assert all(figure.value > 0 for figure in report.figures)
    assert {figure.name for figure in report.figures} == {"pair", "slowest_pair"}
    assert compute.pair(PlainBackend(places=1), 0.0).skipped


class OneBreaks(PlainBackend):
    """The second place raises what PyTorch raises for a broken GPU."""

    def burn(self, place: DevicePlace, seconds: float) -> Burn:
        if place.index == 1:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nmore")
        if place.index == 2:
            raise BackendUnusable("only 3 MiB of GPU memory are free")
        return super().burn(place, seconds)


def test_a_place_that_cannot_be_tested_is_trouble_and_not_corruption() -> None:
    report = compute.burn(OneBreaks(places=3), 0.0)
    assert [trouble.component for trouble in report.troubles] == ["plain-1", "plain-2"]
    assert report.troubles[0].text == "CUDA error: uncorrectable ECC error encountered more"
    assert report.places == ("plain-0",)
    assert not report.corruptions


def test_tcp_within_the_machine() -> None:
    report = tcp.loopback(0.05)
    assert report.places == ("node",)
    assert report.figures[0].value > 0.01
    assert not report.corruptions


def test_efa_without_a_device_or_a_command_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert efa.loopback(tmp_path, 1.0).skipped == "no EFA device here"
    drivers = tmp_path / "drivers"
    for name, driver in (("rdmap1s0", "efa"), ("mlx5_0", "mlx5_core"), ("rdmap0s0", "efa")):
        (drivers / driver).mkdir(parents=True, exist_ok=True)
        device = tmp_path / "class" / "infiniband" / name / "device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(drivers / driver)
    assert efa.efa_devices(tmp_path) == ["rdmap0s0", "rdmap1s0"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "fi_pingpong" in efa.loopback(tmp_path, 1.0).skipped


def test_the_bandwidth_of_fi_pingpong_is_read_by_the_name_of_its_column() -> None:
    text = (
        "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
        "1m      1k      =1k      1.9g        0.25s    8123.45     129.08       0.01\n"
    )
    assert efa.parse(text) == pytest.approx(8.12345)
    for bad in ("", "error", text.splitlines()[0]):
        with pytest.raises(ValueError, match="no result"):
            efa.parse(bad)


def facts(report: ActiveReport, **references: float) -> ActiveFacts:
    known = {name.replace("__", "."): baselines.Reference(value, "GB/s", "test") for name, value in references.items()}
    return ActiveFacts(report, known, {"GPU-0": GpuRef(uuid="GPU-0", minor=4, pci="0000:53:00.0")})


def measured(value: float, component: str = "GPU-0") -> ActiveReport:
    return ActiveReport("copy", "cuda", (component,), (Figure(component, "h2d", value, "GB/s"),))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (100.0, ("ok", "", None, "none")),
        (90.0, ("ok", "", None, "none")),
        (89.9, ("degraded", "slow_h2d", "degraded", "human")),
        (70.0, ("degraded", "slow_h2d", "degraded", "human")),
        (69.9, ("failed", "slow_h2d", "degraded", "reboot")),
        (0.0, ("failed", "slow_h2d", "degraded", "reboot")),
        (500.0, ("ok", "", None, "none")),
    ],
)
def test_a_figure_is_judged_by_its_share_of_the_baseline(
    value: float, wanted: tuple[str, str, str | None, str]
) -> None:
    (result,) = judge("active.copy", GPU_CALLS, facts(measured(value), copy__h2d=100.0))
    assert (result.verdict, result.code, result.severity, result.remedy) == wanted
    assert (result.component, result.gpu_minor) == ("GPU-0", 4)


def test_without_a_baseline_a_figure_is_evidence_and_no_more() -> None:
    (result,) = judge("active.copy", GPU_CALLS, facts(measured(0.001)))
    assert result.verdict is Verdict.OK
    assert result.evidence == {"h2d (GB/s)": 0.001}


def test_corruption_is_fatal_and_wants_other_hardware_trouble_is_unknown_and_the_rest_is_ok() -> None:
    report = ActiveReport(
        "burn",
        "cuda",
        ("GPU-0", "GPU-1"),
        (Figure("GPU-0", "burn", 600.0, "TFLOP/s"), Figure("GPU-1", "burn", 610.0, "TFLOP/s")),
        (Corruption("GPU-0", "arithmetic", "3 elements wrong"),),
        (PlaceTrouble("GPU-2", "CUDA error"), PlaceTrouble("GPU-0", "and then it broke")),
    )
    results = {result.component: result for result in judge("active.burn", GPU_CALLS, facts(report))}
    assert {name: result.verdict for name, result in results.items()} == {
        "GPU-0": Verdict.FAILED,
        "GPU-1": Verdict.OK,
        "GPU-2": Verdict.UNKNOWN,
    }
    assert (results["GPU-0"].severity, results["GPU-0"].remedy) == (Severity.FATAL, Remedy.REPLACE)


def test_a_slow_tcp_is_a_warning_and_never_acts() -> None:
    report = ActiveReport("tcp", "tcp", ("node",), (Figure("node", "loopback", 1.0, "GB/s"),))
    calls = Calls((Severity.DEGRADED, Remedy.HUMAN), (Severity.WARNING, Remedy.NONE))
    (result,) = judge("active.tcp", calls, facts(report, tcp__loopback=5.0))
    assert (result.verdict, result.severity, result.remedy) == (Verdict.FAILED, Severity.WARNING, Remedy.NONE)


def test_a_report_survives_its_wire_and_lines_before_it() -> None:
    report = ActiveReport(
        "a", "cuda", ("x",), (Figure("x", "n", 1.5, "GB/s"),), (Corruption("x", "c", "t"),), (PlaceTrouble("y", "z"),)
    )
    assert ActiveReport.load(f"warning: something\n{report.dump()}\n") == report
    for bad in (
        "",
        "no json",
        "{}",
        '{"test": "a"}',
        "[1]",
        "3",
        report.dump().replace("1.5", "1.5,").replace('"n"', '"n'),
    ):
        with pytest.raises(ValueError, match=r"no report|line 1 column"):
            ActiveReport.load(bad)


def settings(folder: Path, instance_type: str = "p5.48xlarge") -> CheckSettings:
    return CheckSettings(state_dir=folder, instance_type=instance_type, active=QUICK)


def test_a_baseline_counts_from_the_third_run_on_and_before_that_the_shipped_floor(tmp_path: Path) -> None:
    known = baselines.load(settings(tmp_path))
    floor = known.reference("copy.h2d")
    assert floor is not None
    assert floor.value == 48
    assert known.reference("burn.burn") is None
    for value in (50.0, 54.0, 52.0):
        before = known.reference("copy.h2d")
        assert before is not None
        assert before.value == 48
        known = known.with_run([measured(value)])
    learned = known.reference("copy.h2d")
    assert learned is not None
    assert (learned.value, learned.spread, learned.source) == (52.0, 2.0, "learned from 3 runs")
    other = baselines.load(settings(tmp_path, "g6.48xlarge")).reference("copy.h2d")
    assert other is not None
    assert other.value == 4


def test_what_was_normal_when_it_was_learned_is_normal_now() -> None:
    noisy = baselines.Reference(10.0, "GB/s", "learned", spread=1.0)
    assert baselines.share(6.1, noisy) == 1.0
    assert baselines.share(5.9, noisy) == pytest.approx(0.59)
    assert baselines.share(6.1, replace(noisy, spread=0.1)) == pytest.approx(0.61)
    assert baselines.share(1.0, baselines.Reference(0.0, "GB/s", "x")) == 1.0


def test_a_run_with_corruption_or_trouble_teaches_nothing() -> None:
    bad = replace(measured(1.0), corruptions=(Corruption("GPU-0", "copy", "x"),))
    hurt = replace(measured(1.0), troubles=(PlaceTrouble("GPU-1", "x"),))
    memory = ActiveReport("memory", "cuda", ("GPU-0",), (Figure("GPU-0", "tested", 70.0, "GB"),))
    assert baselines.Baseline("t").with_run([bad, hurt, memory]).values == {}


def test_a_baseline_survives_its_file_beside_other_types_and_a_broken_file_compares_nothing(tmp_path: Path) -> None:
    for instance_type in ("p5.48xlarge", "p4d.24xlarge"):
        known = baselines.load(settings(tmp_path, instance_type)).with_run([measured(5.0)])
        assert baselines.save(settings(tmp_path, instance_type), known) == tmp_path / "baseline.json"
    assert set(json.loads((tmp_path / "baseline.json").read_text())["types"]) == {"p5.48xlarge", "p4d.24xlarge"}
    assert baselines.load(settings(tmp_path)).values == {"copy.h2d": (5.0,)}
    for text in ("", "{", "[]", '{"version": 2, "types": {}}', '{"version": 1, "types": {"p5.48xlarge": {"a": 3}}}'):
        (tmp_path / "baseline.json").write_text(text)
        with pytest.raises(baselines.BadBaseline):
            baselines.load(settings(tmp_path))


def test_every_floor_that_is_shipped_has_a_unit_and_a_source() -> None:
    for floors in baselines._floors().values():
        assert all(value > 0 and unit == "GB/s" and source for value, unit, source in floors.values())


@pytest.mark.slow
def test_active_checks_never_run_beside_a_job_and_the_agent_never_imports_pytorch() -> None:
    names = [name for name in all_checks() if name.startswith("active.")]
    assert names == [f"active.{test}" for test in ("burn", "copy", "efa", "memory", "pair", "tcp")]
    assert {all_checks()[name].cost for name in names} == {Cost.ACTIVE}
    code = "import sys, holdfast.agent.agent; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_learning_three_times_makes_a_baseline_that_a_slower_run_fails(tmp_path: Path) -> None:
    context = Context(settings(tmp_path, "unknown-type"))
    for _ in range(3):
        learned = learn_baseline(context, ("copy", "tcp", "efa"))
    assert set(learned.baseline.values) == {"copy.h2d", "copy.d2h", "tcp.loopback"}
    assert learned.not_learned == {"efa": "no EFA device here"}
    fast = replace(learned.baseline, values={"copy.h2d": (1000.0, 1000.0, 1000.0)})
    baselines.save(context.settings, fast)
    results = run(all_checks()["active.copy"], context)
    assert {(result.component, result.verdict, result.code) for result in results} == {
        ("plain-0", "failed", "slow_h2d"),
        ("plain-1", "failed", "slow_h2d"),
    }
    (tmp_path / "baseline.json").write_text("garbage")
    (result,) = run(all_checks()["active.copy"], context)
    assert result.verdict is Verdict.UNKNOWN


@pytest.mark.slow
@pytest.mark.parametrize("name", ["active.burn", "active.memory", "active.pair"])
def test_a_test_in_its_process(name: str) -> None:
    results = run(all_checks()[name], Context(CheckSettings(active=QUICK)))
    assert {result.verdict for result in results} == {Verdict.OK}, results


@pytest.mark.slow
def test_no_pytorch_is_skipped_with_the_reason() -> None:
    (result,) = run(
        all_checks()["active.burn"], Context(CheckSettings(active=ActiveSettings(seconds=0.1, python=sys.executable)))
    )
    if "torch" in sys.modules:  # pragma: no cover - not in this project's environment
        pytest.skip("PyTorch is installed")
    assert result.verdict is Verdict.SKIPPED
    assert "PyTorch" in result.summary


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("sleep 20", "no answer within"),
        (
            "echo Traceback >&2; echo 'torch.OutOfMemoryError: CUDA' >&2; exit 1",
            "torch.OutOfMemoryError: CUDA (exit status 1)",
        ),
        ("kill -SEGV $$", "exit status -11"),
        ("echo hello", "no report"),
    ],
)
def test_a_process_that_hangs_dies_or_talks_nonsense_is_unknown(tmp_path: Path, script: str, words: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    chosen = ActiveSettings(seconds=0.1, start_s=1, python=str(python))
    began_s = time.monotonic()
    (result,) = run(all_checks()["active.burn"], Context(CheckSettings(active=chosen)))
    assert result.verdict is Verdict.UNKNOWN
    assert words in result.summary
    assert time.monotonic() - began_s < 10


def test_pytorch_that_is_not_there_or_does_not_load_is_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str) -> None:
        raise OSError("libtorch_cuda.so: cannot open shared object file")

    monkeypatch.setattr("importlib.import_module", broken)
    with pytest.raises(BackendUnusable, match="libtorch_cuda"):
        TorchBackend("cuda")


@pytest.mark.slow
def test_the_command_by_hand() -> None:
    argv = [sys.executable, "-m", "holdfast_checks.active.run", "burn", "--device", "plain", "--seconds", "0"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    assert ActiveReport.load(said.stdout).places == ("plain-0", "plain-1")
    assert threading.active_count() < 50
