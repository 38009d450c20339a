"""What may be asked on the job socket: does a fatal finding stand here, where is my newest complete checkpoint, and where is the room
of my elastic job?

A question is one line, the answer one line of compact JSON (docs/slurm-plugins.md). A checkpoint is looked for in a child that has
the asking user's rights and a deadline, so that neither a user's files nor a dead file server can do the agent any harm.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.agent.container_paths import as_said
from holdfast.agent.job_gate import JobGate
from holdfast.agent.rooms import Rooms, no_room
from holdfast.agent.statements import Malformed, absolute_path, read_object, whole_number
from holdfast.model.said import RESTARTS_MAX

log = logging.getLogger(__name__)

ROOM = "ask.room"
KINDS = frozenset({"ask.standing", "ask.latest", ROOM})
_WITHIN_MS = (50, 5000)
_AT_A_TIME = 4
"""Searches in flight; a question beyond them is refused at once."""
_LINE_MAX = 8000
_NONE = 10
_LOOK = f"""
import sys
from holdfast_checkpoint.as_user import identity_of, survey_as
from holdfast_checkpoint.confined import Limits
from holdfast_checkpoint.judge import must_know
where, uid, within_s = sys.argv[1:]
newest = must_know(survey_as(where, identity_of(int(uid)), limits=Limits(deadline_s=float(within_s))))
if newest is None:
    sys.exit({_NONE})
sys.stdout.write(newest.path)
"""
"""Not imported: the agent loads little. The judge is bounded and cannot be traced, so no user gains a process in the agent's cgroup."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question as it was asked."""

    kind: str
    directory: str = ""
    within_s: float = 1.0
    job_id: int = 0
    """Of ``ask.room``: the asker's job as it says; nothing is believed yet."""
    restarts: int = 0


def parse_question(line: bytes) -> Question | None:
    """None: the line is no question (but perhaps a statement). Raises Malformed for a question that makes no sense."""
    try:
        raw = read_object(line)
    except Malformed:
        return None
    if raw["kind"] not in KINDS:
        return None
    if raw["kind"] == "ask.standing":
        return Question("ask.standing")
    if raw["kind"] == ROOM:
        return Question(
            ROOM,
            job_id=whole_number(raw, "job_id", low=1),
            restarts=whole_number(raw, "restarts", default=0, high=RESTARTS_MAX),
        )
    directory = absolute_path(raw.get("dir"))
    if directory is None:
        raise Malformed("dir is missing")
    return Question("ask.latest", directory, _within_s(raw))


def _within_s(raw: Mapping[str, Any]) -> float:
    value = raw.get("within_ms", 1000)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed("within_ms must be a whole number")
    low, high = _WITHIN_MS
    return min(max(value, low), high) / 1000


class Answers:
    """Answers questions; safe to ask from any thread."""

    def __init__(self, rooms: Rooms | None = None) -> None:
        """Without ``rooms`` no job has one."""
        self._rooms = rooms
        self.fatal: tuple[str, ...] = ()
        """Fatal findings that stand, as ``check component code``; set by whoever judges."""
        self.gate = JobGate()
        self._let_in = ""
        self._free = threading.BoundedSemaphore(_AT_A_TIME)

    def standing(self) -> bytes:
        """What stands is one text, so that a shell's helper needs no list: ``fatal`` where jobs are to be kept off, else ``observed``."""
        found, incident = "; ".join(self.fatal)[:2000], self.gate.closed_by
        if found and incident is not None:
            return encode({"v": 1, "kind": "standing", "mode": "act", "fatal": found, "incident": incident})
        if found and found != self._let_in:
            log.warning("event=jobs_let_in fatal=%r reason='the controller drains this node for no incident'", found)
        self._let_in = found
        return encode({"v": 1, "kind": "standing", "mode": "observe", "fatal": "", "observed": found})

    def room(self, job_id: int, uid: int, restarts: int, pid: int) -> bytes:
        """Blocks for as long as the controllers let it wait."""
        if self._rooms is None:
            return encode(no_room("this agent knows no controller", retry=False))
        return encode(self._rooms.of(job_id, uid, restarts, pid))

    def latest(self, directory: str, uid: int, within_s: float, *, said: str | None = None) -> bytes:
        """Blocks for ``within_s``, and longer only while the child hangs in the kernel on a dead file server.

        ``said``: what the asker, in a container, calls the directory; the answer is in these terms."""
        if not self._free.acquire(blocking=False):
            return encode({"error": "too many questions at a time"})
        try:
            return _latest(directory, uid, within_s, said or directory)
        finally:
            self._free.release()


def encode(answer: Mapping[str, object]) -> bytes:
    line = json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    return line + b"\n" if len(line) <= _LINE_MAX else b'{"error":"the answer is too long"}\n'


def _latest(directory: str, uid: int, within_s: float, said: str) -> bytes:
    argv = [sys.executable, "-P", "-c", _LOOK, directory, str(uid), str(within_s)]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=within_s,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return encode({"error": "no answer from the file system in time"})
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("event=question_failed uid=%d error=%r", uid, str(error))
        return encode({"error": "it cannot be looked up"})
    path = done.stdout.decode(errors="replace").rstrip("\n")
    if done.returncode == _NONE:
        return encode({"v": 1, "kind": "latest", "path": None})
    if done.returncode or not path.startswith("/"):
        return encode({"error": "nothing can be said of the directory now"})
    return encode({"v": 1, "kind": "latest", "path": as_said(path, directory, said)})
