"""A step that is saved again, and a rank that is restarted alone: nothing is written into a complete checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from holdfast_checkpoint import (
    Checkpointer,
    CheckpointError,
    FencedOff,
    RanksMissing,
    RunId,
    commit,
    latest,
    survey_all,
)
from holdfast_checkpoint.base.manifest import MANIFEST, folder_name, parse_folder_name, parse_manifest, save_number

Build = Any

RUN = RunId("5", (0, 0, 0))


def rank(build: Build, number: int, size: int = 2) -> Checkpointer:
    return Checkpointer(build.root, rank=number, world_size=size, run=RUN, timeout_s=0.2, env={})


def write(checkpointer: Checkpointer, step: int, what: str) -> None:
    with checkpointer.save(step) as folder:
        (folder / "shard").write_text(what)


def break_off(checkpointer: Checkpointer, step: int, error: type[BaseException]) -> None:
    def save() -> None:
        with checkpointer.save(step) as folder:
            (folder / "half").write_text("x")
            raise error

    with pytest.raises(error):
        save()


def complete(build: Build) -> list[str]:
    return [found.name for found in survey_all(str(build.root), digests=True).candidates if found.complete]


def shard(path: str, number: int) -> str:
    return Path(path, f"rank-{number:05d}", "shard").read_text()


def test_the_number_of_a_save_is_part_of_its_folders_name() -> None:
    for number in (1, 2, 41):
        name = folder_name(10, RUN, number)
        assert (parse_folder_name(name), save_number(name)) == ((10, RUN), number)
    assert save_number("checkpoint-10") == 0
    assert parse_folder_name(f"{folder_name(10, RUN)}-s0") is None


def test_a_step_that_is_saved_again_is_a_checkpoint_of_its_own(build: Build) -> None:
    """The periodic save and the last one, or the one on a signal, often meet at one step."""
    ranks = [rank(build, 1), rank(build, 0)]
    ranks[1].resume()
    ranks[0].resume()
    for what in ("first", "second"):
        for each in ranks:
            write(each, 10, f"{what} of {each.rank}")
    assert complete(build) == [folder_name(10, RUN, 2), folder_name(10, RUN)]
    found = latest(str(build.root))
    assert found is not None
    assert [shard(found.path, n) for n in (0, 1)] == ["second of 0", "second of 1"]


def test_rank_0_takes_no_receipt_of_an_earlier_save(build: Build) -> None:
    first, other = rank(build, 0), rank(build, 1)
    first.resume()
    other.resume()
    write(other, 10, "first")
    write(first, 10, "first")
    with pytest.raises(RanksMissing):
        write(first, 10, "second, and rank 1 has not handed in its own")
    assert complete(build) == [folder_name(10, RUN)]


def test_a_second_save_that_is_broken_off_harms_nothing(build: Build) -> None:
    alone = rank(build, 0, 1)
    alone.resume()
    write(alone, 10, "whole")
    break_off(alone, 10, KeyboardInterrupt)
    found = latest(str(build.root))
    assert found is not None
    assert shard(found.path, 0) == "whole"


def test_a_rank_may_try_its_part_again(build: Build) -> None:
    """A file system that was full for a moment: what the first try left is not part of the checkpoint."""
    first, other = rank(build, 0), rank(build, 1)
    first.resume()
    other.resume()
    break_off(other, 10, OSError)
    write(other, 10, "whole")
    write(first, 10, "whole")
    assert complete(build) == [folder_name(10, RUN)]
    assert not (build.root / folder_name(10, RUN) / "rank-00001" / "half").exists()


def test_a_rank_that_is_started_again_alone_is_refused(build: Build) -> None:
    """A loop around the program of one task: the others are beyond the step at which the run began."""
    first, other = rank(build, 0), rank(build, 1)
    first.resume()
    other.resume()
    write(other, 10, "one")
    write(first, 10, "one")
    again = rank(build, 1)
    with pytest.raises(FencedOff, match=r"rank 1 of j5-r0\.0\.0 has saved step 10 before.*HOLDFAST_ATTEMPT"):
        again.resume()
    assert complete(build) == [folder_name(10, RUN)]


def test_a_rank_that_was_started_again_before_its_first_save_goes_on(build: Build) -> None:
    """It begins where the run began, as the others did; what its first process left of a file is not part of the checkpoint."""
    first, other = rank(build, 0), rank(build, 1)
    first.resume()
    other.resume()
    break_off(other, 10, KeyboardInterrupt)
    again = rank(build, 1)
    assert again.resume() is None
    write(again, 10, "one")
    write(first, 10, "one")
    assert complete(build) == [folder_name(10, RUN)]


def test_a_late_twin_of_a_rank_writes_into_nothing_that_is_complete(build: Build) -> None:
    first, other, twin = rank(build, 0), rank(build, 1), rank(build, 1)
    first.resume()
    other.resume()
    twin.resume()
    write(other, 10, "one")
    write(first, 10, "one")
    with pytest.raises(FencedOff, match="has saved step 10 before"):
        write(twin, 10, "two")
    assert complete(build) == [folder_name(10, RUN)]


def test_a_save_within_a_save_of_the_same_step_is_a_checkpoint_of_its_own(build: Build) -> None:
    """A handler of a signal that saves at once, in the middle of the periodic save."""
    alone = rank(build, 0, 1)
    alone.resume()
    with alone.save(10) as folder:
        (folder / "shard").write_text("periodic")
        write(alone, 10, "handler")
        (folder / "optim").write_text("periodic")
    assert complete(build) == [folder_name(10, RUN, 2), folder_name(10, RUN)]
    assert shard(str(build.root / folder_name(10, RUN)), 0) == "periodic"
    assert not (build.root / folder_name(10, RUN, 2) / "rank-00000" / "optim").exists()


def test_saves_of_one_step_in_two_threads_do_not_meet(build: Build) -> None:
    alone = rank(build, 0, 1)
    alone.resume()
    begun, go_on = Event(), Event()

    def slowly() -> None:
        with alone.save(10) as folder:
            (folder / "shard").write_text("thread")
            begun.set()
            go_on.wait(10)
            (folder / "shard").write_text("thread, all of it")

    thread = Thread(target=slowly)
    thread.start()
    begun.wait(10)
    write(alone, 10, "main")
    go_on.set()
    thread.join(10)
    paths = [str(build.root / name) for name in complete(build)]
    assert [shard(path, 0) for path in paths] == ["main", "thread, all of it"]


def test_what_is_broken_off_around_a_save_leaves_that_save_whole(build: Build) -> None:
    """The handler saves and ends the process."""
    alone = rank(build, 0, 1)
    alone.resume()

    def save() -> None:
        with alone.save(10) as folder:
            (folder / "shard").write_text("half")
            write(alone, 10, "handler")
            raise SystemExit

    with pytest.raises(SystemExit):
        save()
    write(alone, 10, "again")
    assert complete(build) == [folder_name(10, RUN, 3), folder_name(10, RUN, 2)]


def test_ranks_agree_on_the_folders_of_saves_that_overlap_in_one_of_them(build: Build) -> None:
    """The signal meets rank 1 within its periodic save and rank 0 before it: the second save of each is the second of all."""
    first, other = rank(build, 0), rank(build, 1)
    first.resume()
    other.resume()
    with other.save(10) as folder:
        (folder / "shard").write_text("one")
        write(other, 10, "two")
    write(first, 10, "one")
    write(first, 10, "two")
    assert complete(build) == [folder_name(10, RUN, 2), folder_name(10, RUN)]


def test_a_rank_that_lost_count_of_its_saves_of_a_step_is_refused(build: Build) -> None:
    """The other ranks cannot know which of two overlapping saves was broken off: what follows would be joined with another save's files."""
    first, other = rank(build, 0), rank(build, 1)
    first.resume()
    other.resume()

    def save() -> None:
        with other.save(10) as folder:
            (folder / "shard").write_text("half")
            write(other, 10, "two")
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        save()
    with pytest.raises(CheckpointError, match="rank 1 broke off a save of step 10 while another one of that step"):
        write(other, 10, "three")
    write(other, 20, "whole")
    write(first, 20, "whole")
    assert complete(build) == [folder_name(20, RUN)]


def test_nothing_is_handed_in_to_what_is_complete(build: Build) -> None:
    alone = rank(build, 0, 1)
    alone.resume()
    write(alone, 10, "one")
    folder = build.root / folder_name(10, RUN)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = parse_manifest(json.loads((folder / MANIFEST).read_bytes()))
    with pytest.raises(CheckpointError, match="is complete"):
        commit.hand_in(folder, ["rank-00000/shard"], 10, RUN, 0, 1)
    with pytest.raises(CheckpointError, match="is complete"):
        commit.publish(folder, manifest, lambda: None)
    with pytest.raises(CheckpointError, match="is complete"):
        commit.empty_folder(folder / "rank-00000")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
