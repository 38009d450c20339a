"""The Xid table against the published lists, what NVLink's Xids carry, and what repeats mean."""

from __future__ import annotations

import pytest

from holdfast_checks.catalog import sxids
from holdfast_checks.catalog.explain import explain
from holdfast_checks.catalog.xids import XidClass, lookup, table
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.kernel.nvlink import LinkError, LinkFault, block_error, link_error
from holdfast_checks.kernel.repeats import ECHO_S, Repeats
from holdfast_checks.kernel.xid import parse_live
from holdfast_checks.result import Remedy, Result, Severity

GPUS = {f"0000:{bus}:00.0": GpuRef(uuid=f"GPU-{bus}", minor=minor) for minor, bus in enumerate(("3b", "5e"))}


FROM_AN_H200 = (
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=671, name=bad, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 "
    "GPCCLIENT_T1_8 faulted @ 0x0_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
)
"""Driver 580.159.04, a kernel that wrote to a wrong address (docs/verified.md); another bus."""


def xid(code: int, rest: str, bus: str = "3b", at_s: float = 1.0) -> Result:
    result = parse_live(f"NVRM: Xid (PCI:0000:{bus}:00): {code}, {rest}", GPUS, monotonic_s=at_s)
    assert result is not None
    return result


def codes(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize(
    ("text", "severity", "remedies"),
    [
        # Union of the tables of NVIDIA, gpud, NVSentinel, EKS and awslabs: our verdicts.
        ("8,11,25,32,37,38,44,60,66-69,78,81,96-107,121,126-135,139,141,142,152,153,159-164,166,170,174-176", "warning", "none"),
        ("71,72,75-77,80,82-86,88,89", "warning", "none"),
        ("13,31,94,137", "warning", "restart_job"),
        ("43,45,63,51,154", "warning", "none"),
        ("61,65,73,92,122-125", "warning", "human"),
        ("46,74,109,110,136,158,169", "fatal", "reset_gpu"),
        ("144-150", "fatal", "reset_gpu"),
        ("48,62,79,95,119,120,140,143,151,167,168,171,172", "fatal", "reboot"),
        ("54,64,173", "fatal", "replace"),
        ("155,156", "degraded", "reset_gpu"),
        ("157", "degraded", "replace"),
        ("165", "warning", "replace"),
    ],
)  # fmt: skip
def test_every_code_of_the_published_lists(text: str, severity: str, remedies: str) -> None:
    for code in sorted(codes(text)):
        row = table().get(code)
        assert row is not None, code
        assert (str(row.severity), str(row.remedy)) == (severity, remedies), code


def test_no_code_is_in_the_table_that_no_list_names() -> None:
    named = codes("8,11,13,25,31,32,37,38,43-46,48,51,54,60-69,71-86,88,89,92,94-107,109,110,119-137,139-176")
    assert set(table()) == named


@pytest.mark.parametrize("code", [1, 56, 57, 58, 87, 90, 93, 108, 111, 138, 177, 999, 99999])
def test_unknown_codes_warn_and_never_act(code: int) -> None:
    result = xid(code, "pid=1, name=x, whatever Fatal")
    assert (result.severity, result.remedy) == (Severity.WARNING, Remedy.NONE)
    assert lookup(code).kind is XidClass.UNKNOWN


def registers(*values: int) -> str:
    padded = [*values, 0, 0, 0, 0, 0, 0, 0][:7]
    text = ", ".join(f"{value:#x}" for value in padded)
    return f"pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 4({text})"


@pytest.mark.parametrize(
    ("bits", "fault", "severity", "remedy", "consequence"),
    [
        ((4,), LinkFault.HARDWARE, "fatal", "reset_gpu", False),
        ((5, 16), LinkFault.HARDWARE, "fatal", "reset_gpu", False),
        *(((bit,), LinkFault.MECHANICAL, "fatal", "reset_gpu", False) for bit in (8, 9, 12, 16, 17, 24, 28)),
        ((21,), LinkFault.SIGNAL, "fatal", "replace", False),
        ((22, 20), LinkFault.SIGNAL, "fatal", "replace", False),
        ((0,), LinkFault.HARMLESS, "warning", "none", False),
        ((23, 30), LinkFault.HARMLESS, "warning", "none", False),
        ((1,), LinkFault.SECONDARY, "warning", "none", True),
        ((20, 0), LinkFault.SECONDARY, "warning", "none", True),
        ((27,), LinkFault.UNKNOWN, "fatal", "reset_gpu", False),
        ((20, 27), LinkFault.UNKNOWN, "fatal", "reset_gpu", False),
        ((), LinkFault.UNKNOWN, "fatal", "reset_gpu", False),
    ],
)
def test_the_registers_of_74(
    bits: tuple[int, ...], fault: LinkFault, severity: str, remedy: str, consequence: bool
) -> None:
    result = xid(74, registers(sum(1 << bit for bit in bits)))
    assert result.evidence["link_fault"] == fault
    assert (result.severity, result.remedy, result.consequence) == (severity, remedy, consequence)
    assert result.evidence["link"] == 4


def test_later_registers_of_74_are_not_harmless() -> None:
    assert LinkError(0, (1 << 20, 0, 4)).fault is LinkFault.UNKNOWN
    error = link_error(registers(0x10, 0, 0x2))
    assert error is not None
    assert error.registers[:3] == (0x10, 0, 2)


@pytest.mark.parametrize("rest", ["NVLink: fatal error", "name=on link 4(0x1), x", "NVLink: x on link 4(0x", ""])
def test_74_without_registers_keeps_the_table(rest: str) -> None:
    result = xid(74, rest)
    assert (result.severity, result.remedy) == (Severity.FATAL, Remedy.RESET_GPU)
    assert "link_fault" not in result.evidence


@pytest.mark.parametrize("bit", [4, 5, 16])
def test_a_hardware_error_twice_on_one_link_is_the_hardware(bit: int) -> None:
    repeats = Repeats()
    times = (1.0, 2.0, 90_000.0)
    first, burst, again = (repeats.weigh(xid(74, registers(1 << bit), at_s=at_s)) for at_s in times)
    assert first.remedy is burst.remedy is Remedy.RESET_GPU
    assert (again.remedy, again.evidence["repeated"]) == (Remedy.REPLACE, True)
    other = repeats.weigh(xid(74, registers(1 << bit), bus="5e"))
    assert other.remedy is Remedy.RESET_GPU
    echo = repeats.weigh(xid(74, registers(1 << 20)))
    assert echo.remedy is Remedy.NONE


FATAL_149 = "NETIR_LINK_EVT Fatal XC0 i0 Link 17 (0x004505c6 0x00000002 0x00000000)"
FATAL_145 = "RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040 0x00000000)"


def test_sub_codes_of_nvlink_5() -> None:
    evidence = xid(149, FATAL_149).evidence
    assert (evidence["block"], evidence["link"], evidence["intr_info"]) == ("NETIR_LINK_EVT", 17, "0x004505c6")
    assert evidence["sub_code"] == 0x4505C6 & 0x7F == 70
    assert evidence["sub_code_before_r575"] == (0x4505C6 >> 5) & 0x1F == 14
    assert evidence["error_status"] == "0x00000002"
    short = block_error("NETIR_LINK_EVT Fatal Link 00 (0x016415c6)")
    assert short is not None
    assert (short.fatal, short.link, short.status) == (True, 0, None)
    assert xid(145, "RLW_REMAP Nonfatal XC0 i0 Link 02").severity is Severity.WARNING


def test_149_is_blamed_before_145() -> None:
    repeats = Repeats()
    bad = repeats.weigh(xid(149, FATAL_149, at_s=10.0))
    echo = repeats.weigh(xid(145, FATAL_145, bus="5e", at_s=10.5))
    assert (bad.consequence, bad.severity) == (False, Severity.FATAL)
    assert (echo.consequence, echo.evidence["cause_xid"]) == (True, 149)
    later = repeats.weigh(xid(145, FATAL_145, bus="5e", at_s=11 + ECHO_S))
    assert not later.consequence


def test_145_on_several_gpus_alone_is_the_fabric() -> None:
    repeats = Repeats()
    first = repeats.weigh(xid(145, FATAL_145, at_s=10.0))
    again = repeats.weigh(xid(145, FATAL_145, at_s=11.0))
    second = repeats.weigh(xid(145, FATAL_145, bus="5e", at_s=12.0))
    assert [first.remedy, again.remedy, second.remedy] == [Remedy.RESET_GPU, Remedy.RESET_GPU, Remedy.REBOOT]
    assert second.evidence["fabric_wide"] is True


def test_a_consequence_names_its_cause() -> None:
    result = xid(45, "pid=7, name=a, Ch 00000010, errorString x caused by previous Xid 149")
    assert (result.consequence, result.evidence["cause_xid"]) == (True, 149)
    assert "NVLink" in str(result.evidence["cause"])
    forged = xid(95, "pid=7, name=previous Xid 79, Uncontained")
    assert (forged.consequence, forged.severity) == (False, Severity.FATAL)
    assert "cause_xid" not in forged.evidence


def test_the_place_of_a_repeating_13_is_evidence() -> None:
    evidence = xid(13, "pid=1, name=x, Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Illegal").evidence
    assert (evidence["gpc"], evidence["tpc"], evidence["sm"]) == (3, 1, 0)


def test_the_attributes_of_a_mig_instance_are_evidence() -> None:
    result = parse_live("NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 94, pid=9, name=py, Contained", GPUS)
    assert result is not None
    assert (result.component, result.evidence["mig"]) == ("GPU-3b", "GPU-I:05 GPU-CI:00")


def test_half_a_number_is_no_code() -> None:
    whole = "NVRM: Xid (PCI:0000:3b:00): 149, pid=1, name=x, NETIR"
    for end in range(len(whole)):
        result = parse_live(whole[:end], GPUS)
        assert result is None or result.code == "149", whole[:end]


def test_nvswitch_codes() -> None:
    assert len(sxids.codes()) == 86
    assert sxids.lookup(12020).remedy is Remedy.STOP_START
    assert sxids.lookup(23017).kind is sxids.SxidClass.HOST
    assert sxids.lookup(26002).kind is sxids.SxidClass.UNKNOWN
    assert sxids.lookup(99999).kind is sxids.SxidClass.UNKNOWN


@pytest.mark.parametrize("code", sorted({*table(), 4711}))
def test_every_code_can_be_explained(code: int) -> None:
    first, *rest = explain("xid", str(code))
    assert first.startswith(f"Xid {code}: ")
    assert {line.split()[0] for line in rest} >= {"class", "severity", "remedy", "source"}
    assert explain("sxid", "12020")[0] == "SXid 12020: NVSwitch, egress"
    with pytest.raises(ValueError, match="is a number"):
        explain("xid", "७९")


def test_the_line_of_a_real_h200_restarts_the_job_alone() -> None:
    result = parse_live(FROM_AN_H200, GPUS, monotonic_s=1.0)
    assert result is not None
    assert (result.code, result.component, result.severity, result.remedy) == (
        "31",
        "GPU-3b",
        Severity.WARNING,
        Remedy.RESTART_JOB,
    )
    assert (result.evidence["pid"], result.evidence["process"]) == ("671", "bad")
