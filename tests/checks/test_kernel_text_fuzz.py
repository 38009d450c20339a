"""Whatever is in a kernel log, reading it ends in a result or in nothing, never in an exception."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.kernel.replay import replay
from holdfast_checks.kernel.xid import parse_live
from holdfast_checks.probes.kmsg_record import KernelRecord, parse, render
from holdfast_checks.text import MAX_EVIDENCE_CHARS

KNOWN = {"0000:3b:00.0": GpuRef(uuid="GPU-a", minor=0, pci="0000:3b:00.0")}
PIECES = st.sampled_from(
    [
        "NVRM: ",
        "Xid (",
        "PCI:",
        "0000:3b:00",
        "): ",
        "154, ",
        "79, ",
        "pid=",
        "name=",
        "0x",
        "recovery action changed from ",
        " to ",
        "GPU ",
        "has fallen off the bus",
        "The NVIDIA GPU ",
        " (PCI ID: 10de:2330)",
        "\n",
        " Fatal XC0 i0 Link 1 (0x",
    ]
)
TEXT = st.one_of(st.text(max_size=80), st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=14).map("".join))


@given(TEXT)
def test_any_text_is_judged_or_passed_over(text: str) -> None:
    results = [parse_live(text, KNOWN), *replay([text])]
    for result in filter(None, results):
        assert result.summary.isprintable()
        assert all(
            len(str(value)) <= MAX_EVIDENCE_CHARS and str(value).isprintable() for value in result.evidence.values()
        )
    if results[0] is not None:
        assert text.startswith("NVRM:")
        assert results[0].component == "GPU-a"


@given(TEXT, st.integers(0, 2**40), st.integers(0, 2**50), st.integers(0, 20), st.integers(0, 7))
def test_any_message_survives_the_record_format(text: str, seq: int, us: int, facility: int, priority: int) -> None:
    record = KernelRecord(seq, us, facility, priority, text)
    assert parse(render(record).removesuffix("\n")) == record
    parse(text)
