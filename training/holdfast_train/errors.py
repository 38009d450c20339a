"""What can be wrong with an elastic job: each is one line for whoever started it."""

from __future__ import annotations


class TrainError(Exception):
    """Base of what this library raises; its text is one clear line."""


class Unusable(TrainError):
    """The job cannot start like this: a setting, a size, a batch or an installed version is wrong."""


class TransferFailed(TrainError):
    """State from a peer did not arrive whole and proven; nothing of it was used."""

    def __init__(self, line: str, *, final: bool = False) -> None:
        super().__init__(line)
        self.final = final
        """Whether trying again is of no use: peers wait for a group that tries."""
