"""The parser of the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from holdfast_checks.cli import explaining, learning, listing, replaying, running
from holdfast_checks.cli.show import UNKNOWN

_EPILOG = """\
exit codes: 0 OK, 1 warning or degraded, 2 failed (run, replay); 3 unknown, or wrong use

  holdfast-checks list
  holdfast-checks run --config /etc/holdfast/agent.toml
  holdfast-checks explain xid 79
  dmesg | holdfast-checks replay -
"""
_RUN = """\
examples:
  holdfast-checks run 'gpu.*' host.disk -v
  holdfast-checks run --config /etc/holdfast/agent.toml --samples /run/holdfast/checks.json
  holdfast-checks run 'active.*' --active        on an idle node

A finding of a check that observes, or of one that wants to see it several times and has not, counts as a warning.
"""
_EXPLAIN = """\
examples:
  holdfast-checks explain gpu.thermal
  holdfast-checks explain xid 79
  holdfast-checks explain sxid 20034
  holdfast-checks explain dcgm 38
  holdfast-checks explain efa
"""
_REPLAY = """\
examples:
  dmesg | holdfast-checks replay -
  holdfast-checks replay /var/log/kern.log --json
"""
_LEARN = """\
examples:
  holdfast-checks learn --config /etc/holdfast/agent.toml
  holdfast-checks learn --state-dir /var/lib/holdfast --force
  holdfast-checks learn --config /etc/holdfast/agent.toml --active        on an idle node, three times or more
"""
_LIST = """\
examples:
  holdfast-checks list
  holdfast-checks list 'host.*' --json
"""


class _Parser(argparse.ArgumentParser):
    """Wrong use is one line, and 3: with 2 a monitor would take a typing mistake for a failed node."""

    def error(self, message: str) -> NoReturn:
        self.exit(UNKNOWN, f"holdfast-checks: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Every verb with its options."""
    whole = _Parser(
        prog="holdfast-checks",
        description="Health checks of a GPU node.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = whole.add_subparsers(required=True, metavar="COMMAND")
    verb = _verb(verbs, "list", "list the checks", _LIST)
    verb.add_argument("ids", nargs="*", metavar="ID", help="ids or patterns such as 'gpu.*' (default: all)")
    verb.add_argument("--json", action="store_true", help="one JSON object a check and line")
    _config(verb)
    verb.set_defaults(run=listing.run)
    _run(_verb(verbs, "run", "run checks once, here and now", _RUN))
    verb = _verb(verbs, "explain", "say what a check or a code means", _EXPLAIN)
    verb.add_argument("what", metavar="ID", help="a check's id or a prefix of several; or xid, sxid, dcgm, check")
    verb.add_argument("name", nargs="?", default="", metavar="CODE", help="a number, after xid, sxid and dcgm")
    verb.set_defaults(run=explaining.run)
    verb = _verb(verbs, "replay", "judge a kernel log (dmesg, journal, syslog or /dev/kmsg text)", _REPLAY)
    verb.add_argument("file", metavar="FILE", help="- for standard input")
    verb.add_argument("--json", action="store_true", help="one JSON object a finding and line")
    verb.set_defaults(run=replaying.run)
    verb = _verb(verbs, "learn", "write down what this node, a good one, is made of", _LEARN)
    _config(verb)
    verb.add_argument(
        "--state-dir", type=Path, metavar="DIR", help="where to (default: state_dir of the configuration)"
    )
    verb.add_argument("--active", action="store_true", help="also run the active tests and add them to the baseline")
    verb.add_argument("--force", action="store_true", help="replace the manifest that is there")
    verb.set_defaults(run=learning.run)
    return whole


def _run(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "ids", nargs="*", metavar="ID", help="ids or patterns such as 'gpu.*' (default: all but active ones)"
    )
    verb.add_argument("--active", action="store_true", help="also those that need an idle node; they disturb jobs")
    shape = verb.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="one JSON object a result and line")
    shape.add_argument(
        "--reason",
        action="store_true",
        help="print one line where a finding calls for taking the node out of service, else nothing",
    )
    verb.add_argument("-v", "--verbose", action="store_true", help="show what is OK or skipped too")
    _config(verb)
    verb.add_argument(
        "--deadline",
        type=float,
        metavar="S",
        help="seconds for the whole run; what does not fit is unknown (default: 25, with --active none; 0: none)",
    )
    verb.add_argument("--samples", type=Path, metavar="FILE", help="keep what checks compare with the next run here")
    verb.add_argument("--expected-gpus", type=int, metavar="N", help="instead of the configuration's gpu_count")
    verb.add_argument(
        "--nvml-deadline-s", type=float, metavar="S", help="NVML not answering for this long counts as unknown"
    )
    verb.add_argument("--slurmd-pid-file", type=Path, metavar="FILE", help="where slurmd keeps its process id")
    verb.add_argument("--node", metavar="NAME", help="Slurm's name of this node, where several run on one machine")
    verb.set_defaults(run=running.run)


def _config(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--config", type=Path, metavar="FILE", help="the agent's agent.toml: what the site says of its nodes"
    )


def _verb(verbs: argparse._SubParsersAction[_Parser], name: str, text: str, epilog: str) -> _Parser:
    return verbs.add_parser(
        name, help=text, description=text, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
