"""TLS as docs/install.md sets it up: its commands, a real controller, real agents; who is not trusted hears nothing."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.cli.client import Client
from holdfast.model.errors import Unavailable

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl"),
]
WITHIN_S = 30.0


def page_script() -> str:
    """The commands of the page, for a folder instead of /etc/holdfast."""
    page = (ROOT / "docs/install.md").read_text()
    found = re.search(r"^## TLS with.*?^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].replace("/etc/holdfast", "$ETC").replace("-g holdfast ", "")


def authority(folder: Path, head: str = "localhost") -> Path:
    folder.mkdir()
    environ = os.environ | {"ETC": str(folder), "HEAD": head, "ADDRESS": "127.0.0.9"}
    done = subprocess.run(["sh", "-euc", page_script()], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(folder: Path, *command: str) -> Iterator[Path]:
    """A process of ours, and its log."""
    log = folder / f"{command[2]}.log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", *command[1:]], stdout=out, stderr=out, cwd=folder)
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
    """A controller with TLS, and how one calls it."""

    def __init__(self, folder: Path, etc: Path) -> None:
        self.folder, self.etc, self.port = folder, etc, free_port()
        self.config = folder / "controller.toml"
        self.config.write_text(
            f'[server]\nhost = "127.0.0.1"\nport = {self.port}\ntls_cert = "{etc}/tls.pem"\ntls_key = "{etc}/tls.key"\n'
            f'[store]\nurl = "sqlite:///{folder}/holdfast.db"\n[run]\ndir = "{folder}"\n'
        )

    def token(self, role: str, subject: str) -> str:
        made = CliRunner().invoke(app, ["token", "create", role, subject, "--config", str(self.config)])
        assert made.exit_code == 0, made.output
        return made.stdout.split()[-1]

    def hears(self, token: str) -> set[str] | None:
        """The nodes whose agents it hears, asked by the command line's own client; None: it does not answer yet."""
        environ = {
            "HOLDFAST_URL": f"https://localhost:{self.port}",
            "HOLDFAST_CA_FILE": f"{self.etc}/ca.pem",
            "HOLDFAST_TOKEN": token,
        }
        try:
            nodes = Client(env=environ).get("/v1/nodes")["nodes"]
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


@pytest.mark.timeout(120)
def test_agents_trust_the_named_authority_and_nobody_else(tmp_path: Path) -> None:
    etc, other = authority(tmp_path / "etc"), authority(tmp_path / "other")
    head = Head(tmp_path, etc)
    viewer = head.token("viewer", "test")
    url = f"https://localhost:{head.port}"
    strangers = [
        agent_config(head, "wrong-authority", url, other / "ca.pem"),
        agent_config(head, "no-authority", url, None),
        agent_config(head, "wrong-name", f"https://127.0.0.1:{head.port}", etc / "ca.pem"),
        agent_config(head, "no-tls", f"http://localhost:{head.port}", etc / "ca.pem"),
    ]
    trusting = agent_config(head, "n1", url, etc / "ca.pem")
    with ExitStack() as stack:
        log = stack.enter_context(
            running(tmp_path, "", "holdfast.controller", "controller", "--config", str(head.config))
        )
        eventually(lambda: head.hears(viewer) is not None, log)
        said = {
            folder.name: stack.enter_context(
                running(folder, "", "holdfast.agent", "--config", str(folder / "agent.toml"))
            )
            for folder in (trusting, *strangers)
        }
        eventually(lambda: head.hears(viewer) == {"n1"}, said["n1"])
        for folder in strangers:
            unheard = said[folder.name]
            eventually(lambda unheard=unheard: "event=controller_unreachable" in unheard.read_text(), unheard)  # type: ignore[misc]
            assert folder.name == "no-tls" or "certificate verify failed" in unheard.read_text()
        assert head.hears(viewer) == {"n1"}
