"""What a TLS connection holds in memory, and for how long. asyncio gives each a buffer of 256 KiB, and leaves one whose handshake failed to
the garbage collector: a stranger's connections filled 2 GiB within seconds (measured, ``bench/floods.py``)."""

from __future__ import annotations

from asyncio import sslproto
from typing import Any

BUFFER_BYTES = 64 * 1024
"""For what is read at a time. A record of TLS has 16 KiB."""


class SmallTls(sslproto.SSLProtocol):
    """asyncio's, with a smaller buffer; it refers to nothing any more once its connection is lost. Names with ``_`` are asyncio's own, the
    same from Python 3.11 to 3.14."""

    max_size = BUFFER_BYTES
    _app_protocol: Any
    _app_state: Any
    _server_side: bool

    def connection_lost(self, exc: BaseException | None) -> None:
        """Also of a connection whose handshake did not end: its protocol never hears of it."""
        application = self._app_protocol
        unheard = self._app_state is sslproto.AppProtocolState.STATE_INIT
        super().connection_lost(exc)
        self._ssl_buffer = bytearray()
        self._ssl_buffer_view = memoryview(self._ssl_buffer)
        if unheard and hasattr(application, "abandon"):
            application.abandon()

    def _on_handshake_complete(self, handshake_exc: BaseException | type[BaseException] | None) -> None:
        super()._on_handshake_complete(handshake_exc() if isinstance(handshake_exc, type) else handshake_exc)

    def _wakeup_waiter(self, exc: BaseException | None = None) -> None:
        """What accepted the connection waits for this, and does nothing but keep the error and itself alive."""
        if exc is not None:
            exc.__traceback__ = None  # it leads to a frame that leads to it
        super()._wakeup_waiter(None if self._server_side else exc)


def install() -> None:
    """For each TLS connection that this process's event loops accept or open from now on."""
    vars(sslproto)["SSLProtocol"] = SmallTls
