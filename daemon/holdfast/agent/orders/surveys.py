"""Surveys of jobs' checkpoint directories: list the complete checkpoints, with the job's own rights.

A child reads with the user's rights and a deadline (:mod:`holdfast.agent.node.readers`), so that neither a user's files nor a dead file
server can block the agent; one at a time for each user, four in all."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.agent.node.readers import READERS, ReaderPool, TooManyReads
from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.survey_plan import SurveyPlan, SurveyTarget, target_of
from holdfast.agent.sending.outbox import OutboxItem
from holdfast.agent.sending.statements import Malformed
from holdfast.agent.timing.jitter import JITTER
from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.jobs.surveys import SURVEYED, Written, dump_written

log = logging.getLogger(__name__)

WITHIN_S = 20.0
"""Deadline of a scheduled read."""
ORDERED_WITHIN_S = 5.0
"""Deadline of a read after a fault: the answer is useful only for a moment."""
_MARGIN_S = 5.0
"""Additional time beyond the child's own deadline: its start, and the wait for another read of the same user."""
_AT_A_TIME = 4
_ENTRIES = 20_000
"""Maximum number of directory entries read in all: of the directory itself and of each checkpoint that is a folder."""
_ENOUGH = 3
"""Number of newest complete checkpoints that are reported: enough to show which one a run resumed from, and how fast it saves."""
_ANSWER_MAX = 64 << 10
_LOOK = f"""
import time
where, uid, within_s = sys.argv[1:]
limits = Limits(deadline_s=float(within_s), entries={_ENTRIES}, small_file_bytes=16 << 20)
now_s = time.time()
try:
    become_user(int(uid), limits.deadline_s)
    found = survey(os.path.abspath(where), digests=False, limits=limits, enough={_ENOUGH}, must_exist=True)
except FAULTS as error:
    answer = {{"known": False, "problem": printable(str(error))}}
else:
    complete = [c for c in found.candidates if c.complete][:{_ENOUGH}]
    doubt = [printable(s) + ": a file of which nothing is known" for s in found.others]
    doubtful = ("refused",) if complete else ("refused", "torn")  # torn ones alone: perhaps of a layout that is not known
    doubt += [c.name + ": " + c.reason for c in found.passed_over if c.verdict in doubtful]
    try:
        must_know(found)
    except CheckpointError as error:
        doubt.insert(0, str(error))
    answer = {{
        "known": not doubt,
        "problem": printable(doubt[0]) if doubt else "",
        "layout": complete[0].layout.value if complete else "",
        "complete": [[c.step, None if c.mtime is None else round(now_s - c.mtime.timestamp(), 3)] for c in complete],
    }}
sys.stdout.write(json.dumps(answer))
"""


@dataclass(frozen=True, slots=True)
class SurveyedDirectory:
    """Result of a read."""

    known: bool
    """Whether there is certainly nothing newer: all candidates that rank before were read and are not complete."""
    complete: tuple[Written, ...] = ()
    """The newest complete checkpoints, newest first."""
    layout: str = ""
    problem: str = ""
    read_s: float | None = field(default=None, compare=False)
    """Duration of the read itself, without the wait for another read of the same user; None: all of the time."""

    def item(self, target: SurveyTarget, began_s: float) -> OutboxItem:
        """Item for the outbox. Only the latest of each run waits."""
        body: dict[str, Any] = {
            "kind": "statement",
            "statement": SURVEYED,
            "job_id": target.job_id,
            "uid": target.uid,
            "restarts": target.restarts,
            "step": self.complete[0].step if self.complete else None,
            "path": target.directory,
            "detail": {
                "known": self.known,
                "layout": self.layout,
                "complete": dump_written(self.complete),
                "problem": self.problem[:200],
            },
        }
        return OutboxItem(body, began_s, f"survey/{target.job_id}/{target.restarts}")


@dataclass(slots=True)
class CheckpointSurveys:
    """Scheduled reads, in a thread that mostly waits, and reads by order."""

    report: Callable[[OutboxItem], None]
    look: Callable[[SurveyTarget, float], SurveyedDirectory]
    """Reads a directory within this many seconds; blocks."""
    clock_s: Callable[[], float] = time.monotonic
    _plan: SurveyPlan = field(default_factory=lambda: SurveyPlan(JITTER.uniform))
    _reading: dict[int, SurveyTarget | None] = field(default_factory=dict)
    """By uid: a read is in flight; the target that is read next by order."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _wake: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="surveys", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Start no more reads; one in flight ends with the process."""
        self._stopping = True
        self._wake.set()

    def told(self, named: object) -> None:
        """Process the targets from the answer to a heartbeat."""
        with self._lock:
            self._plan.told(named, self.clock_s())
        self._wake.set()

    def handler(self) -> OrderHandler:
        """Read a directory now. The order is done once the read has started: the result is reported separately."""

        def verb(order: ReceivedOrder) -> OrderResult:
            try:
                target = target_of(dict(order.args))
            except Malformed as error:
                raise Rejected(str(error)) from error
            return self._ordered(target)

        return verb

    def _ordered(self, target: SurveyTarget) -> OrderResult:
        with self._lock:
            if not self._plan.may_read(target, self.clock_s()):
                return OrderResult(False, f"{target.directory} did not answer lately and is not read now")
            if target.uid in self._reading:
                self._reading[target.uid] = target
                return OrderResult(True, "is read after the read in flight")
            if len(self._reading) >= _AT_A_TIME:
                return OrderResult(False, f"{_AT_A_TIME} directories are being read")
            self._begin(target, ORDERED_WITHIN_S)
        return OrderResult(True, f"{target.directory} is being read")

    def _run(self) -> None:
        while not self._stopping:
            with self._lock:
                self._begin_due()
                next_s = self._plan.next_s()
            wait_s = 60.0 if next_s is None else min(max(next_s - self.clock_s(), 0.05), 60.0)
            self._wake.wait(wait_s)
            self._wake.clear()

    def _begin_due(self) -> None:
        now_s = self.clock_s()
        for target in self._plan.due(now_s):
            if target.uid in self._reading or len(self._reading) >= _AT_A_TIME:
                self._plan.put_off(target, now_s)
            else:
                self._begin(target, WITHIN_S)

    def _begin(self, target: SurveyTarget, within_s: float) -> None:
        self._reading[target.uid] = None
        try:
            threading.Thread(target=self._read, args=(target, within_s), name="survey", daemon=True).start()
        except RuntimeError:  # no more threads: the agent matters more than a survey
            del self._reading[target.uid]
            self._plan.put_off(target, self.clock_s())

    def _read(self, target: SurveyTarget, within_s: float) -> None:
        began_s = self.clock_s()
        seen = self.look(target, within_s)
        ended_s = self.clock_s()
        took_s = ended_s - began_s if seen.read_s is None else seen.read_s
        with self._lock:
            self._plan.read(target, took_s, ended_s, hung=took_s >= within_s)
            after = self._reading.pop(target.uid, None)
            if after is not None and self._plan.may_read(after, ended_s) and not self._stopping:
                self._begin(after, ORDERED_WITHIN_S)
        self._wake.set()
        names = (target.job_id, target.uid, seen.known, round(took_s, 3), seen.problem)
        log.info("event=checkpoints_surveyed job=%d uid=%d known=%s seconds=%g problem=%r", *names)
        self.report(seen.item(target, began_s))


def look(target: SurveyTarget, within_s: float, readers: ReaderPool = READERS) -> SurveyedDirectory:
    """Read the directory in a child, with the user's rights."""
    args = (target.directory, target.uid, within_s)
    try:
        done = readers.run(target.uid, _LOOK, args, within_s + _MARGIN_S, max_bytes=_ANSWER_MAX + 1)
    except TooManyReads as error:
        return SurveyedDirectory(known=False, problem=str(error), read_s=0.0)
    except Unavailable as error:
        return SurveyedDirectory(known=False, problem=str(error))
    return replace(parse(done.out), read_s=done.seconds)


def parse(answer: bytes) -> SurveyedDirectory:
    """Parse the child's answer; an invalid one counts as not known."""
    try:
        raw = json.loads(answer) if len(answer) <= _ANSWER_MAX else None
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict):
        return SurveyedDirectory(known=False, problem="the reader gave no answer")
    problem = str(raw.get("problem") or "")
    complete = raw.get("complete")
    pairs = complete if isinstance(complete, list) else []
    written = tuple(w for pair in pairs[:_ENOUGH] if (w := _written(pair)) is not None)
    return SurveyedDirectory(raw.get("known") is True, written, str(raw.get("layout") or ""), problem)


def _written(pair: object) -> Written | None:
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    step, age_s = pair
    if not (step is None or (type(step) is int and 0 <= step < 1 << 63)):
        return None
    return Written(step, float(age_s) if isinstance(age_s, int | float) and not isinstance(age_s, bool) else None)
