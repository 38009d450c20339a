"""Work beside the training: one piece at a time, and a pulse. A disk that hangs holds up these threads, never a step."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Runs one piece of work at a time. Its thread outlives the main one: a save that is under way is finished."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def run(self, work: Callable[[], None]) -> None:
        """Starts the work, after what is still going on. The work does not raise."""
        self.join()
        self._thread = threading.Thread(target=work, name="checkpoint")
        self._thread.start()

    def join(self) -> None:
        """Waits for what is going on."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class Pulse:
    """Calls something every so often until it is stopped."""

    def __init__(self, beat: Callable[[], None], every_s: float) -> None:
        self._beat, self._every_s = beat, every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoint-sign", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Does not wait for a beat that hangs."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._beat()
            self._stopped.wait(self._every_s)
