"""Daemons that the nursery forks are what ``launch.py`` would have started."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.practice.cluster import nursery
from holdfast.practice.cluster.processes import Processes, ProcessRecord
from support.practice import eventually

_DAEMON = """
import json, os, random, signal, sys, threading
from pathlib import Path

print("out")
print("err", file=sys.stderr)
Path(sys.argv[1] + ".draft").write_text(json.dumps({
    "program": Path(sys.argv[0]).name,
    "arguments": sys.argv[2:],
    "name": __name__,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1],
    "leads its session": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "ignored": [number for number in range(1, 32) if signal.getsignal(number) is signal.SIG_IGN],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "umask": os.umask(0),
    "hashes": sys.flags.hash_randomization,
    "random": random.random(),
    "imported before": "sqlite3" in sys.modules,
}))
Path(sys.argv[1] + ".draft").rename(sys.argv[1])
signal.pause()
"""


@pytest.fixture
def processes(short_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """Of an empty cluster, with a nursery that has imported sqlite3 for the module ``shows``."""
    (tmp_path / "shows.py").write_text(_DAEMON)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(nursery, "IMPORTED", {"shows": ("sqlite3", "holdfast.agent.main", "holdfast.head.quorum_main")})
    made = Processes(short_folder / "nursery")
    (short_folder / "nursery" / "log").mkdir(parents=True, exist_ok=True)
    made.start_nursery()
    yield made
    for name in made.names():
        made.kill(name)
    assert made.kill_marked() == []


def _shown(
    processes: Processes, name: str, folder: Path, *, reaper: bool = False, env: Mapping[str, str] | None = None
) -> tuple[ProcessRecord, dict[str, Any]]:
    """Start the daemon and return its record, and what it found."""
    file = folder / name
    log = folder / f"{name}.log"
    record = processes.start(
        name,
        [sys.executable, "-m", "shows", str(file), "--x", "é"],
        env={"A": "1", **(env or {})},
        cwd=folder,
        log=log,
        reaper=reaper,
    )
    eventually(file.exists, within_s=60, why=log.read_text)
    assert sorted(log.read_text().splitlines()) == ["err", "out"]
    return record, json.loads(file.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("reaper", [False, True])
def test_a_fork_is_like_a_program(processes: Processes, tmp_path: Path, reaper: bool) -> None:
    forked, its = _shown(processes, "forked", tmp_path, reaper=reaper)
    _, others = _shown(processes, "another", tmp_path, reaper=reaper)
    born_by = processes.main_pid(nursery.NAME)
    assert born_by is not None
    assert psutil.Process(born_by).children() == []
    command = [word for word in psutil.Process(forked.main_pid).cmdline() if word]
    assert (forked.pid != forked.main_pid) == reaper
    assert processes.tree("forked") == ([forked.pid, forked.main_pid] if reaper else [forked.pid])

    processes.kill(nursery.NAME)
    assert processes.alive("forked")
    launched, programs = _shown(processes, "launched", tmp_path, reaper=reaper)
    assert command == [*forked.argv] == [word.replace("launched", "forked") for word in launched.argv]
    assert (its.pop("imported before"), others.pop("imported before"), programs.pop("imported before")) == (
        True,
        True,
        False,
    )
    assert len({shown.pop("random") for shown in (its, others, programs)}) == 3
    assert its == programs
    for name in ("forked", "launched"):
        processes.stop(name, grace_s=30)
        assert processes.tree(name) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"), [("PYTHONHASHSEED", "0"), ("LD_LIBRARY_PATH", "/nowhere"), ("FAKETIME", "+1d")]
)
def test_what_counts_at_the_start_is_started_as_a_program(
    processes: Processes, tmp_path: Path, name: str, value: str
) -> None:
    _, found = _shown(processes, "program", tmp_path, env={name: value})
    assert not found["imported before"]
    assert found["environment"][name] == value
    assert found["hashes"] == (name != "PYTHONHASHSEED")


@pytest.mark.parametrize(
    "argv",
    [
        ["/another/python", "-m", "holdfast.agent"],
        [sys.executable, "-m", "holdfast.cli"],
        [sys.executable, "-c", "pass"],
        [sys.executable],
        ["slurmd", "-D"],
    ],
)
def test_what_is_no_daemon_of_ours_is_a_program(argv: list[str]) -> None:
    assert nursery.birth(argv, env={}, cwd=Path("/"), log=Path("/log"), reaper=False) is None


def test_a_nursery_that_ended_is_not_waited_for(tmp_path: Path) -> None:
    birth = nursery.birth(
        [sys.executable, "-m", "holdfast.agent", "--config", "f"], env={}, cwd=tmp_path, log=tmp_path, reaper=True
    )
    assert birth is not None
    assert birth.arguments == ["--config", "f"]
    assert nursery.fork(tmp_path / "nursery.sock", birth, lambda: False) is None


@pytest.mark.slow
def test_the_daemons_imports_start_no_thread_and_need_no_cluster(short_folder: Path) -> None:
    made = Processes(short_folder / "real")
    (short_folder / "real" / "log").mkdir(parents=True)
    made.start_nursery()
    log = short_folder / "real" / "log" / "nursery.log"
    eventually((short_folder / "real" / "run" / "nursery.sock").exists, within_s=100, why=log.read_text)
    assert log.read_text() == ""
    assert made.alive(nursery.NAME)
    made.kill(nursery.NAME)
