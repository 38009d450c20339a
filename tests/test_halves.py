"""``tests/support/halves.py``, run for real on a folder with a few tests: what runs together, what runs alone, and what it returns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import halves
from support.practice import eventually

_SETTINGS = "[pytest]\naddopts = -p xdist.plugin\nmarkers =\n    slurm\n    soak\n"
_SLURM = "import pytest\npytestmark = pytest.mark" + ".slurm\n"  # in two parts: support/marks.py reads this file, too
_MEETS = """
import os, time
from pathlib import Path

def test_meets_the_other():
    Path("{mine}").write_text(f"{{os.nice(0)}} {{os.getsid(0)}} {{os.getpgid(0)}}")
    until = time.monotonic() + 60
    while not Path("{other}").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
"""
_WAITS = """
import pytest, time
from pathlib import Path

@pytest.fixture
def daemon():
    Path("{mine}.begun").touch()
    yield
    Path("{mine}.ended").touch()

def test_waits(daemon):
    time.sleep(100)
"""
_FAILS = "def test_{name}(): assert False\n"
_PASSES = "def test_passes(): pass\n"
_FAILS_BESIDE_OTHERS = """
from pathlib import Path

def test_wants_to_be_alone():
    first = not Path("first").exists()
    Path("first").touch()
    assert not first
    assert Path("slurm-ended").exists()
"""
_TAKES_A_WHILE = """
import time
from pathlib import Path

def test_takes_a_while():
    time.sleep(3)
    Path("slurm-ended").touch()
"""


@contextmanager
def _started(folder: Path, others: str, slurm: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The two halves, each with one file; "" for none."""
    (folder / "pytest.ini").write_text(_SETTINGS)
    for name, text in (("test_others.py", others), ("test_with_slurm.py", slurm and _SLURM + slurm)):
        if text:
            (folder / name).write_text(text)
    command = [sys.executable, halves.__file__, *arguments]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # each of seven processes would load them all
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _run(folder: Path, others: str, slurm: str, *arguments: str) -> tuple[int, str]:
    """Exit status and output."""
    with _started(folder, others, slurm, *arguments) as process:
        output, _ = process.communicate(timeout=200)
        return process.returncode, output


@pytest.mark.slow
def test_both_halves_run_at_the_same_time_and_are_printed_one_after_the_other(tmp_path: Path) -> None:
    others, slurm = _MEETS.format(mine="o", other="s"), _MEETS.format(mine="s", other="o")
    code, output = _run(tmp_path, others, slurm, "-rp")
    assert code == 0, output
    assert output.count("1 passed") == 2
    assert output.index("PASSED test_others.py") < output.index("1 passed") < output.index("PASSED test_with_slurm.py")
    (nice, session, group), (its_nice, its_session, its_group) = (
        map(int, (tmp_path / name).read_text().split()) for name in ("o", "s")
    )
    assert (nice, its_nice) == (min(os.nice(0) + 10, 19), os.nice(0))
    assert session == its_session == os.getsid(0)
    assert len({group, its_group, os.getpgid(0)}) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("others", "slurm", "arguments", "code", "runs"),
    [
        (_FAILS.format(name="a"), _PASSES, (), 1, 3),  # once more, and again in vain
        ("".join(_FAILS.format(name=n) for n in "abcdefghijklm"), _PASSES, (), 1, 2),  # too many for that
        ("", _PASSES, (), 0, 1),  # the other half has no test
        (_PASSES, _FAILS.format(name="a"), ("-k", "passes"), 0, 1),
        (_PASSES, _PASSES, ("-k", "nothing"), 5, 0),
        (_PASSES, _PASSES, ("--no-such-option",), 4, 0),
    ],
)
def test_exit_status(tmp_path: Path, others: str, slurm: str, arguments: tuple[str, ...], code: int, runs: int) -> None:
    found, output = _run(tmp_path, others, slurm, *arguments)
    assert (found, output.count(" passed") + output.count(" failed in")) == (code, runs), output
    assert "UNSTABLE" not in output


@pytest.mark.slow
def test_what_fails_runs_once_more_when_both_halves_have_ended(tmp_path: Path) -> None:
    code, output = _run(tmp_path, _FAILS_BESIDE_OTHERS, _TAKES_A_WHILE)
    assert code == 0, output
    assert "dev: 1 failed of others; once more, alone" in output
    assert "dev: UNSTABLE: 1 failed at first and passed alone" in output
    assert "FAILED test_others.py::test_wants_to_be_alone" in output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_both_halves_with_their_fixtures(tmp_path: Path, number: signal.Signals) -> None:
    with _started(tmp_path, _WAITS.format(mine="o"), _WAITS.format(mine="s")) as process:
        eventually(lambda: all((tmp_path / f"{name}.begun").exists() for name in "os"), within_s=100)
        process.send_signal(number)
        process.send_signal(number)  # who is impatient does not end a fixture's end
        output, _ = process.communicate(timeout=halves.STOP_WITHIN_S + 30)
    assert process.returncode == 130, output
    assert all((tmp_path / f"{name}.ended").exists() for name in "os"), output


@pytest.mark.parametrize(
    ("codes", "status"),
    [((0, 0), 0), ((1, 0), 1), ((0, 1), 1), ((1, 2), 2), ((5, 0), 0), ((1, 5), 1), ((5, 5), 5), ((0, 137), 137)],
)
def test_two_exit_statuses_are_one(codes: tuple[int, ...], status: int) -> None:
    assert halves.exit_status(codes) == status


@pytest.mark.parametrize("text", ["", '{"test_a": true, "test_b": true}'])
def test_how_many_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(halves, "FOLDER", tmp_path)
    half = halves.HALVES[0]
    kept = half.cache / "v/cache/lastfailed"
    kept.parent.mkdir(parents=True)
    if text:
        kept.write_text(text)
    assert half.failed() == (2 if text else 0)
    half.forget_failed()
    assert half.failed() == 0
