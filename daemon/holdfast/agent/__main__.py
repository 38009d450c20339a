"""``python -m holdfast.agent --config FILE``: few imports, for systemd."""

import sys

from holdfast.agent.main import main

sys.exit(main())
