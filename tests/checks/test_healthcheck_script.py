"""``slurm-plugins/healthcheck.sh`` with stand-ins for ``scontrol`` and ``holdfast-checks``: which nodes it drains, and which never."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "slurm-plugins" / "healthcheck.sh"
FOUND = "gpu.count lost GPU-1: fell off the bus"


class Node:
    """Folder with the two commands; the arguments of ``scontrol update``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checks(FOUND, 2)
        self.scontrol("NodeName=n1 Arch=x86_64 State=IDLE ThreadsPerCore=1 Reason=")

    def checks(self, reason: str, status: int) -> None:
        asked = f'echo "$@" > {self.folder}/asked\ntouch {self.samples}\n'
        self._command("holdfast-checks", f'{asked}[ -z "{reason}" ] || echo "{reason}"\nexit {status}\n')

    def scontrol(self, shown: str, *, shows: int = 0, updates: int = 0) -> None:
        update = (
            f'[ "$1" != update ] || {{ printf "%s\\n" "$@" > {self.folder}/told; exit {updates}; }}\n'  # word: a file
        )
        self._command("scontrol", f'{update}echo "{shown}"\nexit {shows}\n')

    def _command(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(0o755)

    @property
    def samples(self) -> Path:
        return self.folder / "run" / "n1.json"

    @property
    def told(self) -> str:
        path = self.folder / "told"
        return path.read_text() if path.exists() else ""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "SLURMD_NODENAME": "n1",
            "HOLDFAST_HEALTHCHECK_DIR": str(self.folder / "run"),
            "HOLDFAST_AGENT_SOCKET": str(self.folder / "agent.sock"),
        }
        return subprocess.run(
            ["/bin/sh", str(SCRIPT), *arguments], env=env, capture_output=True, text=True, check=False
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_it_drains_with_our_reason(node: Node) -> None:
    done = node.run("--drain", "--config", "/etc/x.toml")
    assert (done.returncode, node.told) == (0, f"update\nNodeName=n1\nState=DRAIN\nReason=holdfast-checks: {FOUND}\n")
    assert (
        node.folder / "asked"
    ).read_text() == f"run --reason --samples {node.samples} --node n1 --config /etc/x.toml\n"
    assert node.samples.exists()


def test_a_node_with_an_agent_is_the_controllers_to_drain(node: Node) -> None:
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(node.folder / "agent.sock"))
        done = node.run("--drain")
    assert (done.returncode, node.told) == (0, "")
    assert FOUND in done.stderr
    assert "has a Holdfast agent" in done.stderr


def test_without_drain_it_only_tells(node: Node) -> None:
    done = node.run()
    assert (done.returncode, node.told) == (0, "")
    assert f"n1: {FOUND}" in done.stderr


@pytest.mark.parametrize("status", [0, 1, 2, 3, 124])
def test_nothing_that_calls_for_it_drains_nothing(node: Node, status: int) -> None:
    node.checks("", status)
    assert (node.run("--drain").returncode, node.told) == (0, "")


@pytest.mark.parametrize(
    ("state", "reason", "kept"),
    [
        ("IDLE+DRAIN", "maintenance", False),
        ("MIXED+DRAIN", "holdfast-checks: gpu.ecc", True),
        ("DOWN*", "Not responding", False),
        ("FAILING", "", False),
    ],
)
def test_a_node_that_is_out_keeps_its_reason(node: Node, state: str, reason: str, kept: bool) -> None:
    node.scontrol(f"NodeName=n1 State={state} Weight=1 Reason={reason} [root@2026-11-20T10:00:00]")
    node.run("--drain")
    assert node.told == ""
    assert node.samples.exists() is kept, "what another user's drain hides must be found again"


@pytest.mark.parametrize(
    ("shown", "shows", "updates"), [("", 1, 0), ("slurm_load_node error", 0, 0), (" State=IDLE ", 0, 1)]
)
def test_what_slurm_was_not_told_is_found_again(node: Node, shown: str, shows: int, updates: int) -> None:
    node.scontrol(shown, shows=shows, updates=updates)
    assert node.run("--drain").returncode == 1
    assert not node.samples.exists()


def test_it_can_only_drain() -> None:
    """However it changes: no verb that resumes, reboots or kills."""
    code = [line.split("#")[0].lower() for line in SCRIPT.read_text().splitlines()]
    assert not any(word in line for line in code for word in ("resume", "reboot", "=down", "scancel", "undrain"))
    assert sum("scontrol update" in line for line in code) == 1
