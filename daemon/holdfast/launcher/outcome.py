"""Outcome of a group from the exits of its ranks, and the progress of its shutdown. Pure."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast.model.elastic_jobs.elastic import NO_REQUEUE_EXIT, REQUEUE_EXIT

TERM_S = 10.0
"""Time between SIGTERM and SIGKILL where a process may still save something."""
CRASH_S = 2.0
"""The same after a rank has died: the other ranks of its group cannot continue."""


class ExitReaction(Enum):
    """Reaction to the exit of a rank."""

    GO_ON = "nothing"
    LEAVE = "a rank has left: the others are asked to do so, too"
    END = "the others are ended"


@dataclass(frozen=True, slots=True)
class ForcedEnd:
    """Times at which a group is ended by force, on the monotonic clock; only ever moved to an earlier time."""

    term_at_s: float
    kill_at_s: float

    def sooner(self, other: ForcedEnd | None) -> ForcedEnd:
        if other is None:
            return self
        return ForcedEnd(min(self.term_at_s, other.term_at_s), min(self.kill_at_s, other.kill_at_s))


def by(deadline_s: float) -> ForcedEnd:
    """No signal until then."""
    return ForcedEnd(deadline_s, deadline_s + TERM_S)


def at_once(now_s: float, grace_s: float = CRASH_S) -> ForcedEnd:
    """SIGTERM now."""
    return ForcedEnd(now_s, now_s + grace_s)


def turn(code: int, leaving: bool, leavers: bool) -> ExitReaction:
    """Decide the reaction to the exit of a rank. ``leaving``: the group was asked to leave. ``leavers``: some of its processes are still
    finishing their step.

    Slurm's SIGTERM reaches every process of a step: a shell around the training may die of it while the training leaves
    cleanly."""
    if code == 0:
        return ExitReaction.GO_ON
    if code == REQUEUE_EXIT:
        return ExitReaction.GO_ON if leaving else ExitReaction.LEAVE
    if leaving and leavers and by_slurms_signal(code):
        return ExitReaction.GO_ON
    return ExitReaction.END


def by_slurms_signal(code: int) -> bool:
    """Whether a rank may have ended of a signal that Slurm sends to every process of a step, and so to us."""
    return code in (status_of(signal.SIGTERM), status_of(signal.SIGUSR1))


def group_code(codes: Mapping[int, int], leaving: bool, whole: bool = True) -> int:
    """Exit status of the group. ``codes``: local rank → exit status, in the order in which they ended.

    The first rank that failed decides: the ranks ended because of it only report our signals. A group that was asked to leave and had to
    be ended is still to come back. This does not hold where this is a part of a group on one of several nodes (``whole`` false): when one
    part has failed, srun also sends SIGTERM to the others and reports the highest status of all, so that a crash would look like a leave
    and be repeated forever."""
    if NO_REQUEUE_EXIT in codes.values():
        return NO_REQUEUE_EXIT
    failed = next((code for code in codes.values() if code not in (0, REQUEUE_EXIT)), 0)
    if failed and not (leaving and whole):
        return failed
    return REQUEUE_EXIT if failed or REQUEUE_EXIT in codes.values() else 0


def may_restart(code: int, leaving: bool) -> bool:
    """Whether a restart may help."""
    return not leaving and code not in (0, REQUEUE_EXIT, NO_REQUEUE_EXIT)


def status_of(number: signal.Signals) -> int:
    """Exit status for a signal, as in a shell."""
    return 128 + int(number)


def exit_status(wait_status: int) -> int:
    """Exit status from the result of ``waitpid``."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code
