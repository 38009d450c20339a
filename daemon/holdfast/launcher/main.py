"""``holdfast run``'s command line. Its exit status is the group's."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from holdfast.launcher.launcher import Launcher, Options
from holdfast.launcher.place import LauncherPlace, WrongUse, place_from_env

WRONG_USE = 2
SYSTEM = 71
"""EX_OSERR of sysexits.h: no more processes, or the like."""
_EPILOG = (
    "Exit status: 0 done; 85 the group has left and wants to be queued again (RequeueExit=85 in slurm.conf);"
    " 93 do not queue it again; 2 wrong use; else the command's own, 128 and the signal's number where one ended it."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongUse(f"{message}; see holdfast run --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    name = ""

    def say(text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(f"holdfast run: {name}{text}\n")
            sys.stderr.flush()

    try:
        given = parser().parse_args(sys.argv[1:] if arguments is None else arguments)
        place = place_from_env(os.environ)
        options = _options(given, place)
        name = _name(given.name, place)
        return Launcher(options, place, os.environ, say).run()
    except WrongUse as error:
        say(str(error))
        return WRONG_USE
    except OSError as error:
        say(f"the system refuses: {error}")
        return SYSTEM


def parser() -> argparse.ArgumentParser:
    made = _Parser(
        prog="holdfast run",
        description="Start the processes of one replica group on this node, or any command, and end when they are all gone.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    made.add_argument("--nproc", type=_from(1), default=1, metavar="N", help="ranks on this node (default: 1)")
    made.add_argument(
        "--restarts", type=_from(0), default=0, metavar="N",
        help="new starts in place after a rank has failed, before its exit status is handed on (default: 0; groups of one node)",
    )  # fmt: skip
    made.add_argument(
        "--deadline", type=_seconds, default=300.0, metavar="S",
        help="how long a group may take to leave where no deadline is given; then SIGTERM, 10 s later SIGKILL (default: 300)",
    )  # fmt: skip
    made.add_argument(
        "--wait",
        type=_seconds,
        default=600.0,
        metavar="S",
        help="how long to ask for the job's rendezvous; then exit 85 (default: 600)",
    )
    made.add_argument(
        "--checkpoints", metavar="DIR", help="set HOLDFAST_RESUME_FROM to the newest complete checkpoint in DIR"
    )
    made.add_argument("--name", default="", help="prefix of this launcher's lines in the job's output")
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="[--] COMMAND …", help="the training, or torchrun …")
    return made


def _options(given: argparse.Namespace, place: LauncherPlace) -> Options:
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        raise WrongUse("which command? see holdfast run --help")
    if given.restarts and place.nodes > 1:
        raise WrongUse(
            f"--restarts is for groups of one node; this one has {place.nodes}: exit, and let Slurm start it again"
        )
    return Options(tuple(command), given.nproc, given.restarts, given.deadline, given.wait, given.checkpoints)


def _name(told: str, place: LauncherPlace) -> str:
    shown = told or (f"group {place.group}" if place.group is not None else "")
    node = f", node {place.node_rank}" if place.nodes > 1 else ""
    return f"{shown}{node}: ".lstrip(", ") if shown or node else ""


def _from(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError(text)
        return value

    number.__name__ = f"whole number from {least}"
    return number


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 7 * 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds up to a week")
    return value
