"""Exchange of state between peers for a session: history for groups that catch up, and this group's own catch-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from holdfast_train.peers.catchup import CatchUp
from holdfast_train.peers.history import History
from holdfast_train.peers.proof import peer_key
from holdfast_train.peers.replica import CaughtUp, Replica
from holdfast_train.peers.transport import PeerTransport


class Sharing:
    """Of one rank."""

    def __init__(self, replica: Replica, transport: PeerTransport, token: str, check: Callable[[], None]) -> None:
        """``check`` is called during the catch-up, and raises to end it."""
        self._replica = replica
        self.followed = False
        """Whether this group tried to catch up: once, before it joins."""
        self._history = History(replica.bulk, replica.bulk_bytes)
        self._catch_up = CatchUp(replica, peer_key(token), check)
        transport.attach(self._history, self._rest, self._catch_up)

    def follow(self, sources: Sequence[str], step: int, tell: Callable[[], None]) -> None:
        """Catch up as far as possible, from this step, before this group joins for the first time. ``tell`` is called when there
        are peers."""
        self.followed = True
        if sources:
            tell()
            self._catch_up.follow(sources, step)

    def step(self, flats: list[torch.Tensor], step: int, quorum: int) -> None:
        """Step the optimizer, and keep what peers need. ``step``: number of steps including this one."""
        self._history.before_step(flats)
        options = self._replica.options()
        self._replica.apply(flats)
        if self._history.committed(step, quorum, options):
            self._replica.let_go()
        self._catch_up.over()

    def take(self, state: object) -> bool:
        """Apply the part missing after the catch-up. False: it is a whole state, which the caller must load."""
        reached = self._replica.finish(state) if isinstance(state, CaughtUp) else -1
        self._history.forget(reached)
        self._catch_up.over()
        return isinstance(state, CaughtUp)

    def ahead_of(self, step: int) -> int | None:
        """The step of our own state, if we caught up with a job that no other group continues; None otherwise."""
        at = self._catch_up.at
        return at.step if at is not None and at.step > step else None

    def _rest(self) -> dict[str, Any]:
        return {**self._replica.rest(), "quorum": self._history.quorum}
