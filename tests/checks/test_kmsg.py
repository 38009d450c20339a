"""The kernel log's record format and its follower: files, pipes, the real device, overruns, boots, rotation."""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_checks.probes.kmsg import Cursor, Gap, KmsgFollower, read_present
from holdfast_checks.probes.kmsg_record import KernelRecord, parse, render


def line(seq: int, message: str = "hello", facility: int = 0) -> str:
    return render(KernelRecord(seq, 1_000_000 + seq, facility, 4, message))


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.write_text("")
    return path


@pytest.fixture
def append(log_path: Path) -> Iterator[_Append]:
    with log_path.open("a") as out:
        yield _Append(out.fileno())


class _Append:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __call__(self, text: str) -> None:
        os.write(self._fd, text.encode())


def readable(follower: KmsgFollower, timeout_s: float = 2.0) -> bool:
    return bool(select.select([follower.fileno()], [], [], timeout_s)[0])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("6,339,5140900,-;NET: Registered", KernelRecord(339, 5140900, 0, 6, "NET: Registered")),
        ("4,7,1,-,caller=T1;NVRM: Xid", KernelRecord(7, 1, 0, 4, "NVRM: Xid")),
        ("12,8,2,-;from a user", KernelRecord(8, 2, 1, 4, "from a user")),
        ("30,9,3,c,more;a;b", KernelRecord(9, 3, 3, 6, "a;b")),
        ("4,7,1,-;two\n SUBSYSTEM=pci\n DEVICE=+pci:0", KernelRecord(7, 1, 0, 4, "two")),
        ("4,7,1,-;one\\x0aNVRM: two \\xc3\\xa9", KernelRecord(7, 1, 0, 4, "one\nNVRM: two é")),
        (" SUBSYSTEM=pci", None),
        ("", None),
        ("no record", None),
        ("4,7,x,-;bad", None),
        ("4,-7,1,-;bad", None),
        ("4,7;too short", None),
    ],
)
def test_record_format(text: str, wanted: KernelRecord | None) -> None:
    assert parse(text) == wanted


def test_a_rendered_record_reads_back() -> None:
    record = KernelRecord(5, 99, 1, 3, "tab\tback\\slash\nline é")
    assert parse(render(record).rstrip("\n")) == record
    assert not record.from_kernel
    assert record.monotonic_s == pytest.approx(99e-6)


def test_first_start_marks_what_is_there_as_history(log_path: Path, append: _Append) -> None:
    append(line(1) + line(2))
    follower = KmsgFollower(log_path, "boot-a")
    assert [(r.seq, r.history) for r in follower.read_available()] == [(1, True), (2, True)]
    append(line(3))
    assert readable(follower)
    assert [(r.seq, r.history) for r in follower.read_available()] == [(3, False)]
    assert follower.read_available() == []
    assert not readable(follower, 0)
    assert follower.cursor == Cursor("boot-a", 3)
    follower.close()


@pytest.mark.parametrize(
    ("cursor", "wanted"),
    [
        (Cursor("boot-a", 2), [(3, False), (4, False)]),
        (Cursor("boot-b", 2), [(1, True), (2, True), (3, True), (4, True)]),
        (Cursor("boot-a", 4), []),
        (None, [(1, True), (2, True), (3, True), (4, True)]),
    ],
)
def test_cursor(log_path: Path, append: _Append, cursor: Cursor | None, wanted: list[tuple[int, bool]]) -> None:
    append("".join(line(seq) for seq in range(1, 5)))
    follower = KmsgFollower(log_path, "boot-a", cursor)
    assert [(r.seq, r.history) for r in follower.read_available()] == wanted
    append(line(5))
    assert [(r.seq, r.history) for r in follower.read_available()] == [(5, False)]
    follower.close()


def test_partial_line_waits_for_its_end(log_path: Path, append: _Append) -> None:
    follower = KmsgFollower(log_path, "b", Cursor("b", 0))
    whole = line(1, "NVRM: Xid")
    append(whole[:9])
    assert follower.read_available() == []
    append(whole[9:] + " DEVICE=+pci:1\n")
    assert [r.message for r in follower.read_available()] == ["NVRM: Xid"]
    follower.close()


def test_a_gap_in_the_sequence_is_noted(log_path: Path, append: _Append) -> None:
    follower = KmsgFollower(log_path, "b", Cursor("b", 10))
    append(line(15))
    assert [r.seq for r in follower.read_available()] == [15]
    assert list(follower.gaps) == [Gap(11, 4)]
    follower.close()


def test_a_cut_file_is_read_from_its_start(log_path: Path, append: _Append) -> None:
    follower = KmsgFollower(log_path, "b", Cursor("b", 0))
    append(line(1) + line(2))
    assert len(follower.read_available()) == 2
    log_path.write_text("")
    assert follower.read_available() == []
    append(line(3))
    assert [r.seq for r in follower.read_available()] == [3]
    follower.close()


def test_a_replaced_file_is_followed(log_path: Path, append: _Append, tmp_path: Path) -> None:
    follower = KmsgFollower(log_path, "b", Cursor("b", 0))
    append(line(1))
    assert len(follower.read_available()) == 1
    append(line(2))
    (tmp_path / "new").write_text(line(3))
    (tmp_path / "new").rename(log_path)
    assert readable(follower)
    assert [r.seq for r in follower.read_available()] == [2, 3]
    with log_path.open("a") as out:
        out.write(line(4))
    assert readable(follower)
    assert [r.seq for r in follower.read_available()] == [4]
    follower.close()


def test_a_file_moved_away_is_waited_for(log_path: Path, append: _Append, tmp_path: Path) -> None:
    follower = KmsgFollower(log_path, "b", Cursor("b", 0))
    log_path.rename(tmp_path / "old")
    assert readable(follower)
    assert follower.read_available() == []
    log_path.write_text(line(1))
    assert readable(follower)
    assert [r.seq for r in follower.read_available()] == [1]
    follower.close()


def test_users_records_are_told_apart(log_path: Path, append: _Append) -> None:
    follower = KmsgFollower(log_path, "b", Cursor("b", 0))
    append(line(1, "NVRM: Xid (PCI:0000:3b:00): 79", facility=1))
    assert [r.from_kernel for r in follower.read_available()] == [False]
    follower.close()


def test_latency_is_that_of_a_wake_up(log_path: Path, append: _Append) -> None:
    follower = KmsgFollower(log_path, "b", Cursor("b", 0))
    took = []
    for seq in range(1, 20):
        begun = time.perf_counter()
        append(line(seq))
        assert readable(follower)
        assert len(follower.read_available()) == 1
        took.append(time.perf_counter() - begun)
    assert min(took) < 0.05, "a poll would take longer each time"
    follower.close()


def test_a_pipe_works_too(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    follower = KmsgFollower(path, "b", Cursor("b", 0))
    assert follower.read_available() == []
    with path.open("w") as out:
        out.write(line(1))
    assert readable(follower)
    assert [r.seq for r in follower.read_available()] == [1]
    follower.close()


class _FakeDevice:
    """Stands behind ``os.read`` as /dev/kmsg does: one record a read, EPIPE once the reader was overrun."""

    def __init__(self, *answers: bytes | int) -> None:
        self._answers = list(answers)

    def read(self, fd: int, size: int) -> bytes:
        answer = self._answers.pop(0) if self._answers else errno.EAGAIN
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        return answer


def test_an_overrun_of_the_device_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _FakeDevice(line(5).encode(), errno.EPIPE, line(90).encode() + b" DEVICE=+pci:0\n")
    monkeypatch.setattr("os.read", device.read)
    follower = KmsgFollower("/dev/null", "b", Cursor("b", 4))
    assert [(r.seq, r.history) for r in follower.read_available()] == [(5, False), (90, False)]
    assert list(follower.gaps) == [Gap(6, 84)]
    follower.close()


def test_a_storm_gives_the_loop_a_turn_and_stays_history(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _FakeDevice(*(line(seq).encode() for seq in range(5000)))
    monkeypatch.setattr("os.read", device.read)
    follower = KmsgFollower("/dev/null", "b")
    first, second = follower.read_available(), follower.read_available()
    assert (len(first), len(second)) == (4096, 904)
    assert all(record.history for record in (*first, *second))
    follower.close()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="the kernel log is not readable by this user")
def test_the_real_device() -> None:
    try:
        records = read_present("/dev/kmsg")
    except OSError as error:
        pytest.skip(f"the kernel log cannot be opened: {error}")
    assert all(record.history for record in records)
    assert [r.seq for r in records] == sorted({r.seq for r in records})
