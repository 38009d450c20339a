"""``python -m holdfast_checkpoint latest DIR``."""

from __future__ import annotations

import sys

from holdfast_checkpoint.cli import main

sys.exit(main())
