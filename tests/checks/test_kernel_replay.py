"""``replay``: every shape in which logs come, and hostile variations of them: never a crash, never a wrong code."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_checks.kernel.replay import message_of, replay
from support.kernel_lines import LINES, ORDINARY

XIDS = (
    ("79", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
    ("79", "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus"),
    ("31", "NVRM: Xid (PCI:0000:3b:00): 31, pid=17,     name=a.out, Ch 0000, intr 00000000. MMU Fault"),
    ("43", "NVRM: Xid (PCI:0000:3b:00.0): 43, pid=5, name=py, channel 0x00000010"),
    ("43", "NVRM: Xid (3b:00): 43, pid=5"),
    ("94", "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=9, name=py, Contained"),
    ("13", "NVRM: Xid (PCI:...): 13, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0)"),
    ("119", "NVRM: Xid (PCI:0000:3b:00): 119, pid=<unknown>, Timeout after 6s of waiting for RPC response from GPU0 GSP!"),
    ("119", "NVRM: Xid (PCI:0000:3b:00): 119, pid=430, name=nv_queue, Timeout waiting for RPC from GSP!"),
    ("154", "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"),
    ("95", "Xid (PCI:0000:3b:00): 95, Uncontained"),
    ("79", "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."),
    ("79", "NVRM: GPU at PCI:0000:3b:00 has fallen off the bus"),
    ("79", "NVRM: The NVIDIA GPU 0000:3b:00.0 installed in this system has fallen off the bus and is not responding"),
)  # fmt: skip
ALL = (*XIDS, *((line.code, line.text) for line in LINES))
HEADS = (
    "",
    "[  812.101234] ",
    "[12345678.101234] ",
    "[  130.456250] [ T1946] ",
    "[  130.456250][    C12] ",
    "[Thu Nov 20 10:00:00 2025] ",
    "[Sat Nov  1 10:00:00 2025] ",
    "2025-11-20T10:00:00,123456+00:00 ",
    "<4>[  812.101234] ",
    "<4>",
    "kern  :warn  : [  812.101234] ",
    "kern  :err   : [Thu Nov 20 10:00:00 2025] ",
    "Nov 20 10:00:00 n1 kernel: ",
    "Nov 20 10:00:00 ip-10-0-3-7 kernel: [  812.101234] ",
    "2025-11-20T10:00:00.123456+00:00 n1 kernel: ",
    "2025-11-20T10:00:00+0000 n1 kernel: ",
    "Thu 2025-11-20 10:00:00 UTC n1 kernel: ",
    "[  812.101234] n1 kernel: ",
    "n1 kernel[0]: [  812.101234] ",
    "kernel: ",
    "kernel: [ 1.5] ",
    "node17: [  812.101234] ",
    "  [  812.101234] ",
    "\ufeff[  812.101234] ",
)  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
def test_every_shape_of_every_class_is_recognised(head: str) -> None:
    for code, text in ALL:
        for end in ("", "\n", "\r\n"):
            assert [result.code for result in replay([head + text + end])] == [code], head + text
    for text in ORDINARY:
        if "GPU 0000:af:00.0" not in text:  # of another node, which replay cannot know
            assert list(replay([head + text])) == []


@pytest.mark.parametrize(("code", "text"), ALL, ids=lambda value: value[:50])
def test_records_of_the_kernel_count_and_those_of_users_do_not(code: str, text: str) -> None:
    assert [result.code for result in replay([f"4,17,5000000,-;{text}"])] == [code]
    assert [result.code for result in replay([f"3,17,5000000,-,caller=T1946;{text}", " SUBSYSTEM=pci"])] == [code]
    for forged in (
        f"12,17,5000000,-;{text}",
        f"user  :warn  : [ 1.5] {text}",
        f"Nov 20 10:00:00 n1 python[12]: {text}",
        f"Nov 20 10:00:00 n1 python[12]: kernel: {text}",
        f"Nov 20 10:00:00 n1 slurmd: [  812.1] {text}",
        f"Nov 20 10:00:00 n1 kernel: python[12]: segfault at 0 ip 0 sp 0 error 4 in {text}",
        f"[ 1.5] oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/{text}",
        f"[ 1.5] cgroup: fork rejected by pids controller in /{text}",
        f"4,17,5000000,-;audit: type=1400 comm={text}",
    ):
        assert list(replay([forged])) == [], forged


_GPU = "NVRM: The NVIDIA GPU 0000:3b:00.0"
_GONE = "fallen off the bus and is not responding to commands."
BROKEN = (
    (_GPU, "NVRM: (PCI ID: 10de:2330) installed in this system has", f"NVRM: {_GONE}"),
    (_GPU, "NVRM: installed in this system has", f"NVRM: {_GONE}"),
    (f"{_GPU} (PCI ID: 10de:1e07) installed in this", f"NVRM: system has {_GONE}"),
    (f"{_GPU} (PCI ID: 10de:2330)", "NVRM: installed in this system has fallen off the bus"),
)


@pytest.mark.parametrize("head", ["", "[ 1843.308145] ", "Nov 20 10:00:00 n1 kernel: "])
@pytest.mark.parametrize("pieces", BROKEN)
def test_a_message_over_several_lines(pieces: tuple[str, ...], head: str) -> None:
    lines = [head + piece for piece in pieces]
    assert [(result.code, result.pci) for result in replay(lines)] == [("79", "0000:3b:00.0")]
    usb = f"{head}usb 1-1: new device"
    mixed = [lines[0], usb, *lines[1:-1], f"{head}{XIDS[2][1]}", lines[-1]]
    assert sorted(result.code for result in replay(mixed)) == ["31", "79"]
    journal = [lines[0], *(" " * 30 + piece for piece in pieces[1:])]
    assert [result.code for result in replay(journal)] == ["79"]
    assert list(replay([lines[0], usb])) == []
    assert list(replay([lines[0], *[usb] * 20, *lines[1:]])) == []


def test_repeats_are_weighed_over_a_whole_log() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 74, NVLink: fatal error detected on link 4(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    assert [str(result.remedy) for result in replay([line, line])] == ["reset_gpu", "replace"]


def _cut(text: str, at: int) -> str:
    return text[: at % (len(text) + 1)]


_FAULT = st.sampled_from(ALL)
_HEAD = st.sampled_from(HEADS)
_FOREIGN = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["显卡掉线了", "отказ диска", "GPU が応答しません", "\x00" * 40, "\x1b[31m", "\ud800", "é" * 50]),
    st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
    st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")),
)


@pytest.mark.slow
@given(_HEAD, _FAULT, _FOREIGN)
def test_what_follows_a_fault_never_changes_its_code(head: str, fault: tuple[str, str], foreign: str) -> None:
    code, text = fault
    one_line = "".join(char for char in foreign if char not in "\r\n")
    found = [result.code for result in replay([f"{head}{text} {one_line}"])]
    assert found in ([code], [])


@pytest.mark.slow
@given(_HEAD, _FAULT, st.integers(0, 400))
def test_a_truncated_line_is_nothing_or_itself(head: str, fault: tuple[str, str], at: int) -> None:
    code, text = fault
    assert [result.code for result in replay([head + _cut(text, at)])] in ([code], [])


@given(_HEAD, _FAULT, _FAULT, st.integers(0, 400))
def test_of_interleaved_lines_one_counts_or_none(
    head: str, one: tuple[str, str], other: tuple[str, str], at: int
) -> None:
    found = [result.code for result in replay([head + _cut(one[1], at) + head + other[1]])]
    assert found in ([one[0]], [other[0]], [])


@given(st.lists(st.one_of(_FOREIGN, _FAULT.map(lambda fault: fault[1]), _HEAD), max_size=12))
def test_any_log_is_read_to_its_end(pieces: list[str]) -> None:
    for result in replay(["".join(pieces), *pieces]):
        assert result.summary.isprintable()
        assert all(len(str(value)) <= 300 and str(value).isprintable() for value in result.evidence.values())


@pytest.mark.parametrize(
    "make",
    [
        lambda text, size: text + "A" * size,
        lambda text, size: " " * size + text,
        lambda text, size: "[" * size,
        lambda text, size: "[ 1.5] " * (size // 7) + text,
        lambda text, size: "a " * (size // 2) + "kernel: " + text,
        lambda text, size: "NVRM: " * (size // 6) + text,
        lambda text, size: text * (size // len(text)),
        lambda text, size: "NVRM: Xid (" + "GPU-I:05 " * (size // 9) + "): 79, x",
        lambda text, size: "NVRM: Xid (PCI:0000:3b:00): 74, NVLink: " + "on link 4(0x1, " * (size // 15),
        lambda text, size: "NVRM: The NVIDIA GPU 0000:3b:00.0" + "\nNVRM: " * (size // 7),
        lambda text, size: "9" * size + "," + text,
        lambda text, size: "4,1,1,-;" + "\\x4e" * (size // 4),
        lambda text, size: "\x00" * size,
        lambda text, size: "电" * size,
    ],
)
def test_a_line_of_a_megabyte_takes_no_time(make: Callable[[str, int], str]) -> None:
    line = make(XIDS[1][1], 1_000_000)
    best = min(_seconds(line) for _ in range(3))
    assert best < 0.05


def _seconds(line: str) -> float:
    began = time.thread_time()
    assert all(result.code in ("79", "74") for result in replay([line]))
    return time.thread_time() - began


def test_a_large_log_is_read_in_one_go() -> None:
    lines = [f"[{n}.000001] {ORDINARY[n % len(ORDINARY)]}" for n in range(20_000)]
    began = time.thread_time()
    assert len({result.code for result in replay(lines)}) <= 1
    assert (time.thread_time() - began) / len(lines) < 100e-6


def test_the_words_of_a_line() -> None:
    assert message_of("Nov 20 10:00:00 n1 kernel: mce: [Hardware Error]: x") == "mce: [Hardware Error]: x"
    assert message_of("[ 1.0] [Hardware Error]: x") == "[Hardware Error]: x"
    assert message_of("12,1,1,-;x") == ""
