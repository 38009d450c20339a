"""A real PostgreSQL for tests: initdb and a server in a temporary folder, as an ordinary user, on a free loopback port.

The fixture is one of ``tests/conftest.py``: where a module imports a fixture, it gets a server alone."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

START_S = 30.0
"""Longest time that a server may take to start on a busy machine."""


@dataclass
class PostgresServer:
    """A running server; all its databases are deleted with it."""

    port: int
    password: str
    numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://holdfast:{self.password}@127.0.0.1:{self.port}/{database}"

    def create(self, template: str = "template0") -> str:
        """A new database, a copy of the template; returns its name."""
        import psycopg  # noqa: PLC0415 - slow to import, and most tests need none

        name = f"t{next(self.numbers)}"
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
        return name

    @property
    def _dsn(self) -> str:
        return (
            f"host=127.0.0.1 port={self.port} user=holdfast password={self.password} dbname=postgres connect_timeout=5"
        )

    def answers(self) -> bool:
        import psycopg  # noqa: PLC0415

        try:
            psycopg.connect(self._dsn).close()
        except psycopg.OperationalError:
            return False
        return True


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the session. Skips where PostgreSQL is not installed."""
    binaries = postgres_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed (no /usr/lib/postgresql/*/bin, no initdb on PATH)")
    with running_server(binaries) as server:
        yield server


def postgres_binaries() -> Path | None:
    """Folder of the newest release's programs; Debian and Ubuntu keep them off PATH."""
    found = [p for p in Path("/usr/lib/postgresql").glob("*/bin") if (p / "initdb").exists()]
    if found:
        return max(found, key=lambda p: [int(n) for n in p.parent.name.split(".") if n.isdigit()])
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@contextmanager
def running_server(binaries: Path, *, durable: bool = False) -> Iterator[PostgresServer]:
    """A fresh cluster and its server; both are removed afterwards. Without ``durable``, fsync is off."""
    user = _ordinary_user()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir="/tmp"))
    try:
        password = secrets.token_hex(16)
        _init(binaries, folder, password, user)
        process, server = _start(binaries, folder, password, user, durable=durable)
        try:
            yield server
        finally:
            process.send_signal(signal.SIGQUIT)  # immediate shutdown: nothing here is worth a checkpoint
            process.wait(START_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ordinary_user() -> str | None:
    """User for the server: PostgreSQL refuses to run as root, so its package's own user, or ``nobody``."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _identity(user: str | None) -> dict[str, object]:
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _init(binaries: Path, folder: Path, password: str, user: str | None) -> None:
    secret = folder / "password"
    secret.write_text(password)
    if user is not None:
        for path in (folder, secret):
            shutil.chown(path, user)
    command = [binaries / "initdb", "-D", folder / "data", "-U", "holdfast", "--pwfile", secret, "-A", "scram-sha-256"]
    done = subprocess.run(  # type: ignore[call-overload]
        [*command, "--no-sync", "-E", "UTF8", "--locale=C"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **_identity(user),
    )
    assert done.returncode == 0, done.stderr


def _start(
    binaries: Path, folder: Path, password: str, user: str | None, *, durable: bool
) -> tuple[subprocess.Popen[bytes], PostgresServer]:
    """A few attempts: another process may take a free port before the server does."""
    log = folder / "log"
    for _ in range(5):
        port = _free_port()
        options = [
            "-D",
            folder / "data",
            "-p",
            str(port),
            "-h",
            "127.0.0.1",
            "-k",
            folder,
            "-c",
            f"fsync={'on' if durable else 'off'}",
            "-c",
            "max_connections=60",
        ]
        with log.open("ab") as output:
            process = subprocess.Popen(  # type: ignore[call-overload]
                [binaries / "postgres", *options], cwd=folder, stdout=output, stderr=output, **_identity(user)
            )
        server = PostgresServer(port, password)
        deadline = time.monotonic() + START_S
        while process.poll() is None and time.monotonic() < deadline:
            if server.answers():
                return process, server
            time.sleep(0.05)
        process.kill()
        process.wait()
    raise AssertionError(f"PostgreSQL did not start: {log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
