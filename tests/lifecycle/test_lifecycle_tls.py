"""TLS as docs/install.md sets it up: its commands, a real controller, real agents; who is not trusted hears nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from lifecycle.processes import Head, agent_config, eventually, running

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl"),
]


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


@pytest.mark.timeout(120)
def test_agents_trust_the_named_authority_and_nobody_else(short_folder: Path) -> None:
    etc, other = authority(short_folder / "etc"), authority(short_folder / "other")
    head = Head(short_folder, etc)
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
            running(short_folder, "holdfast.controller", "controller", "--config", str(head.config))
        )
        eventually(lambda: head.hears(viewer) is not None, log)
        said = {
            folder.name: stack.enter_context(running(folder, "holdfast.agent", "--config", str(folder / "agent.toml")))
            for folder in (trusting, *strangers)
        }
        eventually(lambda: head.hears(viewer) == {"n1"}, said["n1"])
        for folder in strangers:
            unheard = said[folder.name]
            eventually(lambda unheard=unheard: "event=controller_unreachable" in unheard.read_text(), unheard)  # type: ignore[misc]
            assert folder.name == "no-tls" or "certificate verify failed" in unheard.read_text()
        assert head.hears(viewer) == {"n1"}
