"""Real processes of Holdfast in a folder: a controller, agents, and a client of the controller."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from holdfast.api.client import ApiClient
from holdfast.cli.app import app
from holdfast.model.errors import Unavailable

WITHIN_S = 30.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(folder: Path, module: str, *arguments: str, before: str = "") -> Iterator[Path]:
    """``python -m module`` and its log. ``before``: Python that is run in the process first."""
    log = folder / f"{module}.log"
    run = "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    start = f"import runpy, sys; sys.argv = sys.argv[1:]; {before or 'pass'}; {run}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", start, module, *arguments], stdout=out, stderr=out, cwd=folder
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(20)


def eventually(done: Callable[[], bool], log: Path) -> None:
    until_s = time.monotonic() + WITHIN_S
    while time.monotonic() < until_s:
        if done():
            return
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])


class Head:
    """A controller, and a client for it. With a folder of certificates it speaks TLS."""

    def __init__(self, folder: Path, etc: Path | None = None) -> None:
        self.folder, self.etc, self.port = folder, etc, free_port()
        self.url = f"{'http' if etc is None else 'https'}://localhost:{self.port}"
        self.config = folder / "controller.toml"
        tls = f'tls_cert = "{etc}/tls.pem"\ntls_key = "{etc}/tls.key"\n' if etc is not None else ""
        self.config.write_text(
            f'[server]\nhost = "127.0.0.1"\nport = {self.port}\n{tls}'
            f'[store]\nurl = "sqlite:///{folder}/holdfast.db"\n[run]\ndir = "{folder}"\n'
        )

    def token(self, role: str, subject: str) -> str:
        made = CliRunner().invoke(app, ["token", "create", role, subject, "--config", str(self.config)])
        assert made.exit_code == 0, made.output
        return made.stdout.split()[-1]

    def hears(self, token: str) -> set[str] | None:
        """The nodes whose agents report to it, asked by the command line's own client; None: it does not answer yet."""
        environ = {"HOLDFAST_URL": self.url, "HOLDFAST_TOKEN": token}
        if self.etc is not None:
            environ["HOLDFAST_CA_FILE"] = f"{self.etc}/ca.pem"
        try:
            nodes = ApiClient(env=environ).get("/v1/nodes")["nodes"]
        except Unavailable:
            return None
        return {node["name"] for node in nodes if node["agents"]}


def agent_config(head: Head, name: str, url: str, ca: Path | None) -> Path:
    folder = head.folder / name
    folder.mkdir()
    (folder / "kmsg").touch()
    (folder / "token").write_text(head.token("agent", name) + "\n")
    (folder / "token").chmod(0o600)
    trust = f'ca_file = "{ca}"\n' if ca is not None else ""
    (folder / "agent.toml").write_text(
        f'node = "{name}"\ncontrollers = ["{url}"]\n{trust}token_file = "{folder}/token"\nstate_dir = "{folder}/state"\n'
        f'run_dir = "{folder}/run"\nkmsg_path = "{folder}/kmsg"\nheartbeat_s = 1\n'
    )
    return folder
