"""One address, with an end to the time that it may take.

A receiver that answers byte by byte meets no timeout of a library. It would keep each message from all others, for as long as it likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Thread

from holdfast.head.alertmanager import Alertmanager
from holdfast.model.errors import Unavailable
from holdfast.model.notice import Matter, Message
from holdfast.ports import Address

ANSWER_S = 30.0
"""Mail servers take up to 15 s for an answer; a message is several of these."""


@dataclass
class BoundedAddress:
    """Implements :class:`holdfast.ports.Address`. A call that does not end is left behind, and until it ends the address gets no other.

    For one thread at a time."""

    its: Address
    answer_s: float = ANSWER_S
    """How long one call may take."""
    _left: Thread | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.its.name

    def send(self, message: Message) -> None:
        """Raises Unavailable."""
        self._within(lambda: self.its.send(message))

    def keep(self, matters: Sequence[Matter]) -> None:
        """Raises Unavailable."""
        self._within(lambda: self.its.keep(matters))

    def page(self, matter: Matter, message: Message) -> None:
        """Send a page of a process itself. Raises Unavailable."""
        its = self.its
        if isinstance(its, Alertmanager):
            self._within(lambda: its.page(matter, over=message.over))
        else:
            self.send(message)

    def _within(self, call: Callable[[], None]) -> None:
        if self._left is not None and self._left.is_alive():
            raise Unavailable("it has not ended its answer to an earlier message")
        raised: list[Exception] = []

        def run() -> None:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - raised again where the call came from
                raised.append(error)

        self._left = Thread(target=run, name="address", daemon=True)
        self._left.start()
        self._left.join(self.answer_s)
        if self._left.is_alive():
            raise Unavailable(f"no complete answer within {self.answer_s:g} s")
        self._left = None
        if raised:
            raise raised[0]
