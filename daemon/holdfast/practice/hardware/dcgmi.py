"""The emulated command itself: ``python -m holdfast.practice.hardware.dcgmi FOLDER ARGUMENTS``."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.practice.hardware.dcgm import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
