"""What the ends of the ranks mean for the group, and how far its ending has come. Pure."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast.model.elastic import NO_REQUEUE_EXIT, REQUEUE_EXIT

TERM_S = 10.0
"""Between SIGTERM and SIGKILL where somebody might still save something."""
CRASH_S = 2.0
"""The same after a rank has died: the others of its group cannot go on."""


class Turn(Enum):
    """What the end of a rank calls for."""

    GO_ON = "nothing"
    LEAVE = "a rank has left: the others are asked to do so, too"
    END = "the others are ended"


@dataclass(frozen=True, slots=True)
class Ending:
    """When a group is ended by force, on the monotonic clock; only ever brought forward."""

    term_at_s: float
    kill_at_s: float

    def sooner(self, other: Ending | None) -> Ending:
        if other is None:
            return self
        return Ending(min(self.term_at_s, other.term_at_s), min(self.kill_at_s, other.kill_at_s))


def by(deadline_s: float) -> Ending:
    """Left to itself until then."""
    return Ending(deadline_s, deadline_s + TERM_S)


def at_once(now_s: float, grace_s: float = CRASH_S) -> Ending:
    """SIGTERM now."""
    return Ending(now_s, now_s + grace_s)


def turn(code: int, leaving: bool, leavers: bool) -> Turn:
    """``leaving``: the group has been asked to. ``leavers``: some of its processes are still about to finish their step.

    Slurm's SIGTERM reaches every process of a step: a shell around the training may die of it while the training leaves in
    good order."""
    if code == 0:
        return Turn.GO_ON
    if code == REQUEUE_EXIT:
        return Turn.GO_ON if leaving else Turn.LEAVE
    if leaving and leavers and by_slurms_signal(code):
        return Turn.GO_ON
    return Turn.END


def by_slurms_signal(code: int) -> bool:
    """Whether a rank may have ended of a signal that Slurm sends to every process of a step, and so to us."""
    return code in (status_of(signal.SIGTERM), status_of(signal.SIGUSR1))


def group_code(codes: Mapping[int, int], leaving: bool, whole: bool = True) -> int:
    """Exit status of the group. ``codes``: local rank → exit status, in the order in which they ended.

    The first rank that failed speaks for all: those that were ended because of it only have our signals to tell. A group
    that was asked to leave and had to be ended was to come back all the same. Not so where this is a part of it on one
    of several nodes (``whole`` false): srun asks the others with SIGTERM, too, when one part has failed, and
    reports the highest status of all, so that a crash would look like a leave and be repeated for ever."""
    if NO_REQUEUE_EXIT in codes.values():
        return NO_REQUEUE_EXIT
    failed = next((code for code in codes.values() if code not in (0, REQUEUE_EXIT)), 0)
    if failed and not (leaving and whole):
        return failed
    return REQUEUE_EXIT if failed or REQUEUE_EXIT in codes.values() else 0


def may_restart(code: int, leaving: bool) -> bool:
    """Whether new processes could do better."""
    return not leaving and code not in (0, REQUEUE_EXIT, NO_REQUEUE_EXIT)


def status_of(number: signal.Signals) -> int:
    """As a shell says it."""
    return 128 + int(number)


def exit_status(wait_status: int) -> int:
    """From what ``waitpid`` says of a process."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code
