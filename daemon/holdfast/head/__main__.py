"""``python -m holdfast.head controller|actor|quorum --config FILE``: the head node's daemons without the command line's packages."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def _run(options: argparse.Namespace) -> int:
    """Run the chosen process; imports only what it needs."""
    if options.process == "quorum":
        from holdfast.head import quorum_main  # noqa: PLC0415

        if options.export:
            return quorum_main.export(options.config)
        if options.write is not None:
            return quorum_main.write(options.config, options.user, options.write)
        return quorum_main.run(options.config, options.user)
    if options.process == "actor":
        from holdfast.head import actor_main  # noqa: PLC0415

        return actor_main.run(options.config)
    from holdfast.head import controller_main  # noqa: PLC0415

    return controller_main.run(options.config)


def main() -> None:
    """Run one process of the head node until it ends."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.head", description=__doc__)
    parser.add_argument("process", choices=("controller", "actor", "quorum"))
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument(
        "--user",
        action="append",
        default=[],
        help="quorum: a user who may use its socket, in addition to root and its own user",
    )
    parser.add_argument(
        "--write", type=Path, help="quorum: write its arguments there, as root, for python -m holdfast.quorum @FILE"
    )
    parser.add_argument(
        "--export", action="store_true", help="quorum: print the rendezvous that the controller's database still has"
    )
    sys.exit(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
