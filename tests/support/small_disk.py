"""A file system of a few megabytes that tests really fill, and remount read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE = "8m"


class SmallDisk:
    """A separate tmpfs, mounted at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Fill it to the last byte."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while file.write(b"\0" * size):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        """Release the space that :meth:`fill` took."""
        self._filler.unlink()

    def read_only(self, on: bool) -> None:
        """Refuse every write, or accept them again. The kernel refuses while a file is open for writing."""
        subprocess.run(["mount", "-o", f"remount,{'ro' if on else 'rw'}", self.path], check=True)


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Skips the test where this user may not mount."""
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", path], check=False, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"may not mount a file system (uid {os.getuid()}): {done.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", path], check=True)
