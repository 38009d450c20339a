"""Transport of state between groups for torchft's Manager, replacing torchft's, which sends pickles over an open port."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from holdfast_train.errors import TransferFailed
from holdfast_train.peers.catchup import CatchUp
from holdfast_train.peers.fetching import fetch
from holdfast_train.peers.history import History
from holdfast_train.peers.proof import peer_key
from holdfast_train.peers.serving import StateServer
from holdfast_train.tensors.codec import lay_out, pack, unpack

log = logging.getLogger(__name__)


class PeerTransport:
    """Implements torchft's CheckpointTransport. A state is read while it is sent and not copied before: no step changes it until
    the healed group has taken part in the step, or the step has failed; both end the offer first."""

    def __init__(self, token: str, address: str) -> None:
        """Serve on this address only. Raises OSError when it cannot be bound."""
        self._key = peer_key(token)
        self._rest: Callable[[], dict[str, Any]] = dict
        self._catch_up: CatchUp | None = None
        self._server = StateServer(self._key, address)
        self.failure: TransferFailed | None = None
        """Why the last transfer to this rank failed."""
        self.failures = 0
        """Consecutive failures."""

    def attach(self, history: History, rest: Callable[[], dict[str, Any]], catch_up: CatchUp) -> None:
        """Set the sources for catch-up. ``rest``: the part of our state that steps do not determine."""
        self._rest, self._catch_up = rest, catch_up
        self._server.history = history

    def metadata(self) -> str:
        """URL at which peers find this rank; they also need the token."""
        return self._server.url

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: Any, timeout: timedelta) -> None:
        """Offer the state. Raises TypeError for what cannot be sent."""
        state = lay_out(state_dict)
        rest = pack({"torchft": state_dict.get("torchft"), "rest": self._rest()})
        self._server.hold(step, state, rest)
        log.info("event=state_offered step=%d bytes=%d to=%s", step, state.size_bytes, dst_ranks)

    def disallow_checkpoint(self) -> None:
        """The step is over: its state is no longer sent."""
        self._server.release()

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        """The whole state, or the part that a group that caught up still lacks. Raises TransferFailed; then nothing was loaded."""
        began_s = time.monotonic()
        try:
            state = self._missing(metadata, step, timeout)
            if state is None:
                state = unpack(fetch(metadata, step, self._key, timeout.total_seconds()))
        except TransferFailed as error:
            self.failure, self.failures = error, self.failures + 1
            raise
        self.failure, self.failures = None, 0
        took_ms = round(1000 * (time.monotonic() - began_s))
        log.info("event=state_received step=%d took_ms=%d from=%d", step, took_ms, src_rank)
        return state

    def _missing(self, metadata: str, step: int, timeout: timedelta) -> Any:
        """None: the whole state is needed."""
        if self._catch_up is None or self._catch_up.at is None:
            return None
        try:
            return self._catch_up.missing(metadata, step, timeout.total_seconds() / 2)
        except TransferFailed as error:
            log.warning("event=catch_up_lost step=%d reason=%r", step, str(error))
            return None

    def shutdown(self, wait: bool = True) -> None:
        """Stop the server."""
        self._server.stop()
