"""enrol.sh: agent.toml and the token, repeatedly, from nothing."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from holdfast.agent.sending.contact import ContactState
from holdfast.agent.sending.failures import of_answer
from holdfast.config.agent import load_agent_config
from lifecycle.lifecycle_support import (
    SCRIPTS,
    amazon_root,
    fake_command,
    hyperpod_root,
    own_python,
    run_script,
    state,
    write,
)

ENROL = SCRIPTS / "enrol.sh"
FROM_FILE = "file:/fsx/holdfast/tokens/{node}"
pytestmark = pytest.mark.slow


def enrol(root: Path, *, path: Path | None = None, now: bool = True) -> subprocess.CompletedProcess[str]:
    return run_script(ENROL, root, *(["--now"] if now else []), path=path)


def hyperpod(tmp_path: Path, tokens: str = FROM_FILE) -> Path:
    root = own_python(hyperpod_root(tmp_path / "root"))
    write(
        root / "etc/holdfast/enrol.conf",
        f"# ours\nHOLDFAST_TOKEN_FROM={tokens}\nHOLDFAST_CONTROLLERS=https://a:1 https://b:2\n",
    )
    return root


def test_from_nothing_and_again_the_same(tmp_path: Path) -> None:
    root = hyperpod(tmp_path)
    first = enrol(root)
    assert first.returncode == 0, first.stderr
    config = load_agent_config(root / "etc/holdfast/agent.toml")
    assert config.node == "ip-127-0-77-2"
    assert config.controllers == ("https://a:1", "https://b:2")
    assert (root / "etc/holdfast/instance-id").read_text() == "i-00000000000000002\n"
    token = root / "etc/holdfast/agent.token"
    assert token.read_text() == "token_of-gpu1\n"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    before = state(root / "etc")
    assert enrol(root).returncode == 0
    assert state(root / "etc") == before


def test_the_token_is_in_no_output(tmp_path: Path) -> None:
    root = hyperpod(tmp_path)
    done = enrol(root)
    log = (root / "var/log/provision/provisioning.log").read_text()
    assert "token_of-gpu1" not in done.stderr + done.stdout + log
    assert "node=ip-127-0-77-2" in log


def test_without_a_token_yet_the_agent_is_configured_and_asked_for_again(tmp_path: Path) -> None:
    root = hyperpod(tmp_path, "file:/fsx/none/{node} ssm:/x/{node}")
    done = enrol(root, path=fake_command(tmp_path / "bin", "aws", "exit 255"))
    assert done.returncode == 75
    assert load_agent_config(root / "etc/holdfast/agent.toml").node == "ip-127-0-77-2"
    write(root / "fsx/none/ip-127-0-77-2", "late_one")
    assert enrol(root, now=False).returncode == 0
    assert (root / "etc/holdfast/agent.token").read_text() == "late_one\n"


def test_with_a_token_it_ends_at_once(tmp_path: Path) -> None:
    root = hyperpod(tmp_path)
    assert enrol(root).returncode == 0
    assert enrol(root, now=False).stderr == ""


AWS = 'case "$*" in *"--name /holdfast/pc/queue1-st-p5-1 "*"--region eu-west-1"*) echo from_ssm ;; *) exit 254 ;; esac'


def test_parallelcluster_on_amazon_linux_with_parameter_store(tmp_path: Path) -> None:
    root = own_python(amazon_root(tmp_path / "root"))
    write(
        root / "etc/holdfast/enrol.conf",
        "HOLDFAST_TOKEN_FROM=ssm:/holdfast/{cluster}/{node}\nHOLDFAST_CONTROLLERS=https://h:1\n",
    )
    done = enrol(root, path=fake_command(tmp_path / "bin", "aws", AWS))
    assert done.returncode == 0, done.stderr
    assert (root / "etc/holdfast/agent.token").read_text() == "from_ssm\n"
    config = load_agent_config(root / "etc/holdfast/agent.toml")
    assert config.node == "queue1-st-p5-1"
    assert (
        str(config.instance_id_path) == "/sys/devices/virtual/dmi/id/board_asset_tag"
    )  # never stale, not even in an image
    assert (root / "var/log/holdfast-install.log").exists()


def test_an_image_does_not_pass_its_token_on(tmp_path: Path) -> None:
    root = hyperpod(tmp_path, "file:/fsx/none/{node}")
    write(root / "etc/holdfast/agent.token", "of_the_first")
    write(root / "etc/holdfast/agent.token.node", "ip-10-0-0-9\n")
    assert enrol(root, now=True).returncode == 75
    assert not (root / "etc/holdfast/agent.token").exists()


def test_a_token_put_there_by_hand_stays(tmp_path: Path) -> None:
    root = hyperpod(tmp_path, "file:/fsx/none/{node}")
    write(root / "etc/holdfast/agent.token", "by_hand")
    assert enrol(root).returncode == 0
    assert (root / "etc/holdfast/agent.token").read_text() == "by_hand"


class Head:
    """A controller that accepts some tokens, and the requests that it got."""

    def __init__(self, takes: dict[str, str]) -> None:
        head, self.asked, self.takes = self, list[str](), takes

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                token = self.headers["Authorization"].removeprefix("Bearer ")
                head.asked.append(token)
                known = token in head.takes
                answer = {"node": head.takes[token]} if known else {"error": {"message": "The token was revoked"}}
                self.send_response(200 if known else 401)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def head() -> Iterator[Head]:
    one = Head({"good": "ip-127-0-77-2"})
    yield one
    one.server.shutdown()
    one.server.server_close()


def two_places(tmp_path: Path, url: str, **tokens: str) -> Path:
    """A node with two places for its token, what they hold, and what is on its disk."""
    root = hyperpod(tmp_path)
    write(
        root / "etc/holdfast/enrol.conf",
        f"HOLDFAST_TOKEN_FROM=file:/a/{{node}} file:/b/{{node}}\nHOLDFAST_CONTROLLERS={url}\n",
    )
    for place in ("a", "b"):
        if place in tokens:
            write(root / place / "ip-127-0-77-2", tokens[place])
    if "here" in tokens:
        write(root / "etc/holdfast/agent.token", tokens["here"])
    return root


@pytest.mark.parametrize(
    ("tokens", "kept", "status"),
    [
        ({"a": "ended", "b": "good"}, "good", 0),
        ({"a": "ended", "here": "good"}, "good", 0),
        ({"a": "ended", "b": "old", "here": "good"}, "good", 0),
        ({"a": "good", "b": "ended", "here": "old"}, "good", 0),
        ({"a": "ended", "b": "old"}, None, 75),
        ({"a": "ended", "here": "old"}, "old", 75),
    ],
)
def test_the_token_that_is_taken_is_kept(
    tmp_path: Path, head: Head, tokens: dict[str, str], kept: str | None, status: int
) -> None:
    root = two_places(tmp_path, head.url, **tokens)
    done = enrol(root)
    assert done.returncode == status, done.stderr
    token = root / "etc/holdfast/agent.token"
    assert (token.read_text().strip() if token.exists() else None) == kept
    assert (root / "etc/holdfast/enrol.boot").exists() is (status == 0), "what is refused is asked for again"
    assert "good" not in done.stderr
    assert "The token was revoked" in done.stderr or "ended" not in head.asked


def test_another_nodes_token_is_not_kept(tmp_path: Path, head: Head) -> None:
    head.takes["of_n9"] = "n9"
    root = two_places(tmp_path, head.url, a="of_n9", b="good")
    assert enrol(root).returncode == 0
    assert (root / "etc/holdfast/agent.token").read_text() == "good\n"


def test_somebodys_own_configuration_says_which_controller_is_asked(tmp_path: Path, head: Head) -> None:
    """Not the addresses that the machine reports: the agent does not ask those."""
    root = two_places(tmp_path, "http://127.0.0.1:1", a="good", here="old")
    write(root / "etc/holdfast/agent.toml", f'node = "ip-127-0-77-2"\ncontrollers = ["{head.url}"]\n')
    assert enrol(root).returncode == 0
    assert (root / "etc/holdfast/agent.token").read_text() == "good\n"


def test_while_no_controller_answers_the_token_that_is_here_stays_and_is_asked_for_again(tmp_path: Path) -> None:
    root = two_places(tmp_path, "http://127.0.0.1:1", a="newer", here="present")
    assert enrol(root).returncode == 0
    assert (root / "etc/holdfast/agent.token").read_text() == "present"
    assert not (root / "etc/holdfast/enrol.boot").exists()


def test_an_agent_that_is_refused_gets_another_token_without_a_boot(tmp_path: Path, head: Head) -> None:
    root = two_places(tmp_path, head.url, a="good")
    assert enrol(root).returncode == 0
    head.takes = {"newer": "ip-127-0-77-2"}
    write(root / "b/ip-127-0-77-2", "newer")
    assert enrol(root, now=False).stderr == "", "no controller has refused it"
    failure = of_answer("https://h:1", 401, "The token is not known here")
    status = {"standing": ContactState.NOT_REPORTING, "since": "", "url": "", "reasons": [str(failure)], "pid": 1}
    write(root / "run/holdfast/agent-status.json", json.dumps(status))
    assert enrol(root, now=False).returncode == 0
    assert (root / "etc/holdfast/agent.token").read_text() == "newer\n"


def test_somebodys_own_configuration_stays(tmp_path: Path) -> None:
    root = hyperpod(tmp_path)
    write(root / "etc/holdfast/agent.toml", 'node = "mine"\n')
    assert enrol(root).returncode == 0
    assert (root / "etc/holdfast/agent.toml").read_text() == 'node = "mine"\n'


@pytest.mark.parametrize(
    ("url", "status"), [("http://head:8460", 1), ("https://head:8460", 0), ("http://127.0.0.1:8460", 0), (None, 0)]
)
def test_an_upgrade_restarts_no_agent_that_would_not_start(tmp_path: Path, url: str | None, status: int) -> None:
    root = own_python(tmp_path / "root")
    if url is not None:
        write(root / "etc/holdfast/agent.toml", f'node = "n1"\ncontrollers = ["{url}"]\n')
    done = run_script(SCRIPTS / "agent_settings.sh", root)
    assert done.returncode == status, done.stderr
    assert ("is not restarted" in done.stderr and "http://" in done.stderr) is (status == 1)


def test_the_package_asks_before_it_restarts_the_agent() -> None:
    text = (SCRIPTS / "build_deb.sh").read_text()
    assert "agent_settings.sh || units=holdfast-agent-reporting.path" in text
    assert "systemctl try-restart \\$units" in text


def test_the_sites_settings_are_taken_in(tmp_path: Path) -> None:
    root = hyperpod(tmp_path)
    write(root / "etc/holdfast/agent.site.toml", 'heartbeat_s = 7\n[intervals]\n"host.disk" = 60\n')
    assert enrol(root).returncode == 0
    config = load_agent_config(root / "etc/holdfast/agent.toml")
    assert (config.heartbeat_s, config.intervals) == (7.0, {"host.disk": 60.0})


def test_settings_that_the_agent_would_refuse_change_nothing(tmp_path: Path) -> None:
    root = hyperpod(tmp_path)
    assert enrol(root).returncode == 0
    good = (root / "etc/holdfast/agent.toml").read_text()
    write(root / "etc/holdfast/agent.site.toml", "heartbeet_s = 7\n")
    done = enrol(root)
    assert done.returncode == 78
    assert "heartbeat_s" in done.stderr
    assert (root / "etc/holdfast/agent.toml").read_text() == good


def test_settings_are_not_a_script(tmp_path: Path) -> None:
    root = hyperpod(tmp_path)
    write(
        root / "etc/holdfast/enrol.conf",
        f"HOLDFAST_NODE=n1$(touch {tmp_path}/run)\nPATH=/nowhere\nHOLDFAST_TOKEN_FROM={FROM_FILE}\n",
    )
    done = enrol(root)
    assert not (tmp_path / "run").exists()
    assert "unknown key 'PATH'" in done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck here")
def test_shellcheck_has_nothing_to_say() -> None:
    files = [*SCRIPTS.glob("*.sh"), *SCRIPTS.glob("lib/*.sh")]
    done = subprocess.run(["shellcheck", *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
