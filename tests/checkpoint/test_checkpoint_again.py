"""A step that is saved again, and a rank that is started again alone: nothing is written into a checkpoint that is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint import Checkpointer, FencedOff, RanksMissing, RunId, latest, survey_all
from holdfast_checkpoint.manifest import folder_name, parse_folder_name, save_number

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
    """It begins where the run began, as the others did; what its first life left of a file is not part of the checkpoint."""
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
