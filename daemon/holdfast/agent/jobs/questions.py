"""Requests on the job socket: open fatal findings of the node, the newest complete checkpoint, the rendezvous of an elastic job.

A request is one line, the answer one line of compact JSON (docs/slurm-plugins.md). A checkpoint is searched for in a child with the
requesting user's rights and a deadline, so that neither a user's files nor a dead file server can harm the agent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.agent.jobs.rendezvous import Rooms, no_room
from holdfast.agent.node.container_paths import as_said
from holdfast.agent.node.job_gate import JobGate
from holdfast.agent.node.readers import READERS, ReaderPool
from holdfast.agent.sending.statements import Malformed, absolute_path, read_object, whole_number
from holdfast.model.errors import Unavailable
from holdfast.model.jobs.said import RESTARTS_MAX

log = logging.getLogger(__name__)

ROOM = "ask.room"
KINDS = frozenset({"ask.standing", "ask.latest", ROOM})
_WITHIN_MS = (50, 5000)
_LINE_MAX = 8000
_NONE = 10
_LOOK = f"""
where, uid, within_s = sys.argv[1:]
become_user(int(uid), float(within_s))
newest = must_know(survey(os.path.abspath(where), limits=Limits(deadline_s=float(within_s))))
if newest is None:
    sys.exit({_NONE})
sys.stdout.write(newest.path)
"""


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """One request as received."""

    kind: str
    directory: str = ""
    within_s: float = 1.0
    job_id: int = 0
    """For ``ask.room``: the job that the sender claims; not verified yet."""
    restarts: int = 0


def parse_question(line: bytes) -> JobQuestion | None:
    """Parse a request; None: the line is no request (but perhaps a statement). Raises Malformed for an invalid request."""
    try:
        raw = read_object(line)
    except Malformed:
        return None
    if raw["kind"] not in KINDS:
        return None
    if raw["kind"] == "ask.standing":
        return JobQuestion("ask.standing")
    if raw["kind"] == ROOM:
        return JobQuestion(
            ROOM,
            job_id=whole_number(raw, "job_id", low=1),
            restarts=whole_number(raw, "restarts", default=0, high=RESTARTS_MAX),
        )
    directory = absolute_path(raw.get("dir"))
    if directory is None:
        raise Malformed("dir is missing")
    return JobQuestion("ask.latest", directory, _within_s(raw))


def _within_s(raw: Mapping[str, Any]) -> float:
    value = raw.get("within_ms", 1000)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed("within_ms must be a whole number")
    low, high = _WITHIN_MS
    return min(max(value, low), high) / 1000


class Answers:
    """Answers requests; safe to use from any thread."""

    def __init__(self, rooms: Rooms | None = None, readers: ReaderPool = READERS) -> None:
        """Without ``rooms`` no job has a rendezvous."""
        self._rooms = rooms
        self.fatal: tuple[str, ...] = ()
        """Open fatal findings, as ``check component code``; set by the agent's loop."""
        self.gate = JobGate()
        self._let_in = ""
        self._readers = readers

    def standing(self) -> bytes:
        """The open fatal findings as one text, so that a shell script needs no list: under ``fatal`` where jobs are to be kept off, else
        under ``observed``."""
        found, incident = "; ".join(self.fatal)[:2000], self.gate.closed_by
        if found and incident is not None:
            return encode({"v": 1, "kind": "standing", "mode": "act", "fatal": found, "incident": incident})
        if found and found != self._let_in:
            log.warning("event=jobs_let_in fatal=%r reason='the controller drains this node for no incident'", found)
        self._let_in = found
        return encode({"v": 1, "kind": "standing", "mode": "observe", "fatal": "", "observed": found})

    def room(self, job_id: int, uid: int, restarts: int, pid: int) -> bytes:
        """The rendezvous of a run. Blocks until a controller answers."""
        if self._rooms is None:
            return encode(no_room("this agent knows no controller", retry=False))
        return encode(self._rooms.of(job_id, uid, restarts, pid))

    def latest(self, directory: str, uid: int, within_s: float, *, said: str | None = None) -> bytes:
        """The newest complete checkpoint. Blocks for ``within_s``, including the wait for the user's other requests, and at most 1 s more.

        ``said``: the directory's path in the sender's container; the answer uses it."""
        try:
            done = self._readers.run(uid, _LOOK, (directory, uid, within_s), within_s)
        except Unavailable as error:
            return encode({"error": str(error)})
        path = done.text.rstrip("\n")
        if done.status == _NONE:
            return encode({"v": 1, "kind": "latest", "path": None})
        if done.status or not path.startswith("/"):
            return encode({"error": "nothing can be said of the directory now"})
        return encode({"v": 1, "kind": "latest", "path": as_said(path, directory, said or directory)})


def encode(answer: Mapping[str, object]) -> bytes:
    line = json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    return line + b"\n" if len(line) <= _LINE_MAX else b'{"error":"the answer is too long"}\n'
