"""Background threads: one task at a time, and a periodic call. A disk that hangs blocks these threads, never a step."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundTask:
    """Runs one task at a time. Its thread outlives the main one, so that a running save is finished."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def run(self, work: Callable[[], None]) -> None:
        """Start the task, after a running one has ended. The task must not raise."""
        self.join()
        self._thread = threading.Thread(target=work, name="checkpoint")
        self._thread.start()

    def join(self) -> None:
        """Wait for the running task."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class PeriodicCall:
    """Calls a function periodically until it is stopped."""

    def __init__(self, beat: Callable[[], None], every_s: float) -> None:
        self._beat, self._every_s = beat, every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoint-sign", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, without waiting for a call that hangs."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._beat()
            self._stopped.wait(self._every_s)
