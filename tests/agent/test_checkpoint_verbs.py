"""The checkpoint verbs next to the job socket: the Python of any image runs them, with only that one file of Holdfast's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.orders import checkpoint_verbs
from holdfast.agent.orders.checkpoint_verbs import VERBS, archive, place
from holdfast.agent.sending.outbox import OutboxItem
from support.job_socket import KnownJobs
from support.practice import eventually

pytestmark = pytest.mark.slow


def _pythons() -> list[str]:
    """Python 3.9 and later, whichever this machine has: the system's, pyenv's, PyPy (``apt-get install pypy3``: 3.9 on Debian 12)."""
    named = [found for name in ("/usr/bin/python3", "pypy3") if (found := shutil.which(name))]
    built = Path.home().glob(".pyenv/versions/3.*/bin/python3")
    new = [
        str(path) for path in built if path.parts[-3].split(".")[1].isdigit() and int(path.parts[-3].split(".")[1]) >= 9
    ]
    return sorted({os.path.realpath(path) for path in (*named, *new)} | {sys.executable})


_TRAIN = """
import os, sys
from holdfast_checkpoint import Checkpointer
checkpoints = Checkpointer(sys.argv[1])
start = checkpoints.resume()
if len(sys.argv) > 2:
    os.unlink(sys.argv[2])
with checkpoints.save((start.step if start else 0) + 5) as folder:
    (folder / "x").write_text("5")
checkpoints.progress(5)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place(tmp_path)
    return tmp_path


@pytest.fixture
def said(tmp_path: Path) -> Iterator[list[OutboxItem]]:
    items: list[OutboxItem] = []
    desk = JobSocket(tmp_path, KnownJobs({7: frozenset({os.getpid()})}), items.append)
    desk.start()
    yield items
    desk.stop()


def run(python: str, folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program of an image that has nothing of this project but the agent's folder."""
    return subprocess.run(
        [python, *words],
        env={"SLURM_JOB_ID": "7", "HOLDFAST_AGENT_SOCKET": str(folder / "agent.sock"), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("signal", "environment", "taken"),
    [
        ("TERM", {"SLURM_JOB_NUM_NODES": "1"}, True),
        ("USR1", {"SLURM_JOB_NUM_NODES": "2"}, True),
        ("SIGUSR2", {"SLURM_JOB_NUM_NODES": "2"}, True),
        ("TERM", {"SLURM_JOB_NUM_NODES": "2"}, False),
        ("TERM", {"SLURM_JOB_NUM_NODES": "2", "HOLDFAST_SAVE_SIGNAL": "SIGTERM"}, True),
        ("USR1", {"SLURM_JOB_NUM_NODES": "2", "HOLDFAST_SAVE_SIGNAL": "TERM"}, False),
        ("TERM", {"SLURM_JOB_NUM_NODES": "2", "HOLDFAST_SAVE_SIGNAL": "TERM", "SLURM_EXPORT_ENV": "NONE"}, False),
        ("USR1", {"SLURM_JOB_NUM_NODES": "2", "HOLDFAST_SAVE_SIGNAL": "TERM", "SLURM_EXPORT_ENV": "NONE"}, True),
    ],
)
def test_a_signal_that_only_some_nodes_would_send_is_not_registered_and_that_is_said(
    signal: str, environment: dict[str, str], taken: bool, folder: Path, said: list[OutboxItem]
) -> None:
    """If only half a job saves, that half waits for the other for ever."""
    told = run(
        sys.executable, folder, str(folder / VERBS), "register", str(folder), "--save-signal", signal, **environment
    )
    assert told.returncode == 0
    assert told.stderr.startswith(f"registered without the signal {signal}: ") is not taken, told.stderr
    eventually(lambda: len(said) == 1, within_s=30)
    assert said[0].body["detail"].get("save_signal") == (signal if taken else None)


@pytest.mark.parametrize("python", _pythons())
def test_verbs_and_library_in_an_image(python: str, folder: Path, said: list[OutboxItem]) -> None:
    verbs, held = str(folder / VERBS), folder / "checkpoints"
    held.mkdir()
    assert run(python, folder, verbs, "latest", str(held)).returncode == 4, "there is none"
    trained = run(python, folder, "-c", _TRAIN, str(held), PYTHONPATH=verbs)
    assert (trained.returncode, trained.stderr) == (0, "")
    eventually(lambda: len(said) >= 3, within_s=30)
    latest = run(python, folder, verbs, "latest", str(held))
    assert (latest.returncode, latest.stdout.strip()) == (0, str(held / "step-0000005-j7-r0.0.0"))
    assert run(python, folder, verbs, "verify", latest.stdout.strip()).returncode == 0
    assert run(python, folder, verbs, "register", str(held)).returncode == 0
    other = run(python, folder, verbs, "register", str(held), SLURM_JOB_ID="8")
    assert (other.returncode, other.stderr.count("\n")) == (4, 1)
    assert "not a job of this user on this node" in other.stderr
    eventually(lambda: [item.body.get("statement") for item in said].count("checkpoint.register") == 2, within_s=30)
    kinds = [item.body.get("statement") for item in said]
    assert kinds[:3] == ["checkpoint.register", "checkpoint.resumed", "checkpoint.saved"]


def test_training_goes_on_while_the_agents_release_changes(folder: Path) -> None:
    """Nothing is loaded late from a file that an upgrade replaces."""
    verbs = folder / VERBS
    trained = run(sys.executable, folder, "-c", _TRAIN, str(folder / "c"), str(verbs), PYTHONPATH=str(verbs))
    assert trained.returncode == 0, trained.stderr


def test_a_job_without_an_agent_trains_and_says_so_once(folder: Path) -> None:
    environment = {"PYTHONPATH": str(folder / VERBS), "HOLDFAST_AGENT_SOCKET": "/nowhere/agent.sock"}
    trained = run(sys.executable, folder, "-c", _TRAIN, str(folder / "c"), **environment)
    line = (
        "no Holdfast agent at /nowhere/agent.sock (No such file or directory); in a container, mount /nowhere at the same place; "
        "training continues without it\n"
    )
    assert (trained.returncode, trained.stderr) == (0, line)
    registered = run(sys.executable, folder, str(folder / VERBS), "register", str(folder), **environment)
    assert registered.returncode == 4
    assert registered.stderr.endswith("; in a container, mount /nowhere at the same place\n")


def test_a_python_that_is_too_old_is_no_reason_to_start_afresh(folder: Path) -> None:
    old = (
        f"import sys, runpy; sys.version_info = (3, 8, 1); runpy.run_path({str(folder / VERBS)!r}, run_name='__main__')"
    )
    done = run(sys.executable, folder, "-c", old)
    assert (done.returncode, done.stderr) == (
        3,
        "Holdfast's checkpoint library needs Python 3.9 or later, this is 3.8\n",
    )


def test_the_library_keeps_to_what_python_3_10_has(tmp_path: Path) -> None:
    """mypy knows which names each Python has, from 3.10 on; ruff keeps the syntax at 3.9."""
    package = Path(__file__).parents[2] / "training" / "holdfast_checkpoint"
    command = [sys.executable, "-m", "mypy", "--python-version", "3.10", "--cache-dir", str(tmp_path), str(package)]
    done = subprocess.run(command, cwd=package.parents[1], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout
    later = [path.name for path in package.rglob("*.py") if "slots=True" in path.read_text(encoding="utf-8")]
    assert later == [], "dataclasses have slots from 3.10 on"


def test_users_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        place(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / VERBS).stat().st_mode & 0o777 == 0o644


def test_another_releases_file_is_replaced_and_the_same_one_left(folder: Path) -> None:
    verbs = folder / VERBS
    kept = verbs.stat().st_ino
    place(folder)
    assert verbs.stat().st_ino == kept
    verbs.write_bytes(b"an older release")
    place(folder)
    assert verbs.read_bytes() == archive()
    assert [path.name for path in folder.iterdir()] == [VERBS]


def test_a_folder_that_cannot_be_written_stops_no_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(tmp_path / "missing")
    monkeypatch.setattr(checkpoint_verbs, "find_spec", lambda _name: None)
    place(tmp_path)
    assert list(tmp_path.iterdir()) == []
