"""What torchft's Manager moves state between groups with, in place of its own: that one is pickle over an open port."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any

from holdfast_train.codec import pack, unpack
from holdfast_train.errors import TransferFailed
from holdfast_train.fetching import fetch
from holdfast_train.proof import peer_key
from holdfast_train.serving import StateServer

log = logging.getLogger(__name__)


class PeerTransport:
    """torchft's CheckpointTransport by shape. A state is copied when it is offered, so training may go on at once."""

    def __init__(self, token: str, address: str) -> None:
        """Serves on this address alone. Raises OSError when it cannot be bound."""
        self._key = peer_key(token)
        self._server = StateServer(self._key, address)
        self.failure: TransferFailed | None = None
        """Why the last transfer to here came to nothing."""
        self.failures = 0
        """In a row."""

    def metadata(self) -> str:
        """What a peer needs to find us; it needs the token besides."""
        return self._server.url

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: object, timeout: timedelta) -> None:
        """Copies the state and offers it."""
        began_s = time.monotonic()
        packed = pack(state_dict)
        self._server.hold(step, packed)
        took_ms = round(1000 * (time.monotonic() - began_s))
        log.info("event=state_offered step=%d bytes=%d took_ms=%d to=%s", step, len(packed.body), took_ms, dst_ranks)

    def disallow_checkpoint(self) -> None:
        """The step is over: nothing of it is handed out any more."""
        self._server.release()

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        """Raises TransferFailed; then nothing was taken over."""
        began_s = time.monotonic()
        try:
            packed = fetch(metadata, step, self._key, timeout.total_seconds())
            state = unpack(packed)
        except TransferFailed as error:
            self.failure, self.failures = error, self.failures + 1
            raise
        self.failure, self.failures = None, 0
        took_ms = round(1000 * (time.monotonic() - began_s))
        log.info("event=state_received step=%d bytes=%d took_ms=%d from=%d", step, len(packed.body), took_ms, src_rank)
        return state

    def shutdown(self, wait: bool = True) -> None:
        """Ends the server."""
        self._server.stop()
