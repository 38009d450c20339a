"""The verdicts on kernel lines: the classes of Xid, the line shapes seen in the wild, and forged lines."""

from __future__ import annotations

import pytest

from holdfast_checks import pci
from holdfast_checks.catalog.xids import XidClass, lookup, recovery_action, table
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.kernel.replay import message_of, replay
from holdfast_checks.kernel.xid import from_event, parse_live, parse_loose
from holdfast_checks.result import Remedy, Severity, Verdict

GPU = GpuRef(uuid="GPU-aaaa", minor=3, pci="0000:3b:00.0", index=5)
KNOWN = {"0000:3b:00.0": GPU}


def xid(code: int, rest: str = "pid=1234, name=python3, something happened") -> str:
    return f"NVRM: Xid (PCI:0000:3b:00): {code}, {rest}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("PCI:0000:3b:00", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("3b:00.0", "0000:3b:00.0"),
        ("3b:00", "0000:3b:00.0"),
        ("PCI:0018:01:00.1", "0018:01:00.1"),
        ("10000:E1:00.0", "10000:e1:00.0"),
        ("...", None),
        ("", None),
        ("0000:3b:40.0", None),
        ("PCI:0000:3b:00 GPU-I:05", None),
    ],
)
def test_pci_addresses_have_one_spelling(text: str, wanted: str | None) -> None:
    assert pci.normalise(text) == wanted


@pytest.mark.parametrize(
    ("code", "verdict", "severity", "remedy", "consequence"),
    [
        (79, Verdict.FAILED, Severity.FATAL, Remedy.REBOOT, False),
        (48, Verdict.FAILED, Severity.FATAL, Remedy.REBOOT, False),
        (95, Verdict.FAILED, Severity.FATAL, Remedy.REBOOT, False),
        (64, Verdict.FAILED, Severity.FATAL, Remedy.REPLACE, False),
        (119, Verdict.FAILED, Severity.FATAL, Remedy.REBOOT, False),
        (109, Verdict.FAILED, Severity.FATAL, Remedy.RESET_GPU, False),
        (74, Verdict.FAILED, Severity.FATAL, Remedy.RESET_GPU, False),
        (157, Verdict.DEGRADED, Severity.DEGRADED, Remedy.REPLACE, False),
        (156, Verdict.DEGRADED, Severity.DEGRADED, Remedy.RESET_GPU, False),
        (13, Verdict.DEGRADED, Severity.WARNING, Remedy.RESTART_JOB, False),
        (31, Verdict.DEGRADED, Severity.WARNING, Remedy.RESTART_JOB, False),
        (94, Verdict.DEGRADED, Severity.WARNING, Remedy.RESTART_JOB, False),
        (43, Verdict.DEGRADED, Severity.WARNING, Remedy.NONE, True),
        (45, Verdict.DEGRADED, Severity.WARNING, Remedy.NONE, True),
        (63, Verdict.DEGRADED, Severity.WARNING, Remedy.NONE, False),
        (92, Verdict.DEGRADED, Severity.WARNING, Remedy.HUMAN, False),
        (999, Verdict.DEGRADED, Severity.WARNING, Remedy.NONE, False),
    ],
)
def test_classes(code: int, verdict: Verdict, severity: Severity, remedy: Remedy, consequence: bool) -> None:
    result = parse_live(xid(code), KNOWN, monotonic_s=12.5)
    assert result is not None
    assert (result.verdict, result.severity, result.remedy) == (verdict, severity, remedy)
    assert result.consequence is consequence
    assert (result.check, result.code, result.component) == ("gpu.xid", str(code), "GPU-aaaa")
    assert (result.gpu_uuid, result.gpu_minor, result.pci) == ("GPU-aaaa", 3, "0000:3b:00.0")
    assert result.fault_monotonic_s == 12.5
    assert result.evidence["pid"] == "1234"
    assert result.evidence["process"] == "python3"
    assert not result.sticky


@pytest.mark.parametrize(
    ("rest", "severity", "remedy"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "fatal", "reset_gpu"),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "fatal", "reboot"),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", "fatal", "reboot"),
        ("GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)", "fatal", "reset_gpu"),
        ("pid=1, name=x, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", "degraded", "reset_gpu"),
        ("GPU recovery action changed from 0x00000000 to 0x00000004", "degraded", "reset_gpu"),
        ("GPU recovery action changed from 0 (None) to 2 (anything)", "fatal", "reboot"),
        ("GPU recovery action changed from 0x0 (None) to 0x5 (Recover IMEX Domain)", "degraded", "human"),
        ("GPU recovery action changed from 0x0 (None) to 0x7 (System Reboot)", "fatal", "reboot"),
        ("GPU recovery action changed from 0x0 (None) to 0x63 (Node Reboot Required)", "warning", "none"),
        ("GPU recovery action changed from None to Node Reboot Required", "warning", "none"),
        ("pid=1, name=from 0x0 to 0x2, GPU recovery action was looked at", "warning", "none"),
    ],
)
def test_in_154_the_number_decides_and_never_the_text(rest: str, severity: str, remedy: str) -> None:
    result = parse_live(xid(154, rest), KNOWN)
    assert result is not None
    assert (result.severity, result.remedy) == (severity, remedy)


def test_154_back_to_none_is_no_fault_and_clears_nothing() -> None:
    result = parse_live(xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"), KNOWN)
    assert result is not None
    assert (result.verdict, result.severity) == (Verdict.SKIPPED, None)
    assert result.evidence["action_old"] == 1


@pytest.mark.parametrize(
    ("rest", "severity"),
    [
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 17 (0x004505c6 0x00000000 0x00000000)", Severity.FATAL),
        ("pid=7, name=a, RLW_RXPIPE Nonfatal XC0 i0 Link -1 (0x004505c6 0x0)", Severity.WARNING),
        ("pid=7, name=ABCD Fatal, RLW_RXPIPE Nonfatal XC0 i0 Link 3 (0x004505c6 0x0)", Severity.WARNING),
        ("something newer", Severity.WARNING),
    ],
)
def test_nvlink5_acts_only_where_the_driver_says_fatal(rest: str, severity: Severity) -> None:
    result = parse_live(xid(149, rest), KNOWN)
    assert result is not None
    assert result.severity is severity


def test_the_cause_of_a_consequence_is_evidence() -> None:
    result = parse_live(xid(45, "pid=7, name=a, Ch 00000010, caused by previous Xid 79"), KNOWN)
    assert result is not None
    assert result.consequence
    assert result.evidence["cause_xid"] == 79


@pytest.mark.parametrize(
    ("line", "code", "address", "process"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "79", "0000:3b:00.0", None),
        (
            "NVRM: Xid (PCI:0000:3b:00.0): 79, pid='<unknown>', name=<unknown>, GPU has",
            "79",
            "0000:3b:00.0",
            "<unknown>",
        ),
        ("[  812.101] NVRM: Xid (PCI:0000:3b:00): 31, pid=17,   name=a.out, Ch 0000", "31", "0000:3b:00.0", "a.out"),
        ("Nov 20 10:00:00 n1 kernel: NVRM: Xid (PCI:0000:3B:00): 13, Graphics SM Warp", "13", "0000:3b:00.0", None),
        ("Nov 20 n1 kernel: [ 1.5] NVRM: Xid (3b:00): 43, pid=5, channel 0x10", "43", "0000:3b:00.0", None),
        ("NVRM: Xid (0000:3b:00): 62, 1234(5678)", "62", "0000:3b:00.0", None),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=9, name=py, Contained", "94", "0000:3b:00.0", "py"),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 43, pid=9", "43", "0000:3b:00.0", None),
        (
            "NVRM: Xid (PCI:0000:3b:00): 119, pid=<unknown>, Timeout after 6s of waiting for RPC",
            "119",
            "0000:3b:00.0",
            None,
        ),
        ("NVRM: Xid (PCI:0000:3b:00): 119, Timeout waiting for RPC from GSP0!", "119", "0000:3b:00.0", None),
        ("NVRM: Xid (PCI:...): 48, pid=1, name=x, DBE", "48", None, "x"),
        ("Xid (PCI:0000:3b:00): 95, Uncontained", "95", "0000:3b:00.0", None),
        ("kernel: NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "79", "0000:3b:00.0", None),
        ("NVRM: GPU at PCI:0000:3b:00 has fallen off the bus", "79", "0000:3b:00.0", None),
        (
            "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330)\nNVRM: installed in this system has"
            "\nNVRM: fallen off the bus and is not responding to commands.",
            "79",
            "0000:3b:00.0",
            None,
        ),
    ],
)
def test_line_shapes_seen_in_the_wild(line: str, code: str, address: str | None, process: str | None) -> None:
    result = parse_loose(message_of(line))
    assert result is not None
    assert (result.code, result.pci, result.evidence.get("process")) == (code, address, process)
    assert result.component == (address or "gpu-unknown")


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05",
        "NVRM: GPU at PCI:0000:3b:00: GPU-1b2c",
        "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330)\nNVRM: installed in this system is not supported",
        "usb 1-1: Xid",
        "",
    ],
)
def test_other_lines_are_nobodys_fault(line: str) -> None:
    assert list(replay([line])) == []
    assert parse_live(line, KNOWN) is None


@pytest.mark.parametrize(
    "message",
    [
        "forged: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x",
        " NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x",
        "process name\nNVRM: Xid (PCI:0000:3b:00): 79, pid=1",
        "NVRM: Xid (PCI:0000:af:00): 79, pid=1, name=x",
        "NVRM: Xid (PCI:...): 79, pid=1, name=x",
        "NVRM: Xid (): 79",
        "n1 kernel: NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: GPU 0000:af:00.0: GPU has fallen off the bus.",
    ],
)
def test_live_lines_must_be_anchored_and_of_this_node(message: str) -> None:
    assert parse_live(message, KNOWN) is None


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330)\nNVRM: installed in this system has fallen off the bus",
    ],
)
def test_a_gpu_off_the_bus_without_an_xid(message: str) -> None:
    result = parse_live(message, KNOWN)
    assert result is not None
    assert (result.code, result.severity, result.remedy) == ("79", Severity.FATAL, Remedy.REBOOT)
    assert "\n" not in str(result.evidence["line"])


def test_lines_split_in_two_are_joined_for_replay() -> None:
    lines = [
        "[1.0] NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330)",
        "[1.0] NVRM: installed in this system has fallen off the bus and is not responding to commands.",
        "[2.0] NVRM: The NVIDIA GPU 0000:5e:00.0 (PCI ID: 10de:2330)",
        "[2.0] NVRM: installed in this system is not supported",
    ]
    assert [result.pci for result in replay(lines)] == ["0000:3b:00.0"]


def test_an_event_without_a_line() -> None:
    result = from_event(79, GPU)
    assert (result.code, result.severity, result.component) == ("79", Severity.FATAL, "GPU-aaaa")
    for code in (74, 145, 154):  # registers, severity and number stand in the kernel's line alone
        assert from_event(code, GPU).verdict is Verdict.SKIPPED


def test_evidence_is_bounded_and_clean() -> None:
    result = parse_live(xid(31, "name=\x1b[2Jevil, " + "x" * 5000), KNOWN)
    assert result is not None
    assert all(len(str(value)) <= 300 and str(value).isprintable() for value in result.evidence.values())
    assert result.summary.isprintable()


def test_the_table_never_acts_without_severity() -> None:
    for row in table().values():
        acts = row.severity in (Severity.FATAL, Severity.DEGRADED)
        assert acts == (row.kind in (XidClass.FATAL, XidClass.DEGRADED, XidClass.NVLINK)), row
        assert not acts or row.remedy not in (Remedy.NONE, Remedy.RESTART_JOB), row
    assert lookup(4711).kind is XidClass.UNKNOWN
    assert recovery_action(42).severity is Severity.WARNING
