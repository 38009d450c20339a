"""The end of a training of real groups: a warm spare that waits, and later groups, end as well."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torchft.coordination", reason="the extra 'train' is not installed")

from bench.kit.rooms import Rooms

from holdfast.practice.elastic import steps
from holdfast_train.membership import refused_by
from support.watched_job import M, start_group, write_tokens

pytestmark = pytest.mark.slow

LAST = 12
DONE = "holdfast_train: Holdfast's rendezvous job-1: the training is done"


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    made = Rooms(tmp_path)
    made.start()
    yield made
    made.stop()


def start(rooms: Rooms, opened: dict[str, str], group: int, restarts: int = 0) -> subprocess.Popen[bytes]:
    """A group that trains until all steps are committed."""
    return start_group(rooms, opened, group, f"{group + 10}.{restarts}", "--steps", str(LAST))


def said(rooms: Rooms, group: int, restarts: int = 0) -> list[str]:
    """By the library; without torchft's own warnings."""
    lines = (rooms.folder / f"{group}-{group + 10}.{restarts}.err").read_text().splitlines()
    return [line for line in lines if line.startswith(("holdfast_train:", "Traceback"))]


def until(what: Callable[[], bool], limit_s: float = 240) -> None:
    end_s = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_who_waits_leaves_when_it_is_told_and_ends_when_the_last_step_is_done_and_so_does_who_comes_later(
    rooms: Rooms,
) -> None:
    write_tokens(rooms.folder, random.Random(6))
    rules = {"min_groups": 2, "max_groups": 3, "heartbeat_timeout_s": 60}
    opened = rooms.ask(do="open", room="job-1", rules={**rules, "min_groups": 6, "max_groups": 6})
    groups = [start(rooms, opened, group) for group in range(5)]
    try:
        until(lambda: len(rooms.ask(do="status")["rooms"][0]["asking"]) == 5)
        groups[4].send_signal(signal.SIGUSR1)
        assert groups[4].wait(30) == 85
        rooms.ask(do="open", room="job-1", rules=rules)  # there is no place for the last one
        until(lambda: rooms.ask(do="status")["rooms"][0]["done"])
        assert [group.wait(30) for group in groups[:4]] == [0, 0, 0, 0]
        assert [said(rooms, group) for group in range(4)] == [[], [], [], [DONE]]
        rooms.kill()
        rooms.start()
        assert rooms.ask(do="open", room="job-1", rules=rules)["url"] == opened["url"]
        groups.append(start(rooms, opened, 4, restarts=1))
        assert groups[5].wait(90) == 0
        assert said(rooms, 4, restarts=1) == [DONE]
        attempts = steps.read(rooms.folder)
        assert {a.group for a in attempts} == {0, 1, 2}
        assert max(a.step for a in attempts) == LAST
        assert steps.problems(attempts, M) == []
    finally:
        for process in groups:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("Holdfast's rendezvous job-1: the training is done", 0),
        ("Holdfast's rendezvous job-1: 0~1.0:u cannot come back: evicted (drain)", 85),
        ("Holdfast's rendezvous job-1: 0~1.0:u cannot come back: left (the training is done by others)", 1),
    ],
)
def test_only_a_rooms_own_word_ends_a_group_well(line: str, status: int) -> None:
    refused = refused_by(f'status: PermissionDenied, message: "{line}", details: []')
    assert refused is not None
    assert (str(refused), refused.status) == (line, status)
