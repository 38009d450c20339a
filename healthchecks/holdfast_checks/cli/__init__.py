"""``holdfast-checks``: the checks of this node by hand, from monitoring (Nagios exit codes) or from Slurm, without any daemon."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from holdfast_checks.cli.parser import parser
from holdfast_checks.cli.show import UNKNOWN

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    args = parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()  # whoever read the output has seen enough
        return UNKNOWN
    except OSError as error:
        sys.stderr.write(f"holdfast-checks: {f'{error.filename}: {error.strerror}' if error.filename else error}\n")
        return UNKNOWN
    except ValueError as error:
        sys.stderr.write(f"holdfast-checks: {error}\n")
        return UNKNOWN
    return code
