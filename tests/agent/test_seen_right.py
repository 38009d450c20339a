"""The real agent reports without acting on what it has never seen in place, acts on what it has, and remembers that."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.practice.hardware.host import HostFiles
from support.agent_bench import FakeController, Folder, seen_right
from support.practice import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def controller() -> Iterator[FakeController]:
    controller = FakeController()
    yield controller
    controller.close()


@pytest.fixture
def start(tmp_path: Path, controller: FakeController) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts the agent of a node whose munged has never been seen."""
    folder = Folder(tmp_path, controller.url)
    HostFiles(tmp_path).munge(listens=False)
    folder.write_config(
        f'controllers = ["{controller.url}"]\nact_on = ["host.munge"]\n'
        'disabled_checks = ["host.slurmd", "host.credential"]\n[intervals]\n"host.munge" = 0.5'
    )
    running: list[subprocess.Popen[bytes]] = []

    def started() -> subprocess.Popen[bytes]:
        running.append(folder.start())
        return running[-1]

    yield started
    for process in running:
        process.kill()
        process.wait()


def findings(controller: FakeController, since: int = 0) -> list[dict[str, Any]]:
    return [item for item in controller.items("finding")[since:] if item["check"] == "host.munge"]


def test_only_what_was_once_seen_right_is_acted_on(
    tmp_path: Path, controller: FakeController, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    agent = start()
    controller.wait(lambda: bool(findings(controller)))
    (first,) = findings(controller)
    assert (first["severity"], first["remedy"], first["evidence"]["would_severity"]) == ("warning", "none", "degraded")
    assert "never yet seen right on this node (/run/munge/munge.socket.2)" in first["summary"]
    assert "host.munge" not in seen_right(tmp_path)

    HostFiles(tmp_path).munge(listens=True)
    eventually(lambda: "host.munge" in seen_right(tmp_path), within_s=15)
    agent.kill()
    agent.wait()

    HostFiles(tmp_path).munge(listens=False)
    told = len(controller.items("finding"))
    start()
    controller.wait(lambda: bool(findings(controller, told)))
    again = findings(controller, told)[0]
    assert (again["severity"], again["remedy"], "observe" in again["evidence"]) == ("degraded", "reboot", False)
