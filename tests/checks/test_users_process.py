"""A user's process that cannot be read costs a moment, and no thread."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast_checks.probes import process_files, users_process


def test_an_environment_is_read_as_the_kernel_shows_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"RANK": "3", "A": "b=c"}
    ) as it:
        try:
            assert dict(users_process.environ_of(it.pid)) == {"RANK": "3", "A": "b=c"}
        finally:
            it.kill()
    with pytest.raises(OSError, match="exit status 1"):
        users_process.environ_of(it.pid)


@pytest.mark.slow
def test_one_that_does_not_answer_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the lock of its address space is held for ever."""
    (tmp_path / "7").mkdir()
    os.mkfifo(tmp_path / "7" / "environ")
    monkeypatch.setattr(process_files, "PROC", tmp_path)
    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        users_process.environ_of(7)
    assert time.monotonic() - began_s < 10
