"""The end of a training of real groups whose last state is saved: the group that saves it is lost in that, or cannot."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("torchft", reason="the extra 'train' is not installed")

from holdfast_checkpoint import survey_all, verify
from holdfast_train.world import room_name
from support.elastic_groups import Groups

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LAST = 4
LIMIT_S = 150.0


class Job:
    """Groups of a rendezvous that forms no quorum of fewer than two, held in the first step of all of them."""

    def __init__(self, groups: Groups, count: int, **env: str) -> None:
        self.groups, self.directory = groups, groups.folder / "checkpoints"
        self.env = {"HOLDFAST_MIN_GROUPS": "2", "CHECKPOINTS": str(self.directory), **env}
        rules = {"min_groups": 2, "max_groups": 3, "join_timeout_s": 20, "heartbeat_timeout_s": 60}
        groups.rooms.ask(do="open", room="job-7", rules={**rules, "min_groups": count})
        self.hold = groups.folder / "hold"
        self.hold.touch()
        self.names = [self.start(group, "1.0") for group in range(count)]
        groups.wait(lambda: all(self.present(names[0]) for names in self.names))
        groups.rooms.ask(do="open", room="job-7", rules=rules)
        self.quorum = int(self.room()["quorum_id"])

    def present(self, name: str) -> bool:
        return any(a["quorum"] == self.room()["quorum_id"] for a in self.groups.lines(name, "attempt"))

    def start(self, group: int, start: str) -> list[str]:
        return self.groups.start(group, f"{group + 5}.{start}", "none", -1, **self.env)

    def room(self) -> dict[str, Any]:
        found: dict[str, Any] = self.groups.rooms.ask(do="status", room="job-7")["rooms"][0]
        return found

    def folder(self, quorum: int) -> Path:
        """Where the first group of that quorum saves the end."""
        return self.directory / f"step-{LAST:07d}-j{room_name(self.groups.opened['token'])}-r{quorum}.0.0"

    def block_the_last_save(self) -> None:
        """The disk hangs when the first group of this quorum writes: it writes into a FIFO without a reader."""
        file = self.folder(self.quorum) / "rank-00000/__0_0.distcp"
        file.parent.mkdir(parents=True)
        os.mkfifo(file)

    def go_on_to_the_end(self) -> None:
        """Until the groups behind the first one wait for it."""
        self.hold.unlink()
        others = len(self.names) - 1
        self.groups.wait(lambda: len(self.asking()) == others and self.ended(), LIMIT_S)

    def asking(self) -> list[str]:
        found: list[str] = self.room()["asking"]
        return found

    def ended(self) -> bool:
        return all(self.groups.at(name, LAST)() for names in self.names for name in names)

    def kill(self) -> None:
        """The group that saves; rank 0 waits for the disk, and another rank may be done with its own part."""
        for name in self.names[0]:
            self.groups.running[name].kill()
        self.groups.ends(self.names[0][:1], -signal.SIGKILL)

    def evict(self) -> None:
        self.groups.rooms.ask(do="evict", room="job-7", member="0~5.1.0", reason="drill")
        self.groups.ends(self.names[0][:1], 85, LIMIT_S)

    def check_the_end(self) -> None:
        """It is on the disk once, complete, and no group did more than all steps."""
        (end,) = [c for c in survey_all(str(self.directory)).candidates if c.complete]
        assert end.step == LAST
        assert verify(end.path).complete
        assert self.room()["done"]
        for name in self.groups.running:
            assert all(a["step"] < LAST for a in self.groups.lines(name, "attempt"))
            assert "Traceback" not in (self.groups.folder / f"{name}.err").read_text()


Opened = Callable[[str, int, int], Groups]


@pytest.mark.parametrize(
    ("kind", "ranks", "lose"),
    [
        ("plain", 1, Job.kill),
        pytest.param("plain", 1, Job.evict, marks=pytest.mark.soak),
        pytest.param("split", 2, Job.kill, marks=pytest.mark.soak),
        pytest.param("split", 2, Job.evict, marks=pytest.mark.soak),
    ],
)
def test_the_group_that_saves_the_end_is_lost_and_with_its_next_start_the_end_is_saved(
    kind: str, ranks: int, lose: Callable[[Job], None], opened: Opened
) -> None:
    job = Job(opened(kind, ranks, LAST), 2)
    job.block_the_last_save()
    job.go_on_to_the_end()
    lose(job)
    again = job.start(0, "1.1")
    job.groups.ends([*job.names[1], *again], 0, LIMIT_S)
    job.check_the_end()


@pytest.mark.soak
def test_where_enough_groups_are_left_they_save_the_end_without_the_one_that_is_lost(opened: Opened) -> None:
    job = Job(opened("plain", 1, LAST), 3)
    job.block_the_last_save()
    job.go_on_to_the_end()
    job.kill()
    job.groups.ends([*job.names[1], *job.names[2]], 0, LIMIT_S)
    job.groups.ends(job.start(0, "1.1"), 0, LIMIT_S)  # and a later group ends
    job.check_the_end()


@pytest.mark.soak
def test_who_waited_for_long_saves_the_end_by_itself(opened: Opened) -> None:
    job = Job(opened("plain", 1, LAST), 2, TORCHFT_QUORUM_TIMEOUT_SEC="40", TORCHFT_QUORUM_RETRIES="40")
    job.block_the_last_save()
    job.go_on_to_the_end()
    job.kill()
    job.groups.ends(job.names[1], 0, LIMIT_S)
    job.groups.ends(job.start(0, "1.1"), 0, LIMIT_S)
    job.check_the_end()


def test_who_waits_for_the_end_to_be_saved_leaves_when_it_is_told(opened: Opened) -> None:
    job = Job(opened("plain", 1, LAST), 2)
    job.block_the_last_save()
    job.go_on_to_the_end()
    job.groups.running[job.names[1][0]].send_signal(signal.SIGUSR1)
    job.groups.ends(job.names[1], 85, LIMIT_S)
    assert not job.room()["done"]
    assert job.groups.running[job.names[0][0]].poll() is None


def test_where_nobody_can_save_the_end_all_groups_end(opened: Opened) -> None:
    job = Job(opened("plain", 1, LAST), 3)
    for quorum in range(job.quorum, job.quorum + 9):
        job.folder(quorum).write_text("in the way")
    job.hold.unlink()
    job.groups.ends([name for names in job.names for name in names], 0, LIMIT_S)
    assert job.room()["done"]
    said = [(job.groups.folder / f"{names[0]}.err").read_text() for names in job.names]
    assert ["save_failed" in text for text in said] == [True, True, False]
    assert [f"event=done_but_not_saved step={LAST}" in text for text in said] == [False, True, False]
    assert not [c for c in survey_all(str(job.directory)).candidates if c.complete]
