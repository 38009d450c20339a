"""``python -m holdfast_checks``."""

import sys

from holdfast_checks.cli import main

sys.exit(main())
