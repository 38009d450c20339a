"""Checkpoints of an elastic job on the disk: what is saved, what is resumed, and what a disk that fails does to it."""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("torchft", reason="the extra 'train' is not installed")

from holdfast_checkpoint import Layout, lease, survey_all, verify  # noqa: E402
from holdfast_train import TrainError, Unusable  # noqa: E402
from holdfast_train.membership import StepPosition  # noqa: E402
from holdfast_train.ranks import RankGroup  # noqa: E402
from holdfast_train.saves.durable import DurableCheckpoints, FinalSave, Training  # noqa: E402
from holdfast_train.saves.interval import daly_s, interval_s, mtbf_of_all_s  # noqa: E402
from holdfast_train.saves.stored import StateOrigin  # noqa: E402
from holdfast_train.settings import TrainSettings  # noqa: E402
from holdfast_train.sizes import parse_sizes  # noqa: E402
from holdfast_train.tensors.statetree import Misfit, blank, join, split  # noqa: E402
from holdfast_train.world import TrainingWorld  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")]
DAY_S = 86_400.0


class Part:
    """Further state of a job."""

    def __init__(self) -> None:
        self.seen: dict[Any, Any] = {"words": ("a", 1), "table": torch.arange(3), 7: [0.5, None, True]}

    def state_dict(self) -> dict[Any, Any]:
        return self.seen

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        self.seen = state


class Group:
    """One replica group without its peers: model, optimizer, and what a session would call."""

    def __init__(self, directory: Path, number: int = 0, *, width: int = 4, samples: int = 8, **options: Any) -> None:
        torch.manual_seed(number)
        env = {"HOLDFAST_AGENT_SOCKET": "/nonexistent", **options.pop("env", {})}
        ours = options.pop("ours", True)
        token, sign_s = options.pop("token", "a token"), options.pop("sign_s", 0.2)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(width, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.part, self.step = Part(), 0
        self.settings = TrainSettings(
            "http://127.0.0.1:1", ours, token, number, f"{number}.0", parse_sizes("1:4"), "127.0.0.1"
        )
        self.now_s = 1000.0
        self.durable = DurableCheckpoints(directory, sign_s=sign_s, env=env, clock=lambda: self.now_s, **options)
        parts = {"model": self.model, "optimizer": self.optimizer, "part": self.part}
        about = StateOrigin(0, 0, samples, 2, 1)
        self.durable.open(
            Training(self.settings, RankGroup(self.settings), parts, about, self._start_at, lambda _: None)
        )

    def _start_at(self, step: int) -> None:
        self.step = step

    def begin(self, rank: int = 0, present: int = 1, quorum_id: int = 1) -> bool:
        return self.durable.ready(StepPosition(rank, present, quorum_id), self.step)

    def train(self, steps: int = 1, passing_s: float = 0.0, **standing: int) -> None:
        for _ in range(steps):
            assert self.begin(**standing)
            self.optimizer.zero_grad()
            self.model(torch.ones(1, 3)).sum().backward()
            self.optimizer.step()
            self.step += 1
            self.now_s += passing_s
            self.durable.after_step(self.step)

    def saved(self) -> None:
        self.durable.wait()

    def weights(self) -> Any:
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])


def steps_of(directory: Path) -> list[int | None]:
    return [c.step for c in survey_all(str(directory)).candidates if c.complete]


def checkpoint_of(directory: Path, steps: int = 3, **options: Any) -> Group:
    group = Group(directory, **options)
    group.train(steps)
    group.durable.finish(group.step)
    return group


# How often


@pytest.mark.parametrize(
    ("cost_s", "mtbf_s", "wanted_s"),
    [(10, 10_000, 440.81), (1, 1e6, 1413.55), (60, 7200, 889.95), (30, 10, 10), (0, 1e6, 0)],
)
def test_dalys_interval(cost_s: float, mtbf_s: float, wanted_s: float) -> None:
    assert daly_s(cost_s, mtbf_s) == pytest.approx(wanted_s, rel=1e-3)


def test_dalys_interval_loses_least() -> None:
    cost_s, mtbf_s = 60.0, 7200.0

    def lost(interval: float) -> float:  # Daly's expected time per useful second, restart aside
        return mtbf_s * math.expm1((interval + cost_s) / mtbf_s) / interval

    best = daly_s(cost_s, mtbf_s)
    assert lost(best) < min(lost(best * 0.8), lost(best * 1.25))


def test_all_groups_are_lost_at_once_far_less_often_than_one() -> None:
    alone = mtbf_of_all_s(1, 2)
    assert alone == pytest.approx(DAY_S / (2 * 6.5e-3))
    two = mtbf_of_all_s(2, 2, common_share=0.0, heal_s=600)
    assert two == pytest.approx((alone**2) / (2 * 600))
    assert mtbf_of_all_s(4, 2) == pytest.approx(DAY_S / (0.13 * 8 * 6.5e-3), rel=1e-3)


@pytest.mark.parametrize(
    ("cost_s", "took_s", "mtbf_s", "wanted_s"),
    [(0.1, 1, 1e9, 3600), (0.001, 0.1, 100, 60), (1, 400, 1e6, 1413.6), (1, 900, 1e6, 1800)],
)
def test_the_interval_keeps_its_bounds_and_leaves_time_to_write(
    cost_s: float, took_s: float, mtbf_s: float, wanted_s: float
) -> None:
    assert interval_s(cost_s, took_s, mtbf_s, 60, 3600) == pytest.approx(wanted_s, rel=1e-3)


# What is saved


def test_a_state_comes_apart_and_together_again() -> None:
    state = {
        "a": torch.arange(4).reshape(2, 2),
        "b": [1, (2.5, None)],
        3: {"c": torch.tensor(1.5), "d": True},
        "e": torch.zeros(0),
    }
    tree, tensors = split(state)
    assert sorted(tensors) == ["3/c", "a", "e"]
    again = json.loads(json.dumps(tree))
    made = blank(again)
    for name, tensor in made.items():
        tensor.copy_(tensors[name])
    assert str(join(again, made)) == str(state)
    with pytest.raises(TypeError, match="object in the training state"):
        split({"a": {"b": object()}})
    wrongs: tuple[Any, ...] = ([1], {"x": [1]}, {"y": []}, {"d": [["a"]]}, {"x": ["a", "load", [1]]})
    for wrong in wrongs:
        with pytest.raises(Misfit):
            blank(wrong)


def test_a_checkpoint_is_the_registry_s_and_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    old = checkpoint_of(tmp_path, 5)
    (found,) = survey_all(str(tmp_path)).candidates
    assert (found.layout, found.step, found.complete) == (Layout.HOLDFAST, 5, True)
    assert verify(found.path).complete
    old.part.seen = {}
    new = Group(tmp_path, 1)
    assert not new.begin(quorum_id=7)  # it has taken the state over; the step is begun again with it
    assert new.step == 5
    assert torch.equal(new.weights(), old.weights())
    assert str(new.part.seen) == str(Part().seen)
    old.durable._begun = True
    for group in (old, new):
        group.train(3, quorum_id=8)
    assert torch.equal(new.weights(), old.weights())  # the optimizer's state came, too


def test_what_is_trained_while_a_state_is_written_is_not_in_it(tmp_path: Path) -> None:
    old = Group(tmp_path, least_s=10, most_s=10)
    for _ in range(2):  # the second time into memory that was used before
        old.train(1, passing_s=11)
        weights, step = old.weights(), old.step
        old.train(5)
        old.saved()
    new = Group(tmp_path, 1)
    assert not new.begin(quorum_id=7)
    assert new.step == step
    assert torch.equal(new.weights(), weights)


def test_others_wait_until_the_first_group_has_read_it(tmp_path: Path) -> None:
    checkpoint_of(tmp_path)
    other = Group(tmp_path, 1)
    assert not other.begin(rank=1, present=2, quorum_id=5)
    assert other.step == 0
    fresh = Group(tmp_path / "empty", 1)
    assert fresh.begin(rank=1, present=2)


@contextmanager
def errors(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    lines: list[str] = []
    with caplog.at_level(logging.INFO, "holdfast_train"):
        yield lines
        lines.extend(
            r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and r.name.startswith("holdfast")
        )


@pytest.mark.parametrize("what", ["cut", "flipped", "state"])
def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    old = Group(tmp_path, least_s=10, most_s=10)
    old.train(1, passing_s=11)
    old.saved()
    weights = old.weights()
    old.train(1, passing_s=11)
    old.saved()
    newest = Path(survey_all(str(tmp_path)).candidates[0].path)
    data = newest / ("rank-00000/state.json" if what == "state" else "rank-00000/__0_0.distcp")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content[:-100] if what == "cut" else content)
    new = Group(tmp_path, 1)
    with errors(caplog) as lines:
        assert not new.begin(quorum_id=7)
    assert new.step == 1
    assert torch.equal(new.weights(), weights)
    assert len(lines) == (0 if what == "cut" else 1)  # sizes are looked at before
    assert all("passed_over" in line for line in lines)


def test_where_all_are_damaged_nothing_begins_from_zero(tmp_path: Path) -> None:
    checkpoint_of(tmp_path)
    newest = Path(survey_all(str(tmp_path)).candidates[0].path)
    data = newest / "rank-00000/__0_0.distcp"
    data.write_bytes(bytes(data.stat().st_size))
    with pytest.raises(TrainError, match="can be read; move them away"):
        Group(tmp_path, 1).begin(quorum_id=7)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"width": 5}, "0.bias is 4 there and 5 here"),
        ({"samples": 16}, "global batch of 8, and this job has 16"),
    ],
)
def test_a_checkpoint_of_another_model_or_batch_is_one_line_and_changes_nothing(
    tmp_path: Path, options: Mapping[str, int], line: str
) -> None:
    checkpoint_of(tmp_path)
    other = Group(tmp_path, 1, **options)
    before = other.weights()
    with pytest.raises(TrainError, match=line):
        other.begin(quorum_id=7)
    assert torch.equal(other.weights(), before)
    assert other.step == 0
    assert not other.optimizer.state


def test_a_checkpoint_that_the_launcher_names_is_taken_where_there_is_none(tmp_path: Path) -> None:
    checkpoint_of(tmp_path / "before")
    path = survey_all(str(tmp_path / "before")).candidates[0].path
    new = Group(tmp_path / "now", 1, env={"HOLDFAST_RESUME_FROM": path})
    assert not new.begin()
    assert new.step == 3
    gone = Group(tmp_path / "then", 1, env={"HOLDFAST_RESUME_FROM": path + "x"})
    assert gone.begin()


# Who writes, and when


def test_only_the_first_group_saves_and_only_when_it_is_time(tmp_path: Path) -> None:
    first = Group(tmp_path, least_s=100, most_s=100)
    first.train(5, passing_s=30)
    first.saved()
    assert steps_of(tmp_path) == [4]
    second = Group(tmp_path, 1, least_s=100, most_s=100)
    second.step = 5
    second.train(5, passing_s=300, rank=1, present=2, quorum_id=2)
    second.saved()
    assert steps_of(tmp_path) == [4]


def test_who_becomes_the_writer_goes_by_the_age_of_the_newest_checkpoint(tmp_path: Path) -> None:
    checkpoint_of(tmp_path)
    found = survey_all(str(tmp_path)).candidates[0]
    for age_s, saves in ((10, False), (4000, True)):
        then = time.time() - age_s
        os.utime(found.path, (then, then))
        heir = Group(tmp_path, 1)
        heir.step = 9
        heir.train(1, quorum_id=3 + age_s)
        heir.saved()
        heir.train(1, quorum_id=3 + age_s)
        heir.saved()
        assert (len(steps_of(tmp_path)) == 2) is saves


def test_the_last_of_those_who_leave_saves_and_nobody_on_an_ordinary_leave(tmp_path: Path) -> None:
    groups = [Group(tmp_path, n) for n in range(3)]
    for rank, group in enumerate(groups):
        assert group.begin(rank=rank, present=3)
        group.step = 6
    groups[2].durable.leave(6)
    assert steps_of(tmp_path) == []
    for rank, group in enumerate(groups[:2]):
        assert group.begin(rank=rank, present=2, quorum_id=2)
    groups[0].durable.leave(6)
    assert steps_of(tmp_path) == []
    groups[1].durable.leave(6)
    assert steps_of(tmp_path) == [6]
    assert lease.alive_elsewhere(str(tmp_path), frozenset(), 1, lambda _: pytest.fail("it said that it ended")) is None


def test_who_was_long_without_a_quorum_does_not_count_on_the_others_when_it_leaves(tmp_path: Path) -> None:
    groups = [Group(tmp_path, n) for n in range(3)]
    for rank, group in enumerate(groups):
        assert group.begin(rank=rank, present=3)
        group.step = 6
        group.now_s += 6
    for group in groups[:2]:  # both are in doubt; one is enough
        group.durable.leave(6)
    assert steps_of(tmp_path) == [6]


def test_keep_removes_the_oldest_and_nothing_without_it(tmp_path: Path) -> None:
    for keep, kept in ((None, [3, 2, 1]), (2, [3, 2])):
        directory = tmp_path / str(keep)
        group = Group(directory, keep=keep, least_s=1, most_s=1)
        for _ in range(3):
            group.train(1, passing_s=2000)
            group.saved()
        assert steps_of(directory) == kept
        assert len(list(directory.glob("step-*"))) == len(kept)


def test_a_second_job_in_the_directory_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    first = Group(tmp_path)
    first.train(2)
    second = Group(tmp_path, token="another", sign_s=8)
    with pytest.raises(TrainError, match=r"another elastic job \(q\w+\) is alive"):
        second.begin()
    first.train(1)
    first.durable.finish(first.step)
    heir = Group(tmp_path, 1, token="another")
    assert not heir.begin()
    assert heir.step == 3


def test_a_first_job_that_slept_learns_that_another_has_the_directory(tmp_path: Path) -> None:
    first = Group(tmp_path, least_s=10, most_s=10)
    first.train(1, passing_s=11)
    first.saved()
    killed(first)
    second = Group(tmp_path, token="another")
    assert not second.begin()
    first.train(1, passing_s=11)
    first.saved()
    with pytest.raises(TrainError, match="another job"):
        first.train(1)
    assert steps_of(tmp_path) == [1]


# The end


def at_the_end(tmp_path: Path) -> tuple[Group, Group]:
    """Two groups after the last step, which they did together."""
    groups = Group(tmp_path), Group(tmp_path, 1)
    for rank, group in enumerate(groups):
        group.train(3, rank=rank, present=2)
    return groups


def killed(group: Group) -> None:
    pulse = group.durable._signs._pulse
    assert pulse is not None
    pulse.stop()
    pulse._thread.join()


def another_sign(directory: Path) -> None:
    before = lease.sign(str(directory))
    while lease.sign(str(directory)) == before:
        time.sleep(0.01)


def test_who_takes_the_end_over_waits_while_the_group_before_shows_that_it_lives(tmp_path: Path) -> None:
    first, second = at_the_end(tmp_path)
    assert second.durable.end(3) is FinalSave.ELSEWHERE
    assert second.begin(quorum_id=2)
    for _ in range(3):
        assert second.durable.end(3) is FinalSave.ELSEWHERE
        another_sign(tmp_path)
        second.now_s += 1
    killed(first)
    assert second.durable.end(3) is FinalSave.ELSEWHERE
    second.now_s += 1  # more than 2.5 signs
    assert second.durable.end(3) is FinalSave.SAVED
    assert steps_of(tmp_path) == [3]
    assert lease.sign(str(tmp_path)) is None


def test_an_end_that_was_saved_by_a_group_that_is_lost_is_not_saved_again(tmp_path: Path) -> None:
    first, second = at_the_end(tmp_path)
    assert first.durable.end(3) is FinalSave.SAVED
    assert second.begin(quorum_id=2)
    assert second.durable.end(3) is FinalSave.SAVED
    assert steps_of(tmp_path) == [3]


def test_who_gives_up_waiting_finds_the_end_that_another_group_saved(tmp_path: Path) -> None:
    first, second = at_the_end(tmp_path)
    assert second.durable.end(3) is FinalSave.ELSEWHERE
    assert first.durable.end(3) is FinalSave.SAVED
    second.now_s += 600
    assert second.durable.leave(3)
    assert steps_of(tmp_path) == [3]


def test_an_end_that_one_group_cannot_save_is_the_next_one_s_at_once(tmp_path: Path) -> None:
    first, second = at_the_end(tmp_path)
    with files_of_at_most(2048):
        assert first.durable.end(3) is FinalSave.FAILED
    assert second.begin(quorum_id=2)
    assert second.durable.end(3) is FinalSave.SAVED
    assert steps_of(tmp_path) == [3]


def test_who_leaves_while_another_saves_the_end_does_not_save_it_too(tmp_path: Path) -> None:
    for lost, saved in ((False, []), (True, [3])):
        first, second = at_the_end(tmp_path / str(lost))
        assert second.durable.end(3) is FinalSave.ELSEWHERE
        second.now_s += 6
        if lost:
            killed(first)
        assert second.durable.leave(3) is lost
        assert steps_of(tmp_path / str(lost)) == saved
        if not lost:
            killed(first)


# A stock lighthouse, which counts from 0 again


def test_a_world_around_a_lighthouse_that_was_started_again_goes_on_and_its_members_agree(tmp_path: Path) -> None:
    world, healed = TrainingWorld("w1", of_room=False), TrainingWorld("w2", of_room=False)
    world.observe(57, 100)
    state = world.state_dict()
    world.observe(1, 130)
    healed.load_state_dict(state)
    healed.observe(1, 130)
    assert world.term() == healed.term()
    assert (world.term().formerly, world.term().quorum_id, world.term().began_step) == ("w1", 1, 130)
    room = TrainingWorld("q1", of_room=True)
    room.observe(57, 100)
    room.observe(1, 130)
    assert room.term().room == "q1"


# A disk that fails


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_directory_that_cannot_be_written_is_one_line_at_the_start(tmp_path: Path) -> None:
    group = Group(tmp_path)
    with files_of_at_most(0), pytest.raises(TrainError, match=r"no checkpoint can be written .* File too large"):
        group.begin()
    with pytest.raises(Unusable, match="keep=0"):
        DurableCheckpoints(tmp_path, keep=0, env={})
    with pytest.raises(Unusable, match="HOLDFAST_MTBF_S='x'"):
        DurableCheckpoints(tmp_path, env={"HOLDFAST_MTBF_S": "x"})


def test_a_directory_that_nothing_can_be_said_about_is_waited_for_and_then_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    group = Group(tmp_path / "file")
    assert not group.begin()
    (tmp_path / "file").unlink()
    assert group.begin()
    (tmp_path / "another").write_text("")
    group = Group(tmp_path / "another")
    assert not group.begin()
    group.now_s += 121
    with pytest.raises(TrainError, match="not a directory"):
        group.begin()


def check_that_a_save_failed(group: Group, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    with errors(caplog) as lines:
        group.train(1, passing_s=11)
        group.saved()
    assert len(lines) == 1, lines
    assert "event=save_failed step=2" in lines[0]
    assert steps_of(directory) == [1]
    assert len(list(directory.glob("step-*"))) == 1


def check_that_the_next_one_works(group: Group, directory: Path) -> None:
    group.train(1, passing_s=11)
    group.saved()
    assert steps_of(directory) == [3, 1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=False, capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_is_one_line_and_the_next_save_tries_again(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = small_disk / "run"
    group = Group(directory, least_s=10, most_s=10)
    group.train(1, passing_s=11)
    group.saved()
    ballast = small_disk / "ballast"
    try:
        ballast.write_bytes(bytes(1 << 20))
    except OSError:
        assert ballast.stat().st_size > 100_000
    check_that_a_save_failed(group, directory, caplog)
    ballast.unlink()
    check_that_the_next_one_works(group, directory)


def test_a_limit_on_the_size_of_files_is_one_line_and_the_next_save_tries_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(tmp_path, least_s=10, most_s=10)
    group.train(1, passing_s=11)
    group.saved()
    with files_of_at_most(2048):
        check_that_a_save_failed(group, tmp_path, caplog)
    check_that_the_next_one_works(group, tmp_path)
