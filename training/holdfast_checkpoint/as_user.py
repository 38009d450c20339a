"""Judging a user's directory from a daemon or as root: in a child that has become that user, with a deadline.

The child starts as root with a clean environment, imports what it needs, gives up its rights for good and only then
opens anything. (So the user need not be able to read the interpreter, and a process that changed its uid cannot be
traced by that user.) Its answer is still taken as the user's word: bounded and checked field by field, good for
deciding where *this user's* job resumes and for nothing else.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from holdfast_checkpoint.confined import Limits
from holdfast_checkpoint.model import Checkpoint, CheckpointError, Survey, Unreadable
from holdfast_checkpoint.tail import Tail
from holdfast_checkpoint.wire import parse_checkpoint, parse_survey

_START = "import sys; sys.path.insert(0, sys.argv[1]); from holdfast_checkpoint.child import main; main()"
_ANSWER_BYTES_MAX = 32 << 20
_MARGIN_S = 3.0
"""Beyond the deadline that the child keeps by itself: its start and the answer."""
_REAP_S = 1.0
"""A child that hangs in the kernel on a dead file server cannot even be killed; it is left behind then."""


@dataclass(frozen=True)
class Identity:
    """Whose rights the child takes."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    """Supplementary groups."""


def identity_of(uid: int) -> Identity:
    """The identity from the user database. Raises CheckpointError for a uid without an entry."""
    try:
        entry = pwd.getpwuid(uid)
    except (KeyError, OverflowError) as error:
        raise CheckpointError(f"uid {uid} is not in the user database; give its groups explicitly") from error
    return Identity(uid, entry.pw_gid, tuple(sorted(os.getgrouplist(entry.pw_name, entry.pw_gid))))


def survey_as(
    directory: str,
    who: Identity,
    *,
    to_the_end: bool = False,
    digests: bool | None = None,
    any_owner: bool = False,
    limits: Limits | None = None,
    enough: int = 1,
    must_exist: bool = False,
) -> Survey:
    """:func:`~holdfast_checkpoint.judge.survey` as another user. Raises Unreadable."""
    options: dict[str, bool | int | None] = {"digests": digests, "any_owner": any_owner}
    if not to_the_end:
        options |= {"enough": enough, "must_exist": must_exist}
    verb = "survey_all" if to_the_end else "survey"
    answer = _ask(verb, directory, who, limits or Limits(), options)
    try:
        return parse_survey(answer)
    except (ValueError, TypeError) as error:
        raise Unreadable(f"the judge gave an answer that cannot be read: {error}") from error


def verify_as(path: str, who: Identity, *, any_owner: bool = False, limits: Limits | None = None) -> Checkpoint:
    """:func:`~holdfast_checkpoint.judge.verify` as another user. Raises Unreadable, FileNotFoundError."""
    answer = _ask("verify", path, who, limits or Limits(), {"any_owner": any_owner})
    try:
        return parse_checkpoint(answer)
    except (ValueError, TypeError) as error:
        raise Unreadable(f"the judge gave an answer that cannot be read: {error}") from error


def tail_as(path: str, who: Identity, *, from_byte: int = 0, limits: Limits | None = None) -> Tail:
    """The last 64 KiB of a file (:func:`~holdfast_checkpoint.tail.tail`) as another user. Raises Unreadable, FileNotFoundError."""
    said = _ask("tail", path, who, limits or Limits(), {"from_byte": from_byte})
    text, size_bytes, quiet_s = said.get("text"), said.get("size_bytes"), said.get("quiet_s")
    if not isinstance(text, str) or type(size_bytes) is not int or not isinstance(quiet_s, (int, float)):
        raise Unreadable("the answer holds no text")
    return Tail(text, size_bytes, float(quiet_s))


def _ask(verb: str, path: str, who: Identity, limits: Limits, options: dict[str, bool | int | None]) -> dict[str, Any]:
    if os.geteuid() != 0 and who.uid != os.geteuid():
        raise CheckpointError(f"only root can judge as uid {who.uid}")
    request = {
        "verb": verb,
        "path": os.path.abspath(path),
        "who": asdict(who) if os.geteuid() == 0 else None,
        "limits": asdict(limits),
        "options": options,
    }
    try:
        answer = json.loads(_run_child(json.dumps(request).encode(), limits.deadline_s + _MARGIN_S))
    except (ValueError, RecursionError) as error:
        raise Unreadable("the judge gave no answer") from error
    if not isinstance(answer, dict):
        raise Unreadable("the judge gave no answer")
    if answer.get("error") == "FileNotFoundError":
        raise FileNotFoundError(f"no such {'file' if verb == 'tail' else 'checkpoint'}: {path}")
    if "error" in answer:
        raise Unreadable(str(answer.get("text"))[:500])
    return answer


def _run_child(request: bytes, deadline_s: float) -> bytes:
    package_folder = str(Path(__file__).resolve().parent.parent)
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _START, package_folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"LC_ALL": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    )
    if child.stdin is None or child.stdout is None:
        raise Unreadable("the judge has no pipes")
    timer = threading.Timer(deadline_s, _kill, (child,))
    timer.daemon = True
    timer.start()
    try:
        return _exchange(child.stdin, child.stdout, request, deadline_s)
    finally:
        timer.cancel()
        _kill(child)
        child.stdout.close()
        _reap(child)


def _exchange(stdin: IO[bytes], stdout: IO[bytes], request: bytes, deadline_s: float) -> bytes:
    """The read ends when the child has answered or its end of the pipe has been closed by the kill."""
    answer: list[bytes] = []
    reader = threading.Thread(target=lambda: answer.append(stdout.read(_ANSWER_BYTES_MAX + 1)), daemon=True)
    try:
        stdin.write(request)
        stdin.close()
    except BrokenPipeError as error:
        raise Unreadable("the judge did not start") from error
    reader.start()
    reader.join(deadline_s + _REAP_S)
    if not answer:
        raise Unreadable("the judge hangs; the file system may be dead")
    if not answer[0] or len(answer[0]) > _ANSWER_BYTES_MAX:
        raise Unreadable("the judge passed its deadline or was ended")
    return answer[0]


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)


def _reap(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(_REAP_S)
    except subprocess.TimeoutExpired:
        threading.Thread(target=child.wait, daemon=True).start()
