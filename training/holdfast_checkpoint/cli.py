"""``python -m holdfast_checkpoint``: command line for jobs and scripts that have only this library.

Exit status: 0 found or complete; 2 wrong use; 3 unknown; 4 there is none, or it is not complete. 1 is Python's own status for a
crashed program: it never means that there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from holdfast_checkpoint import statements
from holdfast_checkpoint.as_user import UserIdentity, identity_of, survey_as, verify_as
from holdfast_checkpoint.base.confined import Limits
from holdfast_checkpoint.base.model import Checkpoint, CheckpointError, CheckpointVerdict, Layout, Survey, Unreadable
from holdfast_checkpoint.base.runs import run_from_env
from holdfast_checkpoint.judge import must_know, survey, survey_all, verify
from holdfast_checkpoint.presence import must_be_there, must_lead_somewhere
from holdfast_checkpoint.statements import StatementResult
from holdfast_checkpoint.wire import dump_checkpoint, dump_survey

FOUND, USAGE, UNKNOWN, NONE = 0, 2, 3, 4
SAVE_SIGNAL_ENV = "HOLDFAST_SAVE_SIGNAL"
_USERS_OWN = ("USR1", "USR2")
VERIFY_DEADLINE_S = 3600.0
"""Deadline of a verification with all digests, which is expected to take long: at 2 GB/s this reads 7 TB."""


def owner_to_become(path: str) -> UserIdentity | None:
    """Identity to use for this path: for root that of its owner, for everyone else (and root's own files) none.

    Raises CheckpointError when the owner is not in the user database, FileNotFoundError."""
    if os.geteuid() != 0:
        return None
    owner = os.stat(path).st_uid
    return identity_of(owner) if owner else None


def find(directory: str, *, to_the_end: bool = False, any_owner: bool = False, digests: bool | None = None) -> Survey:
    """A survey with the right identity. Raises Unreadable, CheckpointError. A missing directory holds nothing."""
    if not os.path.exists(directory):
        must_lead_somewhere(directory)
    try:
        who = owner_to_become(directory)
    except FileNotFoundError:
        return Survey(os.path.abspath(directory))
    if who is not None:
        return survey_as(directory, who, to_the_end=to_the_end, digests=digests, any_owner=any_owner)
    return (survey_all if to_the_end else survey)(directory, digests=digests, any_owner=any_owner)


def check(path: str, *, any_owner: bool = False, deadline_s: float = VERIFY_DEADLINE_S) -> Checkpoint:
    """Verify one checkpoint with the right identity. Raises Unreadable, CheckpointError, FileNotFoundError."""
    who, limits = owner_to_become(path), Limits(deadline_s=deadline_s)
    if who is None:
        return verify(path, any_owner=any_owner, limits=limits)
    return verify_as(path, who, any_owner=any_owner, limits=limits)


def tell_agent(directory: str, *, layout: str = "auto", save_signal: str | None = None) -> statements.Receipt:
    """Register a directory for the job that this process belongs to. Returns whether an agent accepted it.

    Raises CheckpointError outside a job or for a directory that does not exist."""
    run = run_from_env(os.environ)
    if "SLURM_JOB_ID" not in os.environ:
        raise CheckpointError("SLURM_JOB_ID is not set: register from inside the job")
    if not os.path.isdir(directory):
        raise CheckpointError(f"{directory} is not a directory")
    return statements.send_once(statements.register(directory, run, layout=layout, save_signal=save_signal))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status."""
    arguments = _parser().parse_args(argv)
    verb: Callable[[argparse.Namespace], int] = arguments.verb
    try:
        return verb(arguments)
    except Unreadable as error:
        return _complain(str(error), UNKNOWN)
    except FileNotFoundError as error:
        return _complain(f"{error.filename}: there is no such path", NONE)
    except (CheckpointError, OSError, ValueError) as error:
        return _complain(str(error), UNKNOWN)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m holdfast_checkpoint", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for name, verb, where, text in (
        ("latest", _latest, "directory", "print the path of the newest complete checkpoint"),
        ("list", _list, "directory", "judge every checkpoint of a directory"),
        ("verify", _verify, "path", "judge one checkpoint, every digest included"),
        ("register", _register, "directory", "register this job's checkpoint directory with the node's agent"),
    ):
        sub = verbs.add_parser(name, help=text, description=text)
        sub.set_defaults(verb=verb)
        sub.add_argument(where, type=_named)
        if verb is _register:
            sub.add_argument("--layout", default="auto", choices=["auto", *(layout.value for layout in Layout)])
            sub.add_argument("--save-signal", metavar="NAME", help="signal on which the job saves, such as USR1")
            continue
        sub.add_argument("--json", action="store_true", help="print JSON")
        sub.add_argument("--any-owner", action="store_true", help="take files of other users too")
        if verb is _latest:
            sub.add_argument(
                "--ignore-unknown",
                action="store_true",
                help="leave out what cannot be judged: take the newest of the others, or start afresh",
            )
    return parser


def _named(path: str) -> str:
    """Reject an empty path: it means an unset variable, not the working directory."""
    if not path.strip():
        raise argparse.ArgumentTypeError("the path is empty: is its variable set?")
    return path


def _latest(arguments: argparse.Namespace) -> int:
    if not os.path.exists(arguments.directory):
        must_be_there(arguments.directory, run_from_env(os.environ))
    found = find(arguments.directory, any_owner=arguments.any_owner)
    newest = must_know(found, ignore_unknown=arguments.ignore_unknown)
    for candidate in found.passed_over:
        _complain(f"passed over {candidate.name}: {candidate.verdict}: {candidate.reason}")
    if newest is None and found.others:
        _complain(
            f"nothing is known of {', '.join(found.others)}: if it is what your job resumes from, name it yourself"
        )
    if arguments.json:
        _show(dump_survey(found))
    elif newest is not None:
        sys.stdout.write(newest.path + "\n")
    return FOUND if newest else NONE


def _list(arguments: argparse.Namespace) -> int:
    found = find(arguments.directory, to_the_end=True, any_owner=arguments.any_owner)
    if arguments.json:
        _show(dump_survey(found))
    else:
        for c in found.candidates:
            sys.stdout.write(f"{c.step if c.step is not None else '-':>12}  {c.verdict:<10}  {c.name}  {c.reason}\n")
    for warning in found.warnings:
        _complain(warning)
    try:
        return FOUND if must_know(found) else NONE
    except Unreadable as error:
        return _complain(str(error), UNKNOWN)


def _verify(arguments: argparse.Namespace) -> int:
    checkpoint = check(arguments.path, any_owner=arguments.any_owner)
    if arguments.json:
        _show(dump_checkpoint(checkpoint))
    else:
        known = checkpoint.reason or f"proved by {checkpoint.proof}"
        sys.stdout.write(f"{checkpoint.name}: {checkpoint.verdict}: {known}\n")
    if checkpoint.verdict is CheckpointVerdict.UNREADABLE:
        return UNKNOWN
    return FOUND if checkpoint.complete else NONE


def _register(arguments: argparse.Namespace) -> int:
    name = arguments.save_signal
    partly = name is not None and not _taken_on_all_nodes(name)
    receipt = tell_agent(arguments.directory, layout=arguments.layout, save_signal=None if partly else name)
    if receipt.taken is StatementResult.YES:
        if partly:
            _complain(
                f"registered without the signal {name}: agents of the job's other nodes would not send it, and half a job that saves "
                f"hangs. Take USR1 or USR2, or export {SAVE_SIGNAL_ENV}={_plain_name(name or '')} in the script before this command "
                "and srun (and no sbatch --export=NONE)"
            )
        return FOUND
    found = "the checkpoints are found by their files all the same"
    return _complain(f"no agent took the registration; {found}: {_why(receipt)}", NONE)


def _taken_on_all_nodes(name: str) -> bool:
    """Whether the agents of all of the job's nodes send the signal: only this node's receives the registration. The
    others send the signal set in the tasks' environment, else only user signals (USR1, USR2)."""
    wanted, exported = _plain_name(name), _plain_name(os.environ.get(SAVE_SIGNAL_ENV, ""))
    if os.environ.get("SLURM_JOB_NUM_NODES", "1") in ("", "1"):
        return True
    if exported == "" or os.environ.get("SLURM_EXPORT_ENV", "ALL").upper() == "NONE":
        return wanted in _USERS_OWN
    return wanted == exported


def _plain_name(signal: str) -> str:
    return signal.upper().removeprefix("SIG")


def _why(receipt: statements.Receipt) -> str:
    if receipt.taken is StatementResult.CLOSED:
        return "the agent closed the connection (it is stopping, or has too many connections)"
    if receipt.taken is StatementResult.NO_ANSWER:
        return "the agent did not answer in time"
    return receipt.detail if receipt.taken is StatementResult.NO_AGENT else f"the agent refused it ({receipt.detail})"


def _show(value: dict[str, Any]) -> None:
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _complain(text: str, status: int = USAGE) -> int:
    sys.stderr.write(f"{text}\n")
    return status
