"""One side of a pair probe, as a child with a deadline."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast_checks.active.check import child_argv, last_words
from holdfast_checks.probes.child import CHILDREN, Hung
from holdfast_checks.settings import ActiveSettings

DONE, FAILED, UNKNOWN = "done", "failed", "unknown"
_START_S = 20.0
"""For a Python without PyTorch to start on a busy node."""
KEY = "active.pair_probe"


@dataclass(frozen=True, slots=True)
class PairSide:
    """What one side is to do."""

    role: str
    address: str
    """Of the listener, for both sides."""
    port: int
    secret: str = field(repr=False)
    """Both sides prove it to each other; it is drawn for this probe alone and never shown."""
    transport: str
    size_bytes: int
    rounds: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """What one side saw."""

    said: str
    """``done``; ``failed``: it could not be carried through, for a reason of the path or of the other side; ``unknown``: nothing is known
    of the path (no port, no PyTorch, no partner, a child that hung)."""
    text: str = ""
    wrong: int = 0
    """Rounds whose sum was wrong."""
    rounds: int = 0
    gigabytes_s: float = 0.0
    """Bus bandwidth as nccl-tests counts it."""


def run_side(side: PairSide, settings: ActiveSettings, key: str = KEY) -> PairAnswer:
    """Run one side; blocks for its deadline and the time to start at most. Raises OSError when no child can be started.

    ``key``: of the child (:mod:`holdfast_checks.probes.child`): a node is in one probe at a time."""
    start_s = _START_S if side.transport == "tcp" else settings.start_s
    argv = child_argv(settings.python, "pair_side")
    answer = CHILDREN.run(key, argv, side.deadline_s + start_s, stdin=json.dumps(asdict(side)).encode())
    if isinstance(answer, Hung):
        return PairAnswer(UNKNOWN, f"the probe's process gave no answer within {side.deadline_s + start_s:g} s")
    if answer.status != 0:
        return PairAnswer(UNKNOWN, f"the probe's process ended: {last_words(answer.err)} (exit status {answer.status})")
    try:
        return _answer(json.loads(answer.text))
    except (KeyError, TypeError, ValueError) as error:
        return PairAnswer(UNKNOWN, f"the probe's process gave no answer: {error}"[:200])


def _answer(raw: Any) -> PairAnswer:
    if raw["said"] not in (DONE, FAILED, UNKNOWN):
        raise ValueError(f"said {raw['said']!r}")
    return PairAnswer(
        raw["said"],
        str(raw.get("text", "")),
        int(raw.get("wrong", 0)),
        int(raw.get("rounds", 0)),
        float(raw.get("gigabytes_s", 0.0)),
    )
