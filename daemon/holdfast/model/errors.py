"""Errors of the core. Adapters translate their libraries' errors into these, with one clear line."""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of every expected error; its text is one line that says what to do."""


class OutsideError(HoldfastError):
    """Something outside (Slurm, a provider, the store) did not do what it was asked."""


class Unavailable(OutsideError):
    """It does not answer, or not in time. Nothing is known about what happened: ask again before repeating."""


class Rejected(OutsideError):
    """It answered no: bad state, bad argument. Repeating the same call is pointless."""


class NotPermitted(Rejected):
    """It answered that we lack the right (Slurm's ``Access/permission denied``, AWS's ``UnauthorizedOperation``)."""


class NotFound(Rejected):
    """The node, job, reservation or instance does not exist there."""


class RepairsItself(Rejected):
    """The provider repairs its machines automatically: Holdfast watches, and does not act."""


class Stale(Unavailable):
    """An operator changed the state since it was loaded: nothing was written; load the state again."""


class Throttled(Unavailable):
    """It asks us to slow down."""


class InsufficientCapacity(Unavailable):
    """The provider has no machine of this kind now; another offer or a later time may."""


class ConfigError(HoldfastError):
    """The configuration is wrong; the text names the file, the key and the nearest valid key."""


class LeaderFencedOff(HoldfastError):
    """Another controller holds the leader's lease with a higher fencing number: stop acting."""


class Usage(HoldfastError):
    """A wrong option, address or token of the person who asks."""
