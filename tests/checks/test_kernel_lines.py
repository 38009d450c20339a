"""Every class of kernel line, lines that are like them and mean nothing, and lines that a user can have the kernel log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.kernel.devices import Devices
from holdfast_checks.kernel.table import judge_record, rules
from holdfast_checks.known import all_checks
from holdfast_checks.probes.kmsg_record import KernelRecord, render
from holdfast_checks.registry import Context, Need
from holdfast_checks.result import Verdict
from holdfast_checks.runner import run
from holdfast_checks.settings import CheckSettings
from support.kernel_lines import LINES, ORDINARY, Line

GPU = GpuRef(uuid="GPU-a", minor=3, pci="0000:3b:00.0")
NODE = Devices({"0000:3b:00.0": GPU})
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus."


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.text[:60])
def test_every_class(line: Line) -> None:
    result = judge_record(line.text, NODE, 12.5)
    assert result is not None
    found = (result.check, result.code, result.component, str(result.severity), str(result.remedy))
    assert found == line[:5]
    assert result.bad
    assert result.verdict is (Verdict.FAILED if line.severity == "fatal" else Verdict.DEGRADED)
    assert result.fault_monotonic_s == 12.5
    assert not result.sticky
    assert result.summary.isprintable()
    assert "{" not in result.summary
    assert result.evidence["line"]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_lines_are_nobodys_fault(text: str) -> None:
    assert judge_record(text, NODE) is None


def test_a_line_of_a_gpu_names_it() -> None:
    result = judge_record("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x65:1589)", NODE)
    assert result is not None
    assert (result.gpu_uuid, result.gpu_minor, result.pci) == ("GPU-a", 3, "0000:3b:00.0")


def test_the_victim_of_a_lack_of_memory_is_named() -> None:
    result = judge_record("Out of memory: Killed process 4711 (py th) on) total-vm:1kB", NODE)
    assert result is not None
    assert (result.evidence["pid"], result.evidence["process"]) == (4711, "py th) on")


FILLERS = (
    "[4711]: segfault at 0 ip 00007f2c sp 00007ffd error 4 in {rest}[7f2c11a00000+195000]",
    "[4711]: segfault at 0 ip 00007f2c sp 00007ffd error 4{rest}",
    "[4711] general protection fault ip:7f2c sp:7ffd error:0 in {rest}[7f2c11a00000+195000]",
    ": page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset={rest},mems_allowed=0-1",
    " invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0 {rest}",
    " (4711): drop_caches: 3{rest}",
    ": vmalloc error: size 4096, {rest}",
    "/4711 is using a deprecated option{rest}",
)
"""How the kernel continues after the name of a process at the beginning of a line; {rest}: a cgroup or file that the user named too."""


@pytest.mark.parametrize("text", [*(line.text for line in LINES), XID], ids=lambda text: text[:60])
def test_no_name_of_a_process_or_cgroup_becomes_a_fault(text: str) -> None:
    for chars in range(16):
        name, rest = text[:chars], text[chars:]
        for filler in FILLERS:
            for forged in (name + filler.format(rest=rest), "\n" + name[:14] + filler.format(rest="\n" + text)):
                assert judge_record(forged, NODE) is None, forged


@pytest.mark.parametrize(
    "text",
    [
        "Out of memory: Killed process 7 (NVRM: Xid (PCI) total-vm:1kB",
        "INFO: task NVRM: Xid (PCI:4711 blocked for more than 120 seconds.",
        "INFO: task EDAC MC0: 1 UE :4711 blocked for more than 120 seconds.",
        "watchdog: BUG: soft lockup - CPU#17 stuck for 26s! [Kernel panic - :4711]",
    ],
)
def test_a_true_line_stays_what_it_is_whatever_the_process_is_called(text: str) -> None:
    result = judge_record(text, NODE)
    assert result is not None
    assert (result.severity, result.component) == ("warning", "node")


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 19047, Fatal, Link 07 AN1 Heartbeat", "bus/pci/devices", "0000:c5:00.0"),
        ("efa 0000:10:1b.0 rdmap16s27: Admin queue is closed", "bus/pci/devices", "0000:10:1b.0"),
        ("mlx5_core 0000:d2:00.0: poll_health:1: device's health compromised - reached miss count", "bus/pci/devices", "0000:d2:00.0"),
    ],
)  # fmt: skip
def test_a_device_that_is_not_there_is_only_recorded(tmp_path: Path, text: str, kind: str, name: str) -> None:
    devices = Devices({}, tmp_path)
    nobody_can_say = judge_record(text, devices)
    assert nobody_can_say is not None
    assert nobody_can_say.severity == "fatal"
    (tmp_path / kind / "another").mkdir(parents=True)
    unplugged = judge_record(text, devices)
    assert unplugged is not None
    assert (unplugged.severity, unplugged.remedy, unplugged.evidence["present"]) == ("warning", "none", False)
    (tmp_path / kind / name).mkdir()
    there = judge_record(text, devices)
    assert there is not None
    assert there.severity == "fatal"


def test_every_rule_has_a_line_and_every_line_a_check() -> None:
    checks = {check.id for check in all_checks().values() if Need.KMSG in check.needs}
    assert {rule.check for rule in rules()} | {"gpu.xid"} == checks
    for each in rules():
        assert any(each.judge(line.text, NODE, None) is not None for line in LINES), each.pattern.pattern


@pytest.mark.parametrize("check", sorted({line.check for line in LINES}))
def test_run_by_hand(tmp_path: Path, check: str) -> None:
    lines = [line for line in LINES if line.check == check]
    log = tmp_path / "kmsg"
    log.write_text("".join(render(KernelRecord(n, n, 0, 4, text)) for n, text in enumerate(ORDINARY)))
    context = Context(CheckSettings(kmsg_path=log, sysfs=tmp_path / "sys"))
    assert [result.verdict for result in run(all_checks()[check], context)] == [Verdict.OK]
    user = "".join(render(KernelRecord(500 + n, n, 1, 4, line.text)) for n, line in enumerate(LINES))
    kernel = "".join(render(KernelRecord(1000 + n, n, 0, 4, line.text)) for n, line in enumerate(lines))
    log.write_text(user + kernel)
    named = [line for line in lines if line.code != "init_failed"]  # without NVML the GPU is unknown
    assert [result.code for result in run(all_checks()[check], context)] == [line.code for line in named]
    missing = Context(CheckSettings(kmsg_path=tmp_path / "none"))
    assert [result.verdict for result in run(all_checks()[check], missing)] == [Verdict.UNKNOWN]


def test_an_ordinary_line_costs_little(capsys: pytest.CaptureFixture[str]) -> None:
    best = min(_seconds_a_line(ORDINARY) for _ in range(5))
    with capsys.disabled():
        print(f"\nan ordinary kernel line costs {best * 1e6:.2f} us")  # noqa: T201 - a figure for people
    assert best < 50e-6, "ten times the goal, for a busy machine"


def _seconds_a_line(texts: tuple[str, ...]) -> float:
    began = time.thread_time()
    for _ in range(100):
        for text in texts:
            judge_record(text, NODE, 1.0)
    return (time.thread_time() - began) / (100 * len(texts))


@pytest.mark.parametrize("text", [*(line.text for line in LINES), XID], ids=lambda text: text[:60])
def test_a_line_without_end_costs_no_more_than_its_length(text: str) -> None:
    for piece in (" ", "(", "0", "a", text, "[Hardware Error]: ", "\n", ": "):
        for head in (text, text[: len(text) // 2], text[:16]):
            hostile = (head + piece * (200_000 // len(piece)))[:200_000]
            began = time.thread_time()
            judge_record(hostile, NODE)
            assert time.thread_time() - began < 2.0, (head, piece)
