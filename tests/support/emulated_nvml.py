"""The emulated NVML for tests of several rooms."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from holdfast.practice.nvml.build import build


@cache
def library() -> Path:
    """The emulated library, built once for each version of its source."""
    return build(Path(tempfile.gettempdir()) / f"holdfast-test-nvml-{os.getuid()}")
