"""Errors of an elastic job, each with one line for the user who started it."""

from __future__ import annotations

import sys
import threading
from types import TracebackType


class TrainError(Exception):
    """Base class of this library's errors; its text is one clear line."""

    status = 1
    """Exit status of a process that this ends."""


class Unusable(TrainError):
    """The job cannot start like this: a setting, a size, a batch or an installed version is wrong."""


class TransferFailed(TrainError):
    """State from a peer did not arrive complete and verified; nothing of it was used."""

    def __init__(self, line: str, *, final: bool = False) -> None:
        super().__init__(line)
        self.final = final
        """Whether a retry is useless: peers wait for a group that retries."""


class Refused(TrainError):
    """The rendezvous refuses this group."""

    def __init__(self, line: str, status: int = 1) -> None:
        super().__init__(line)
        self.status = status


class QuorumAway(TrainError):
    """The quorum service did not answer, or had no place for this group, for longer than permitted."""


class RankLost(TrainError):
    """Another rank of this group failed, or does not answer. A restartable group restarts in place."""


def tell(error: TrainError) -> None:
    """Print the one line on stderr, not through logging, which may be silent or print it twice."""
    sys.stderr.write(f"holdfast_train: {error}\n")
    sys.stderr.flush()


def install_hook() -> None:
    """Exception hook: print an uncaught error of this library as one line instead of a traceback; pass on all others."""
    before = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        if isinstance(value, TrainError) and threading.current_thread() is threading.main_thread():
            tell(value)
        else:
            before(kind, value, trace)

    sys.excepthook = hook
