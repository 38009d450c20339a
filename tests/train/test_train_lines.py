"""What can go wrong at a start, shown by the shipped example as a process: one clear line, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("torchft", reason="the extra 'train' is not installed")

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.kit.rooms import Rooms  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
EXAMPLE = ROOT / "training" / "examples" / "elastic.py"
_PATH = f"{ROOT / 'training'}:{ROOT / 'daemon'}"


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    made = Rooms(tmp_path)
    made.start()
    yield made
    made.stop()


def started(
    folder: Path, env: dict[str, str] | None = None, *, script: Path = EXAMPLE, path: str = _PATH
) -> subprocess.Popen[str]:
    (folder / "tokens").write_bytes(array("H", [n % 64 for n in range(4000)]).tobytes())
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "HOLDFAST_", "TORCH"))}
    told = {
        "HOLDFAST_QUORUM": "http://127.0.0.1:9",
        "HOLDFAST_QUORUM_TOKEN": "a token",
        "HOLDFAST_MAX_GROUPS": "4",
        "HOLDFAST_AGENT_SOCKET": str(folder / "no-agent"),
        "RUST_LOG": "error",
    }
    argv = [sys.executable, "-W", "ignore", str(script), str(folder / "tokens"), "--steps", "100000"]
    return subprocess.Popen(
        argv, env={**kept, **told, "PYTHONPATH": path, **(env or {})}, stderr=subprocess.PIPE, text=True
    )


def one_line(process: subprocess.Popen[str], status: int, within_s: float = 60) -> str:
    """What the library says as the process ends."""
    try:
        _out, err = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        _out, err = process.communicate()
    assert process.returncode == status, err
    assert "Traceback" not in err
    said = [line for line in err.splitlines() if line.startswith("holdfast_train: ")]
    assert len(said) == 1, err
    return said[0]


def test_a_batch_that_does_not_divide(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(EXAMPLE.read_text().replace("micro_samples=2", "micro_samples=5"))
    assert "a global batch of 24 cannot be divided into micro-batches of 5" in one_line(
        started(tmp_path, script=script), 1
    )


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"HOLDFAST_ALLOWED_GROUPS": "3,9"}, "size 9 is not between 1 and 4"),
        ({"HOLDFAST_MAX_GROUPS": "13"}, "13 groups cannot share 12 micro-batches"),
    ],
)
def test_a_size_that_is_not_legal(env: dict[str, str], why: str, tmp_path: Path) -> None:
    assert why in one_line(started(tmp_path, env), 1)


def test_a_torchft_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "torchft-0.3.0.dist-info").mkdir()
    (tmp_path / "torchft-0.3.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torchft\nVersion: 0.3.0\n"
    )
    line = one_line(started(tmp_path, path=f"{tmp_path}:{_PATH}"), 1)
    assert "torchft 0.3.0 is installed, and only 0.2.0 is known to work: pip install" in line


def test_a_missing_torch() -> None:
    """Without site-packages, so that there is none. A program that imports torch first gets Python's own message."""
    argv = [sys.executable, "-S", "-c", "from holdfast_train import Session"]
    process = subprocess.Popen(argv, env={"PYTHONPATH": _PATH}, stderr=subprocess.PIPE, text=True)
    assert "torch is not installed: pip install 'WHEEL[train]'" in one_line(process, 1)


def test_a_forged_token_is_told_by_the_room_and_at_once(rooms: Rooms, tmp_path: Path) -> None:
    opened = rooms.ask(do="open", room="job-7", rules={"min_groups": 1})
    line = one_line(started(tmp_path, {"HOLDFAST_QUORUM": opened["url"], "HOLDFAST_INCARNATION": "9.0"}), 1)
    assert (
        "rendezvous job-7: the token of group 0 is not this job's: HOLDFAST_QUORUM_TOKEN is wrong or of another job"
        in line
    )


def test_a_group_that_is_evicted_says_why_and_asks_to_be_requeued(rooms: Rooms, tmp_path: Path) -> None:
    opened = rooms.ask(do="open", room="job-7", rules={"min_groups": 1})
    env = {
        "HOLDFAST_QUORUM": opened["url"],
        "HOLDFAST_QUORUM_TOKEN": opened["token"],
        "HOLDFAST_INCARNATION": "9.0",
    }
    process = started(tmp_path, env)
    try:
        until_s = time.monotonic() + 60
        while rooms.ask(do="status", room="job-7")["rooms"][0]["step"] < 3:
            assert time.monotonic() < until_s
            assert process.poll() is None
            time.sleep(0.05)
        rooms.ask(do="evict", room="job-7", member="0~9.0", reason="gpu.xid 79")
        began_s = time.monotonic()
        assert "cannot come back: evicted (gpu.xid 79)" in one_line(process, 85)
        assert time.monotonic() - began_s < 30
    finally:
        process.kill()
        process.communicate()
    assert "cannot come back: evicted (gpu.xid 79)" in one_line(started(tmp_path, env), 85)
