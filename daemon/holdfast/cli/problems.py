"""Exit statuses, and how an error becomes one clear line."""

from __future__ import annotations

from enum import IntEnum

from holdfast.model.errors import ConfigError, HoldfastError, Unavailable, Usage


class Exit(IntEnum):
    OK = 0
    PROBLEM = 1
    """A problem was found, or it was refused."""
    USAGE = 2
    """Wrong use, wrong configuration, or no right to it."""
    UNREACHABLE = 3
    """The controller, the database or Slurm does not answer."""


def status_of(error: HoldfastError) -> Exit:
    if isinstance(error, ConfigError | Usage):
        return Exit.USAGE
    return Exit.UNREACHABLE if isinstance(error, Unavailable) else Exit.PROBLEM
