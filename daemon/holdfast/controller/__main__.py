"""``python -m holdfast.controller [controller|actor] --config FILE``: the two daemons without the command line's packages."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from holdfast.controller import actor_main, main

parser = argparse.ArgumentParser(prog="python -m holdfast.controller", description=__doc__)
parser.add_argument("process", choices=("controller", "actor"))
parser.add_argument("--config", type=Path, required=True)
options = parser.parse_args()
sys.exit((main if options.process == "controller" else actor_main).run(options.config))
