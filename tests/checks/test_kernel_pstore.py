"""``kernel.panic``: what the boot before left in pstore."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast_checks.kernel.pstore import BEFORE_BOOT_S, MAX_BYTES, Dump, PstoreFacts, judge
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Context
from holdfast_checks.result import Verdict
from holdfast_checks.runner import run
from holdfast_checks.settings import CheckSettings, KernelSettings

PANIC = (
    "Panic#1 Part1\n<6>[ 8123.4] usb 1-1: new device\n"
    "<0>[ 8123.9] Kernel panic - not syncing: Fatal exception in interrupt\n<0>[ 8123.9] Kernel Offset: 0x1\n"
)
OOPS = "Oops#1 Part1\n<1>[ 12.0] BUG: kernel NULL pointer dereference, address: 0000000000000010\n"
BOOT_S = 1_000_000.0


@pytest.mark.parametrize(
    ("dumps", "verdict", "word"),
    [
        ((), Verdict.OK, "no panic"),
        ((Dump("dmesg-efi-1", BOOT_S - 60, PANIC),), Verdict.DEGRADED, "Fatal exception in interrupt"),
        ((Dump("dmesg-efi-1", BOOT_S + 5, PANIC),), Verdict.DEGRADED, "Fatal exception"),  # archived at this boot
        ((Dump("dmesg-efi-1", BOOT_S - 60, "Panic#1 Part2\n<6>[ 1.0] x\n"),), Verdict.DEGRADED, "does not say why"),
        ((Dump("dmesg-efi-1", BOOT_S - 60, OOPS),), Verdict.OK, "no panic"),  # the node lived on and rebooted later
        ((Dump("dmesg-efi-1", BOOT_S - BEFORE_BOOT_S.value - 1, PANIC),), Verdict.OK, "no panic"),
        ((Dump("dmesg-ramoops-0.enc.z", BOOT_S - 60, "\x00\ufffd\x01binary"),), Verdict.OK, "no panic"),
    ],
)
def test_judge(dumps: tuple[Dump, ...], verdict: Verdict, word: str) -> None:
    (result,) = judge(PstoreFacts(dumps, BOOT_S))
    assert (result.verdict, result.sticky) == (verdict, True)
    assert word in result.summary
    if result.bad:
        assert (result.code, result.severity, result.remedy) == ("panic", "warning", "human")


def test_the_part_that_says_why_is_quoted() -> None:
    parts = (Dump("dmesg-efi-1", BOOT_S - 9, PANIC), Dump("dmesg-efi-2", BOOT_S - 8, "Panic#1 Part2\n<6>[ 1.0] x\n"))
    (result,) = judge(PstoreFacts(parts, BOOT_S))
    assert "Fatal exception" in result.summary
    assert (result.evidence["file"], result.evidence["files"]) == ("dmesg-efi-1", 2)


def context(path: Path) -> Context:
    proc = path / "proc"
    proc.mkdir(exist_ok=True)
    (proc / "stat").write_text(f"cpu  1 2 3\nbtime {int(time.time())}\nprocesses 7\n")
    archive = KernelSettings(pstore_archive=path / "archive")
    return Context(CheckSettings(pstore_path=path / "pstore", proc=proc, kernel=archive))


def test_dumps_are_read_from_pstore_and_from_its_archive(tmp_path: Path) -> None:
    check = all_checks()["kernel.panic"]
    (skipped,) = run(check, context(tmp_path))
    assert skipped.verdict is Verdict.SKIPPED
    (tmp_path / "pstore").mkdir()
    assert [result.verdict for result in run(check, context(tmp_path))] == [Verdict.OK]
    (tmp_path / "pstore" / "dmesg-erst-7").write_text("x" * 500 + PANIC + "x" * MAX_BYTES)  # beyond what is read
    (tmp_path / "pstore" / "console-ramoops-0").write_text(PANIC)  # not a dump: it also ends an ordinary reboot
    os.symlink("/etc/passwd", tmp_path / "pstore" / "dmesg-link")
    assert [result.verdict for result in run(check, context(tmp_path))] == [Verdict.OK]
    (tmp_path / "archive" / "1763632800").mkdir(parents=True)
    (tmp_path / "archive" / "1763632800" / "dmesg.txt").write_text(PANIC)
    (found,) = run(check, context(tmp_path))
    assert (found.verdict, found.evidence["file"]) == (Verdict.DEGRADED, "dmesg.txt")
    (tmp_path / "archive" / "1763632800" / "dmesg.txt").write_text("x" * 3 * MAX_BYTES + PANIC)
    assert [result.verdict for result in run(check, context(tmp_path))] == [Verdict.DEGRADED]
