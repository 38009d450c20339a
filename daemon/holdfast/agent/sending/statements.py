"""Jobs' statements on their node: parsed, bound to the sender and its job, and counted. Pure except for the clock passed in."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.agent.sending.outbox import OutboxItem
from holdfast.model.jobs.said import CONTROL, PATH_MAX, RESTARTS_MAX, WHOLE_MAX

REGISTER = "checkpoint.register"
SIGNAL = "checkpoint.signal"
"""The job accepts this signal on this node, too: only for the agent, and not reported."""
KINDS = frozenset({REGISTER, "checkpoint.saved", "checkpoint.resumed", "progress"})
"""Kinds of statements that are reported."""
_DETAIL = frozenset(
    {"layout", "fenced", "save_signal", "save_s", "bytes", "run", "phase", "step_ms", "own_ms", "groups", "quorum"}
)
_MOST_COMPONENTS = 128
"""MAX_HET_JOB_COMPS of Slurm."""
_JOBS_KEPT = 1000
_Of = tuple[int, int]
"""A job's id, and the user who sends its statements."""
PROGRESS_EVERY_S = 1.0
_ACCOUNTS = 4096
"""Maximum number of accounts with a bucket; beyond it, full buckets are dropped."""
LOGGED_PER_S, LOGGED_AT_ONCE = 0.2, 60.0
"""Log lines that one user's jobs may cause: rate and burst. Further statements are reported but not logged."""


class Malformed(ValueError):
    """The line is no statement; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class UnverifiedStatement:
    """One statement as the job sent it; nothing in it is verified yet."""

    kind: str
    job_id: int
    restarts: int
    step: int | None
    path: str | None
    detail: Mapping[str, str | int | bool]
    components: tuple[int, ...] = ()
    """For a heterogeneous job: ids of its components. Tasks of all of them have the leader's id as their job id."""

    def item(self, uid: int, now_s: float) -> OutboxItem:
        """Item for the outbox, once it is bound. ``uid`` comes from the kernel. Of progress only the latest waits."""
        body: dict[str, Any] = {
            "kind": "statement",
            "statement": self.kind,
            "job_id": self.job_id,
            "uid": uid,
            "restarts": self.restarts,
            "step": self.step,
            "path": self.path,
            "detail": dict(self.detail),
        }
        key = f"progress/{self.job_id}/{self.restarts}" if self.kind == "progress" else ""
        return OutboxItem(body, now_s, key)


def read_object(line: bytes) -> dict[str, Any]:
    """The JSON object of one line, whose ``kind`` is a text. Raises Malformed."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed("not JSON") from error
    if not isinstance(raw, dict):
        raise Malformed("not an object")
    if not isinstance(raw.get("kind"), str):
        raise Malformed("unknown kind")
    try:
        json.dumps(raw, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # a lone surrogate can be neither stored nor sent
        raise Malformed("a text is not valid Unicode") from error
    return raw


def parse(line: bytes) -> UnverifiedStatement:
    """Parse a statement. Raises Malformed."""
    raw = read_object(line)
    kind = raw["kind"]
    if kind not in KINDS and kind != SIGNAL:
        raise Malformed("unknown kind")
    path = absolute_path(raw.get("dir") if kind == REGISTER else raw.get("path"))
    if kind == REGISTER and path is None:
        raise Malformed("dir is missing")
    detail = {key: value for key, value in raw.items() if key in _DETAIL and _short(value)}
    job_id = whole_number(raw, "job_id", low=1)
    restarts = whole_number(raw, "restarts", default=0, high=RESTARTS_MAX)
    step = None if raw.get("step") is None else whole_number(raw, "step")
    if step is None and kind not in (REGISTER, SIGNAL):
        raise Malformed("step is missing")
    return UnverifiedStatement(kind, job_id, restarts, step, path, detail, _components(raw.get("components")))


def absolute_path(value: object) -> str | None:
    """The path that a job names; None when it names none. Raises Malformed."""
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > PATH_MAX or not value.startswith("/"):
        raise Malformed("the path must be absolute and shorter than 4096 characters")
    if CONTROL.search(value):
        raise Malformed("the path holds control characters")
    return value


def _components(value: object) -> tuple[int, ...]:
    """Ids of the components; anything but a list of job ids is ignored."""
    if not isinstance(value, list) or len(value) > _MOST_COMPONENTS:
        return ()
    return tuple(v for v in value if isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= WHOLE_MAX)


def _short(value: object) -> bool:
    return isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= 256)


def whole_number(
    raw: Mapping[str, Any], name: str, *, low: int = 0, default: int | None = None, high: int = WHOLE_MAX
) -> int:
    """A number in a line, from ``low`` to ``high``. Raises Malformed."""
    value = raw.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        most = f" to {high}" if high < WHOLE_MAX else ""
        raise Malformed(f"{name} must be a whole number from {low}{most}")
    return value


@dataclass(slots=True)
class Ledger:
    """Last statements of each job by user: limits progress to one a second and refuses statements of an older run.

    Separate by user, so that another user's statement never delays the job's own. In memory only."""

    _runs: OrderedDict[_Of, tuple[int, float]] = field(default_factory=OrderedDict)
    _late: dict[_Of, tuple[UnverifiedStatement, OutboxItem]] = field(default_factory=dict)
    """The newest progress of a job that arrived too early to be sent."""

    def early(self, said: UnverifiedStatement, uid: int, now_s: float) -> bool:
        """Whether this is progress less than a second after the last one sent: only the newest of these matters."""
        restarts, progress_s = self._runs.get((said.job_id, uid), (0, float("-inf")))
        return said.kind == "progress" and said.restarts == restarts and now_s < progress_s + PROGRESS_EVERY_S

    def hold(self, said: UnverifiedStatement, uid: int, item: OutboxItem) -> None:
        """Keep early progress until its second is over, so that the last report of a job that falls silent is not lost."""
        self._late[said.job_id, uid] = (said, item)

    def due(self, now_s: float) -> list[OutboxItem]:
        """Held progress that is to be sent now; each is returned once."""
        ready = [of for of, (said, _item) in self._late.items() if not self.early(said, of[1], now_s)]
        held = [(of[1], *self._late.pop(of)) for of in ready]
        return [item for uid, said, item in held if self.take(said, uid, now_s) is None]

    def next_s(self) -> float | None:
        """Time when the next held progress is due; None: none is held."""
        return min((self._runs.get(of, (0, 0.0))[1] + PROGRESS_EVERY_S for of in self._late), default=None)

    def take(self, said: UnverifiedStatement, uid: int, now_s: float) -> str | None:
        """Reason why the statement is dropped; None: it counts."""
        of = (said.job_id, uid)
        restarts, progress_s = self._runs.get(of, (0, float("-inf")))
        if said.restarts < restarts:
            return "a later run of the job has spoken already"
        if said.kind == "progress":
            progress_s = now_s
            self._late.pop(of, None)
        self._runs[of] = (said.restarts, progress_s)
        self._runs.move_to_end(of)
        while len(self._runs) > _JOBS_KEPT:
            self._runs.popitem(last=False)
        return None


@dataclass(slots=True)
class LineRate:
    """A token bucket for each account (a user): ``per_s`` lines a second, bursts up to ``burst``."""

    per_s: float = 50.0
    burst: float = 200.0
    _left: dict[Hashable, tuple[float, float]] = field(default_factory=dict)

    def allow(self, account: Hashable, now_s: float) -> bool:
        if len(self._left) > _ACCOUNTS and account not in self._left:
            self._forget_full(now_s)
        left, at_s = self._left.get(account, (self.burst, now_s))
        left = min(self.burst, left + (now_s - at_s) * self.per_s)
        self._left[account] = (left - 1 if left >= 1 else left, now_s)
        return left >= 1

    def _forget_full(self, now_s: float) -> None:
        """Drop accounts that have been inactive for long: a user may have many thousands of ids."""
        kept = {
            a: (left, at_s) for a, (left, at_s) in self._left.items() if left + (now_s - at_s) * self.per_s < self.burst
        }
        self._left = kept if len(kept) <= _ACCOUNTS else {}
