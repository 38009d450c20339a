"""``python -m holdfast.launcher``: the same as ``holdfast run``."""

import sys

from holdfast.launcher.main import main

sys.exit(main())
