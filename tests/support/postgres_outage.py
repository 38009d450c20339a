"""A PostgreSQL server for one test that can be stopped, started again, and frozen."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.practice.cluster.processes import descendants, signal_all
from support.postgres import START_S, PostgresServer, _identity, _init, _ordinary_user, _start


class MortalPostgres:
    """Port, password and data survive its crashes."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._user = _ordinary_user()
        self._folder = folder
        password = "of-one-test"
        _init(binaries, folder, password, self._user)
        self._process, self.server = _start(binaries, folder, password, self._user, durable=False)

    @property
    def url(self) -> str:
        return self.server.url(self.server.create())

    def stop(self) -> None:
        """Stop as in a crash, without closing connections."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(START_S)

    def start(self) -> None:
        with (self._folder / "log").open("ab") as output:
            self._process = subprocess.Popen(  # type: ignore[call-overload]
                self._process.args, cwd=self._folder, stdout=output, stderr=output, **_identity(self._user)
            )
        deadline = time.monotonic() + START_S
        while not self.server.answers():
            assert time.monotonic() < deadline, "PostgreSQL did not come back"
            time.sleep(0.05)

    def freeze(self) -> None:
        """Stop every process of the server; connections stay open and silent."""
        signal_all(self._pids(), signal.SIGSTOP)

    def thaw(self) -> None:
        signal_all(self._pids(), signal.SIGCONT)

    def _pids(self) -> list[int]:
        return [self._process.pid, *(child.pid for child in descendants(self._process.pid))]


@contextmanager
def mortal_postgres(binaries: Path) -> Iterator[MortalPostgres]:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir="/tmp"))
    try:
        server = MortalPostgres(binaries, folder)
        try:
            yield server
        finally:
            server.thaw()
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["MortalPostgres", "PostgresServer", "mortal_postgres"]
