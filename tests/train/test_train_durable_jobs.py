"""Complete jobs that are lost and come back from the disk: real groups, a real rendezvous, real signals."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("torchft", reason="the extra 'train' is not installed")

from holdfast_checkpoint import latest, verify  # noqa: E402
from support.elastic_groups import Groups  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]


@pytest.fixture
def opened(opened: Callable[[str, int, int], Groups], tmp_path: Path) -> Callable[[str, int, int], Job]:
    return lambda kind, ranks, until: Job(opened(kind, ranks, until), tmp_path / "checkpoints")


class Job:
    """Two groups that only train together, so that every step has the same bits in every run of the job."""

    def __init__(self, groups: Groups, directory: Path) -> None:
        self.groups, self.directory, self.life = groups, directory, 0

    def start(self, every_s: str = "60") -> list[str]:
        self.life += 1
        env = {"HOLDFAST_MIN_GROUPS": "2", "CHECKPOINTS": str(self.directory), "EVERY_S": every_s}
        return [name for group in (0, 1) for name in self.groups.start(group, f"{self.life}.0", "none", -1, **env)]

    def send(self, names: list[str], number: signal.Signals) -> None:
        for name in names:
            self.groups.running[name].send_signal(number)

    def on_disk(self) -> int:
        found = latest(str(self.directory))
        return (found.step or 0) if found else 0

    def first_step(self, name: str) -> int:
        return min(int(line["step"]) for line in self.groups.lines(name, "commit"))

    def last_step(self, names: list[str]) -> int:
        return max(int(line["step"]) for name in names for line in self.groups.lines(name, "commit"))

    def check(self, *unseen: int) -> None:
        """Every step was committed, and with the same bits in every run that did it, rank by rank. ``unseen``: steps after
        which a group left or was killed, which workers may not have recorded."""
        digests: dict[tuple[int, str], set[str]] = {}
        for name in self.groups.running:
            for line in self.groups.lines(name, "commit"):
                digests.setdefault((line["step"], name.split(".")[1]), set()).add(line["digest"])
        wanted = {*range(1, self.groups.until + 1)}
        assert all({s for s, r in digests if r == str(rank)} | {*unseen} == wanted for rank in range(self.groups.ranks))
        assert all(len(found) == 1 for found in digests.values())


@pytest.mark.soak
def test_a_job_that_is_lost_goes_on_from_the_disk_and_one_that_leaves_is_saved_by_the_last(
    opened: Callable[[str, int, int], Job],
) -> None:
    job = opened("plain", 1, 10_000)
    first = job.start(every_s="0.3")
    job.groups.wait(lambda: job.on_disk() >= 10)
    job.send(first, signal.SIGKILL)
    job.groups.ends(first, -signal.SIGKILL)
    saved = job.on_disk()

    second = job.start()
    job.groups.wait(job.groups.at(second[0], saved + 5))
    assert {job.first_step(name) for name in second} == {saved + 1}
    job.send(second[1:], signal.SIGUSR1)
    job.groups.ends(second[1:], 85)
    assert job.on_disk() == saved  # an ordinary leave
    job.send(second[:1], signal.SIGUSR1)  # while it waits for a second group
    job.groups.ends(second[:1], 85)
    assert job.on_disk() - job.last_step(second) in (0, 1)
    job.groups.until = job.last_step(second)
    job.check(saved)


@pytest.mark.soak
def test_all_who_leave_at_once_lose_no_step_and_the_end_is_saved(opened: Callable[[str, int, int], Job]) -> None:
    job = opened("plain", 1, 10_000)
    first = job.start()
    job.groups.wait(job.groups.at(first[0], 5))
    job.send(first, signal.SIGTERM)
    job.groups.ends(first, 85)
    left = job.on_disk()
    assert left - job.last_step(first) in (0, 1)
    job.groups.until = left + 10
    second = job.start()
    job.groups.ends(second, 0)
    assert {job.first_step(name) for name in second} == {left + 1}
    found = latest(str(job.directory))
    assert found is not None
    assert found.step == left + 10
    assert verify(found.path).complete
    job.check(left)


@pytest.mark.soak
def test_a_second_job_in_the_same_directory_is_one_line(opened: Callable[[str, int, int], Job], tmp_path: Path) -> None:
    job = opened("plain", 1, 10_000)
    mine = job.start()
    job.groups.wait(job.groups.at(mine[0], 2))
    rooms = job.groups.rooms
    other = rooms.ask(do="open", room="job-8", rules={"min_groups": 1})
    env = {"HOLDFAST_QUORUM": other["url"], "HOLDFAST_QUORUM_TOKEN": other["token"], "CHECKPOINTS": str(job.directory)}
    theirs = job.groups.start(2, "1.0", "none", -1, **env)
    job.groups.ends(theirs, 1)
    told = (tmp_path / f"{theirs[0]}.err").read_text()
    assert "is alive in" in told
    assert "Traceback" not in told
    job.groups.wait(job.groups.at(mine[0], job.last_step(mine) + 2))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["fsdp", "split"])
def test_groups_of_two_ranks_save_and_read_their_shards(kind: str, opened: Callable[[str, int, int], Job]) -> None:
    job = opened(kind, 2, 10_000)
    first = job.start(every_s="0.5")
    job.groups.wait(lambda: job.on_disk() >= 5)
    job.send(first, signal.SIGKILL)
    job.groups.ends(first, -signal.SIGKILL)
    saved = job.on_disk()
    second = job.start()
    job.groups.wait(job.groups.at(second[0], saved + 5))
    assert {job.first_step(name) for name in second} == {saved + 1}
    job.send(second, signal.SIGUSR1)
    job.groups.ends(second, 85)
    assert job.on_disk() - job.last_step(second) in (0, 1)
    job.groups.until = job.last_step(second)
    job.check(saved)
