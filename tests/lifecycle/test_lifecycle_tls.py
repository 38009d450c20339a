"""TLS as docs/install.md and docs/how-to-tls.md set it up: their commands, a real controller under uvicorn, real agents that verify
strictly (VERIFY_X509_STRICT, Python 3.13's default). An untrusted client receives nothing, and nothing is lost when certificates change."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

import pytest

from holdfast.api.client import ApiClient
from lifecycle.processes import Head, agent_config, eventually, running

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
STRICTLY = (
    "import ssl; made = ssl.create_default_context; ssl.create_default_context = lambda *a, **k: "
    "(c := made(*a, **k), setattr(c, 'verify_flags', c.verify_flags | ssl.VERIFY_X509_STRICT))[0]"
)
"""Run in the agent's process first: what Python 3.13 does by default."""
BROKEN = "mce: [Hardware Error]: CPU {cpu}: Machine Check Exception: 5 Bank 7: be00000000800400"


def holdfast(*words: str, url: str = "", token: str = "", ca: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line as a process, as an operator runs it."""
    environ = os.environ | {"HOLDFAST_URL": url or "http://127.0.0.1:1", "HOLDFAST_TOKEN": token or "t"}
    if ca is not None:
        environ["HOLDFAST_CA_FILE"] = str(ca)
    command = [sys.executable, "-m", "holdfast.cli", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


def authority(folder: Path, head: str = "localhost") -> Path:
    """The command of docs/install.md, for a folder instead of /etc/holdfast and for one name."""
    page = (ROOT / "docs/install.md").read_text()
    found = re.search(r"^## TLS with.*?^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    (line,) = found[1].splitlines()
    done = holdfast(*line.split()[1:], "--dir", str(folder), "--name", head)
    assert done.returncode == 0, done.stderr
    return folder


def agent(folder: Path) -> AbstractContextManager[Path]:
    return running(folder, "holdfast.agent", "--config", str(folder / "agent.toml"), before=STRICTLY)


def controller(head: Head) -> AbstractContextManager[Path]:
    return running(head.folder, "holdfast.head", "controller", "--config", str(head.config))


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.agent", "check", "--config", str(folder / "agent.toml")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def failed_steps(folder: Path) -> list[str]:
    return [line.split()[1] for line in checked(folder).stdout.splitlines() if line.startswith("FAILED")]


def pid_of(module: str, folder: Path) -> int:
    """Of the process that :func:`running` started with this module in this folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            mine = (entry / "cwd").resolve() == folder
        except OSError:
            continue
        if mine and module.encode() in words:
            return int(entry.name)
    raise AssertionError(f"{module} does not run in {folder}")


def served(head: Head) -> str:
    """The certificate that a new connection gets."""
    return ssl.get_server_certificate(("127.0.0.1", head.port))


def reported(head: Head, text: str) -> set[str]:
    """Nodes that have a finding with this text on record."""
    with closing(sqlite3.connect(f"file:{head.folder}/holdfast.db?mode=ro", uri=True)) as db:
        return {node for node, body in db.execute("SELECT node, document FROM findings") if text in str(body)}


@pytest.fixture
def place(short_folder: Path) -> Path:
    """A folder for one test with a short path: sockets lie in it."""
    return Path(tempfile.mkdtemp(dir=short_folder))


@pytest.mark.timeout(300)
def test_agents_trust_the_named_authority_and_nobody_else(place: Path) -> None:
    etc, other = authority(place / "etc"), authority(place / "other")
    head = Head(place, etc)
    viewer = head.token("viewer", "test")
    url = f"https://localhost:{head.port}"
    strangers = {
        agent_config(head, "wrong-authority", url, other / "ca.pem"): "tls",
        agent_config(head, "no-authority", url, None): "tls",
        agent_config(head, "wrong-name", f"https://127.0.0.2:{head.port}", etc / "ca.pem"): "tls",
        agent_config(head, "no-tls", f"http://localhost:{head.port}", etc / "ca.pem"): "tcp",
        agent_config(head, "nobody-there", "https://localhost:1", etc / "ca.pem"): "tcp",
    }
    wrong_token = agent_config(head, "wrong-token", url, etc / "ca.pem")
    (wrong_token / "token").write_text("another\n")
    strangers[wrong_token] = "authentication"
    trusting = agent_config(head, "n1", url, etc / "ca.pem")
    head.config.write_text(head.config.read_text().replace('"127.0.0.1"', '"0.0.0.0"'))
    with ExitStack() as stack:
        log = stack.enter_context(controller(head))
        eventually(lambda: head.hears(viewer) is not None, log)
        said = {folder: stack.enter_context(agent(folder)) for folder in (trusting, *strangers)}
        eventually(lambda: head.hears(viewer) == {"n1"}, said[trusting])
        for folder, step in strangers.items():
            unheard = said[folder]
            eventually(lambda unheard=unheard: "event=controller_unreachable" in unheard.read_text(), unheard)  # type: ignore[misc]
            assert step in failed_steps(folder), (folder.name, checked(folder).stdout)
        asked = checked(trusting)
        assert (asked.returncode, asked.stdout) == (0, "n1: ok\n")
        assert head.hears(viewer) == {"n1"}, "no check is a sign of life"


@pytest.mark.timeout(300)
def test_a_renewal_and_a_new_authority_lose_no_report_and_no_agent(place: Path) -> None:
    """docs/how-to-tls.md from top to bottom, one agent with the old ca.pem all the way to the end of the overlap."""
    etc = authority(place / "etc")
    head = Head(place, etc)
    operator = head.token("operator", "test")
    nodes = {name: agent_config(head, name, head.url, None) for name in ("n1", "n2")}
    for folder in nodes.values():
        (folder / "ca.pem").write_bytes((etc / "ca.pem").read_bytes())
        settings = f'ca_file = "ca.pem"\nact_on = ["*"]\n{(folder / "agent.toml").read_text()}'
        (folder / "agent.toml").write_text(settings)
    seq = 0

    def tls(*words: str) -> subprocess.CompletedProcess[str]:
        return holdfast("tls", *words, "--dir", str(etc), url=head.url, token=operator, ca=etc / "ca.pem")

    def fault(log: Path) -> None:
        """A fault on each node is on record, whatever certificate is served."""
        nonlocal seq
        seq += 1
        for folder in nodes.values():
            with (folder / "kmsg").open("a") as kmsg:
                kmsg.write(f"2,{seq},{int(time.monotonic() * 1e6)},-;{BROKEN.format(cpu=seq)}\n")
        eventually(lambda: reported(head, f"CPU {seq}:") == set(nodes), log)

    def reload(log: Path) -> None:
        before = served(head)
        os.kill(pid_of("holdfast.head", place), signal.SIGHUP)
        eventually(lambda: served(head) != before, log)

    with ExitStack() as stack:
        log = stack.enter_context(controller(head))
        eventually(lambda: head.hears(operator) is not None, log)
        said = {name: stack.enter_context(agent(folder)) for name, folder in nodes.items()}
        eventually(lambda: head.hears(operator) == set(nodes), log)
        fault(log)

        assert tls("renew", "--new-key").returncode == 0
        reload(log)
        fault(log)

        key = (etc / "tls.key").read_bytes()
        (etc / "tls.key").write_bytes((etc / "ca/ca.key").read_bytes())
        kept = served(head)
        os.kill(pid_of("holdfast.head", place), signal.SIGHUP)
        eventually(lambda: "outcome=kept_the_old_one" in log.read_text(), log)
        assert served(head) == kept, "half a pair is never served"
        (etc / "tls.key").write_bytes(key)

        assert tls("renew", "--new-ca").returncode == 0
        reload(log)
        fault(log)
        refused = tls("renew", "--retire-old-ca")
        assert (refused.returncode, "n1, n2" in refused.stderr) == (1, True), refused.stderr
        (nodes["n1"] / "ca.pem").write_bytes((etc / "ca.pem").read_bytes())
        eventually(lambda: "trusted by 1 of 2 agents; not, or not known: n2" in tls("show").stdout, log)
        (nodes["n2"] / "ca.pem").write_bytes((etc / "ca.pem").read_bytes())
        eventually(lambda: "trusted by 2 of 2 agents" in tls("show").stdout.splitlines()[-2], log)
        assert tls("renew", "--retire-old-ca").returncode == 0
        reload(log)
        for folder in nodes.values():
            (folder / "ca.pem").write_bytes((etc / "ca.pem").read_bytes())
        fault(log)
        for text in (file.read_text() for file in said.values()):
            assert "event=not_reporting" not in text
            assert "event=item_refused" not in text
        assert tls("show").returncode == 0
        assert ApiClient(env=_operator(head, operator)).get("/v1/nodes")["nodes"][0]["agents"][0]["status"] == "heard"


def _operator(head: Head, token: str) -> dict[str, str]:
    return {"HOLDFAST_URL": head.url, "HOLDFAST_TOKEN": token, "HOLDFAST_CA_FILE": f"{head.etc}/ca.pem"}


@pytest.mark.timeout(300)
def test_a_controller_with_an_unusable_certificate_says_so_and_is_not_started_over_and_over(place: Path) -> None:
    etc, other = authority(place / "etc"), authority(place / "other")
    head = Head(place, etc)
    (etc / "tls.key").write_bytes((other / "tls.key").read_bytes())
    command = [sys.executable, "-m", "holdfast.head", "controller", "--config", str(head.config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "are no certificate with its key" in done.stderr
    assert "Traceback" not in done.stderr
