"""``python -m holdfast.controller controller|actor|quorum --config FILE``: the head node's daemons without the command line's packages."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def _run(options: argparse.Namespace) -> int:
    """Only what this process needs is loaded."""
    if options.process == "quorum":
        from holdfast.controller import quorum_main  # noqa: PLC0415

        return quorum_main.run(options.config, options.user)
    if options.process == "actor":
        from holdfast.controller import actor_main  # noqa: PLC0415

        return actor_main.run(options.config)
    from holdfast.controller import main  # noqa: PLC0415

    return main.run(options.config)


parser = argparse.ArgumentParser(prog="python -m holdfast.controller", description=__doc__)
parser.add_argument("process", choices=("controller", "actor", "quorum"))
parser.add_argument("--config", type=Path, required=True)
parser.add_argument(
    "--user", action="append", default=[], help="quorum: a user who may speak on its socket besides root and its own"
)
sys.exit(_run(parser.parse_args()))
