"""What can be wrong with an elastic job: each is one line for whoever started it."""

from __future__ import annotations

import sys
import threading
from types import TracebackType


class TrainError(Exception):
    """Base of what this library raises; its text is one clear line."""

    status = 1
    """Exit status of a process that this ends."""


class Unusable(TrainError):
    """The job cannot start like this: a setting, a size, a batch or an installed version is wrong."""


class TransferFailed(TrainError):
    """State from a peer did not arrive whole and proven; nothing of it was used."""

    def __init__(self, line: str, *, final: bool = False) -> None:
        super().__init__(line)
        self.final = final
        """Whether trying again is of no use: peers wait for a group that tries."""


class Refused(TrainError):
    """The room does not let this group in."""

    def __init__(self, line: str, status: int = 1) -> None:
        super().__init__(line)
        self.status = status


class QuorumAway(TrainError):
    """The quorum stays away, or has no place for this group, for longer than it may."""


class RankLost(TrainError):
    """Another rank of this group failed, or does not answer. A group that may restart in place does so."""


def tell(error: TrainError) -> None:
    """The one line, where people look for it; not a log's, which may be told to be silent or say it twice."""
    sys.stderr.write(f"holdfast_train: {error}\n")
    sys.stderr.flush()


def install_hook() -> None:
    """An error of ours that nobody catches is one line and not a traceback; every other goes where it went before."""
    before = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        if isinstance(value, TrainError) and threading.current_thread() is threading.main_thread():
            tell(value)
        else:
            before(kind, value, trace)

    sys.excepthook = hook
