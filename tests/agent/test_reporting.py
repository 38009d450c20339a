"""An agent whose reports no controller accepts says so to systemd, in its log and in a file, and works on: a real process."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.agent.sending.contact import Contact, ContactChange, ContactState
from holdfast.agent.sending.failures import SendFailure, SendFailureKind
from holdfast.agent.sending.reporting import Reporting, notice, read_status
from support.agent_bench import FakeController, Folder, running

BROKEN_DIMM = "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400"


class Systemd:
    """The socket that a service manager listens on."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._socket.settimeout(0.1)
        self.said: list[str] = []

    def until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        end_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end_s, self.said
            try:
                self.said += self._socket.recv(4096).decode().splitlines()
            except TimeoutError:
                continue

    def last(self, key: str) -> str:
        return next((line for line in reversed(self.said) if line.startswith(f"{key}=")), "")

    def close(self) -> None:
        self._socket.close()


def check(folder: Folder, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.agent", "check", "--config", str(folder.config), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_systemd_the_log_and_the_check_see_it_and_the_agent_works_on(
    folder: Folder, controller: FakeController, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    systemd = Systemd(tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", str(systemd.path))
    folder.write_config(f'controllers = ["{controller.url}"]\nnot_reporting_after_s = 1')
    run_dir = folder.path / "run"
    with running(folder) as process:
        systemd.until(lambda: systemd.last("STATUS").startswith("STATUS=Reporting to http://127.0.0.1"))
        assert "READY=1" in systemd.said
        assert check(folder, "--running").returncode == 0
        controller.heartbeat_status = 401
        controller.answer = lambda _report: (401, {"error": {"message": "The token is not known here"}})
        systemd.until(lambda: "NOT REPORTING" in systemd.last("STATUS"))
        assert "the token is refused (401" in systemd.last("STATUS")
        assert "holdfast token create" in systemd.last("STATUS")
        systemd.until(lambda: systemd.last("ERRNO") != "ERRNO=0")
        asked = check(folder, "--running")
        assert (asked.returncode, "not reporting since" in asked.stdout) == (1, True)
        folder.log(BROKEN_DIMM)
        time.sleep(2.5)
        lines = [line for line in folder.agent_log.splitlines() if "event=not_reporting" in line]
        assert len(lines) == 1, "one line, however long it lasts"
        assert "step=authentication" in lines[0]
        assert process.poll() is None, "it is not restarted"
        controller.heartbeat_status = 200
        controller.answer = lambda _report: (200, {})
        systemd.until(lambda: systemd.last("STATUS").startswith("STATUS=Reporting to"))
        controller.wait(lambda: any(i["check"] == "kernel.machine_check" for i in controller.items("finding")))
        assert systemd.last("ERRNO") == "ERRNO=0"
        assert check(folder, "--running").returncode == 0
        process.terminate()
        process.wait(30)
        assert read_status(run_dir) is None, "a stopped agent leaves nothing that looks like trouble"
    systemd.close()


@pytest.mark.slow
def test_the_check_tries_each_step_without_a_running_agent(folder: Folder, controller: FakeController) -> None:
    folder.write_config('controllers = ["http://127.0.0.1:1", "https://no-such-host.invalid"]')
    asked = check(folder)
    failed = [line.split()[1] for line in asked.stdout.splitlines() if line.startswith("FAILED")]
    assert (asked.returncode, failed) == (1, ["tcp", "name"])
    assert "no agent runs on this machine" in asked.stdout
    assert controller.heartbeats == [] == controller.reports, "the check is no sign of life"


@pytest.mark.slow
def test_wrong_settings_and_a_missing_token_are_one_line_each(folder: Folder) -> None:
    folder.write_config('controllers = ["http://127.0.0.1:1"]\nhartbeat_s = 1')
    asked = check(folder)
    assert (asked.returncode, len(asked.stdout.splitlines())) == (78, 1)
    assert "did you mean 'heartbeat_s'" in asked.stdout
    folder.write_config('controllers = ["http://127.0.0.1:1"]')
    for text, words in (("", "0 words"), ("a b", "2 words")):
        (folder.path / "token").write_text(text)
        assert words in check(folder).stdout
    (folder.path / "token").unlink()
    assert "holdfast token create agent NODE" in check(folder).stdout


@pytest.mark.slow
def test_an_unusable_ca_file_is_named_and_tried_again(folder: Folder) -> None:
    folder.write_config('controllers = ["https://127.0.0.1:1"]\nca_file = "ca.pem"')
    assert folder.start().wait(30) == 1, "1, not 78: the file may come yet"
    assert "ca.pem: No such file or directory; copy ca.pem from the head node" in folder.agent_log
    assert "Traceback" not in folder.agent_log


def test_the_file_is_whole_and_readable_by_everybody(tmp_path: Path) -> None:
    said: list[str] = []
    now = [0.0]
    reporting = Reporting(60.0, tmp_path, lambda: now[0], said.append)
    reporting.begin()
    failure = SendFailure(SendFailureKind.TLS, "the certificate\nhas ended", "renew it", "https://head")
    for now[0] in (30.0, 61.0):
        reporting.failed(failure)
    status = read_status(tmp_path)
    assert status is not None
    assert (status.standing, status.running) == ("not_reporting", True)
    assert (tmp_path / "agent-status.json").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["agent-status.json"]
    assert said[-1].splitlines() == [
        "STATUS=NOT REPORTING for 61 s; checks continue, findings wait on disk. https://head: the certificate has ended: renew it",
        "ERRNO=113",
    ]
    (tmp_path / "agent-status.json").write_text(json.dumps({"standing": 1}))
    with pytest.raises(ValueError, match="unreadable"):
        read_status(tmp_path)


def test_a_start_is_no_failure() -> None:
    assert notice(ContactChange(Contact(60.0, 0.0, ContactState.STARTING))).startswith("STATUS=Starting")
