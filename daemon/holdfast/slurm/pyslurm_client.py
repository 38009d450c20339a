"""Client of the pyslurm worker process; each call has a deadline. Safe from several threads at a time."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.model.errors import Unavailable
from holdfast.slurm.run import refusal

_LOG = logging.getLogger(__name__)
_COMMAND = (sys.executable, "-P", "-m", "holdfast.slurm.pyslurm_worker")
_CHUNK_BYTES = 1 << 20


class PyslurmClient:
    """Client that starts the worker at the first call, and again after the worker was given up."""

    def __init__(self, env: Mapping[str, str] | None, deadline_s: float, command: Sequence[str] = _COMMAND) -> None:
        """``env`` is added to this process's environment. ``deadline_s``: of each call, waiting for its turn included."""
        self._env = {**os.environ, **(env or {})}
        self._deadline_s = deadline_s
        self._command = tuple(command)
        self._turn = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None

    def ask(self, verb: str, **arguments: Any) -> Any:
        """The worker's answer.

        Raises Unavailable (deadline passed, worker gone, slurmctld away), NotPermitted, NotFound, Rejected."""
        until_s = time.monotonic() + self._deadline_s
        with self._my_turn(verb):
            try:
                answer = json.loads(self._exchange(json.dumps({"verb": verb, **arguments}).encode() + b"\n", until_s))
            except (OSError, ValueError) as error:
                self._give_up()
                raise Unavailable(f"pyslurm {verb}: {error}") from error
            if "error" in answer:
                raised = refusal(("pyslurm", verb), answer["error"])
                if isinstance(raised, Unavailable):
                    self._give_up()  # the next worker reads slurm.conf again: slurmctld may have moved
                raise raised
        return answer["value"]

    def close(self) -> None:
        """End the worker. A later ``ask`` starts another."""
        with self._turn:
            self._give_up()

    @contextlib.contextmanager
    def _my_turn(self, verb: str) -> Iterator[None]:
        if not self._turn.acquire(timeout=self._deadline_s):
            raise Unavailable(f"pyslurm {verb}: others' calls took all of {self._deadline_s:g} s")
        try:
            yield
        finally:
            self._turn.release()

    def _exchange(self, request: bytes, until_s: float) -> bytes:
        """Send one line and read one. Raises OSError with the reason."""
        worker = self._running()
        assert worker.stdin is not None  # noqa: S101
        assert worker.stdout is not None  # noqa: S101
        worker.stdin.write(request)
        worker.stdin.flush()
        found, answer = bytearray(), select.poll()  # a controller has more descriptors than select() takes
        answer.register(worker.stdout, select.POLLIN)
        while not found.endswith(b"\n"):
            if not answer.poll(1000 * max(0.0, until_s - time.monotonic())):
                raise TimeoutError(f"no answer within {self._deadline_s:g} s")
            part = os.read(worker.stdout.fileno(), _CHUNK_BYTES)
            if not part:
                raise ConnectionError(f"its process ended with status {worker.wait()}; its own messages are in the log")
            found += part
        return bytes(found)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._worker is None:
            self._worker = subprocess.Popen(
                self._command, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
            _LOG.info("event=pyslurm_started pid=%d", self._worker.pid)
        return self._worker

    def _give_up(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                pipe.close()
