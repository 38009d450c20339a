"""Dumps that the kernel of the previous boot left when it died: files of pstore, and of systemd's archive of them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.registry import Context, NotApplicable, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.text import one_line

CHECK_ID = "kernel.panic"

MAX_BYTES = 64 * 1024
"""Of one file are read: its first line, which says what kind of end it was, and its last lines, which say why."""
_HEAD_BYTES = 256
MAX_FILES = 64
BEFORE_BOOT_S = Threshold(
    "longest time between panic and boot", 86_400, "s", "a dump that is older than this is not of the boot before; ours"
)

_PANIC = re.compile(r"Kernel panic - not syncing: ([^\n]{1,200})")
_FIRST_LINE = re.compile(r"(?P<kind>Panic|Oops|Emergency)#\d{1,6} Part\d{1,6}")
_BOOT_TIME = re.compile(r"^btime (\d{1,15})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Dump:
    """One file."""

    name: str
    mtime_s: float
    """Seconds since 1970."""
    text: str


@dataclass(frozen=True, slots=True)
class PstoreFacts:
    """The dumps, and when this boot began (seconds since 1970)."""

    dumps: tuple[Dump, ...]
    boot_s: float


def gather(context: Context) -> PstoreFacts:
    """Raises NotApplicable where the machine keeps no dumps, NotGathered where they may not be read."""
    settings = context.settings
    folders = [folder for folder in (settings.pstore_path, settings.kernel.pstore_archive) if folder.is_dir()]
    if not folders:
        raise NotApplicable("this machine keeps no crash dumps (no pstore)")
    match = _BOOT_TIME.search((settings.proc / "stat").read_text())
    if match is None:
        raise NotGathered(f"{settings.proc / 'stat'} does not say when this boot began")
    dumps = [dump for folder in folders for dump in _dumps(folder)]
    return PstoreFacts(tuple(sorted(dumps, key=lambda dump: (dump.mtime_s, dump.name))[-MAX_FILES:]), float(match[1]))


def _dumps(folder: Path) -> Iterator[Dump]:
    for path in sorted(folder.iterdir())[-MAX_FILES:]:
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):  # systemd-pstore puts the parts of one dump into a folder
            yield from _dumps_flat(path)
        elif stat.S_ISREG(status.st_mode) and path.name.startswith("dmesg"):
            yield _dump(path, status.st_mtime)


def _dumps_flat(folder: Path) -> Iterator[Dump]:
    for path in sorted(folder.glob("dmesg*"))[-MAX_FILES:]:
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            yield _dump(path, status.st_mtime)


def _dump(path: Path, mtime_s: float) -> Dump:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        file.seek(max(len(head), file.seek(0, os.SEEK_END) - MAX_BYTES))
        return Dump(path.name, mtime_s, (head + file.read(MAX_BYTES)).decode("utf-8", "replace"))


def judge(facts: PstoreFacts) -> tuple[Result, ...]:
    """A warning for the newest panic of the boot before: the node is known to be up again, and the affected jobs were handled."""
    since_s = facts.boot_s - BEFORE_BOOT_S.value
    panics = [dump for dump in facts.dumps if dump.mtime_s >= since_s and _panicked(dump)]
    if not panics:
        return (Result.ok(CHECK_ID, summary="no panic of the boot before is on record", sticky=True),)
    newest = max(panics, key=lambda dump: (_PANIC.search(dump.text) is not None, dump.mtime_s, dump.name))
    said = _PANIC.search(newest.text)
    reason = one_line(said[1]) if said else "it does not say why"
    return (
        Result.finding(
            CHECK_ID,
            Severity.WARNING,
            Remedy.HUMAN,
            code="panic",
            summary=f"the kernel of the boot before panicked: {reason}",
            evidence={"file": one_line(newest.name), "mtime_s": round(newest.mtime_s), "files": len(panics)},
            sticky=True,
        ),
    )


def _panicked(dump: Dump) -> bool:
    first = _FIRST_LINE.match(dump.text)
    return _PANIC.search(dump.text) is not None or (first is not None and first["kind"] == "Panic")
