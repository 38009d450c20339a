"""kill -9 before every single system call of start and save: what was complete stays, and the next run continues."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint import Checkpointer, RunId, latest
from support.killing import killed_at

Build = Any


def run_once(root: Path, generation: int, step: int) -> None:
    checkpointer = Checkpointer(root, run=RunId("9", (generation, 0, 0)), env={})
    checkpointer.resume()
    with checkpointer.save(step) as folder:
        (folder / "state").write_text(f"state of {step}")


@pytest.mark.slow
def test_killed_at_every_boundary(build: Build, tmp_path: Path) -> None:
    run_once(build.root, 0, 1)
    call, seen, again = 0, set(), True
    while again:
        call += 1
        root = tmp_path / f"killed-at-{call}"
        shutil.copytree(build.root, root)
        again = killed_at(call, partial(run_once, root, 1, 2))
        found = latest(str(root))
        assert found is not None
        assert found.step in (1, 2), f"after call {call}"
        assert (Path(found.path) / "rank-00000" / "state").read_text() == f"state of {found.step}"
        seen.add(found.step)
        run_once(root, 2, 3)
        after = latest(str(root))
        assert after is not None
        assert after.step == 3, f"after call {call}"
    assert call > 30, "the walk met few boundaries"
    assert seen == {1, 2}


def test_everything_is_on_the_disk_before_the_manifest_appears(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, str]] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(fd: int) -> None:
        events.append(("fsync", os.readlink(f"/proc/self/fd/{fd}")))
        real_fsync(fd)

    def rename(source: Any, target: Any) -> None:
        events.append(("rename", str(target)))
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    run_once(build.root, 0, 1)
    folder = build.root / "step-0000001-j9-r0.0.0"
    at = events.index(("rename", str(folder / "MANIFEST.json")))
    before = {path for kind, path in events[:at] if kind == "fsync"}
    wanted = [folder / "rank-00000" / "state", folder / "rank-00000", folder, folder / ".MANIFEST.json.tmp", build.root]
    assert {str(path) for path in wanted} <= before
    assert ("fsync", str(folder)) in events[at:]
