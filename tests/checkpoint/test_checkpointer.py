"""The job's side: several ranks, the rules of use, and the environment."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint import (
    Checkpoint,
    Checkpointer,
    CheckpointError,
    FencedOff,
    RanksMissing,
    RunId,
    Unreadable,
    latest,
    run_from_env,
)
from holdfast_checkpoint import checkpointer as module
from holdfast_checkpoint.base.runs import parse_run

Build = Any


@pytest.mark.parametrize(
    ("env", "run"),
    [
        ({}, RunId("local")),
        ({"SLURM_JOB_ID": "17"}, RunId("17")),
        ({"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "2", "SLURM_STEP_ID": "1"}, RunId("17", (2, 1, 0))),
        ({"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "4294967291"}, RunId("17")),
        ({"SLURM_JOB_ID": "17", "TORCHELASTIC_RESTART_COUNT": "3"}, RunId("17", (0, 0, 3))),
        ({"HOLDFAST_ATTEMPT": "4", "TORCHELASTIC_RESTART_COUNT": "3"}, RunId("local", (0, 0, 4))),
        ({"SLURM_RESTART_COUNT": "-1", "SLURM_STEP_ID": "x"}, RunId("local")),
    ],
)
def test_the_run_comes_from_slurm(env: dict[str, str], run: RunId) -> None:
    assert run_from_env(env) == run
    assert parse_run(str(run)) == run


def test_a_job_id_with_a_path_in_it_is_refused() -> None:
    with pytest.raises(ValueError, match="not a job id"):
        run_from_env({"SLURM_JOB_ID": "../../7"})


@pytest.mark.parametrize("generation", [(1, 0, 0), (0, 0, 1)])
def test_a_run_that_was_started_again_does_not_make_the_directory_that_is_missing(
    generation: tuple[int, int, int], tmp_path: Path
) -> None:
    gone = tmp_path / "scratch" / "run7"

    def handle(run: RunId) -> Checkpointer:
        return Checkpointer(gone, rank=0, world_size=1, run=run, env={})

    with pytest.raises(Unreadable, match="mount its file system"):
        handle(RunId("5", generation)).resume()
    assert not gone.parent.exists()
    gone.mkdir(parents=True)
    assert handle(RunId("5", generation)).resume() is None


def test_a_first_run_makes_its_directory(tmp_path: Path) -> None:
    assert Checkpointer(tmp_path / "a" / "b", rank=0, world_size=1, run=RunId("5"), env={}).resume() is None
    assert (tmp_path / "a" / "b").is_dir()


def ranks(build: Build, generation: int, size: int = 3) -> list[Checkpointer]:
    run = RunId("5", (generation, 0, 0))
    return [Checkpointer(build.root, rank=r, world_size=size, run=run, timeout_s=10, env={}) for r in range(size)]


def together(work: Any, handles: list[Checkpointer]) -> list[Any]:
    results: dict[int, Any] = {}

    def one(handle: Checkpointer) -> None:
        results[handle.rank] = work(handle)

    threads = [threading.Thread(target=one, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[handle.rank] for handle in handles]


def write(handle: Checkpointer) -> None:
    with handle.save(10) as folder:
        (folder / "shard").write_text(f"shard of {handle.rank}")


def test_all_ranks_save_one_checkpoint_and_resume_from_it(build: Build) -> None:
    first = ranks(build, 0)
    assert together(lambda h: h.resume(), first) == [None, None, None]
    together(write, first)
    found = latest(str(build.root))
    assert found is not None
    second = ranks(build, 1)
    starts: list[Checkpoint] = together(lambda h: h.resume(), second)
    assert {(s.step, s.path) for s in starts} == {(10, found.path)}
    shards = [(handle.rank_path(start) / "shard").read_text() for handle, start in zip(second, starts, strict=True)]
    assert shards == ["shard of 0", "shard of 1", "shard of 2"]


def test_nothing_is_committed_without_every_rank(build: Build) -> None:
    handles = ranks(build, 0, 2)
    together(lambda h: h.resume(), handles)
    hasty = handles[0]
    hasty._timeout_s = 0.05
    with pytest.raises(RanksMissing, match="rank 1 did not hand in step 10"):
        write(hasty)
    assert latest(str(build.root)) is None


def test_a_rank_without_rank_0_gives_up(build: Build) -> None:
    with pytest.raises(RanksMissing, match="rank 0 did not say"):
        Checkpointer(build.root, rank=1, world_size=2, timeout_s=0.05, env={}).resume()


def test_other_ranks_of_an_older_run_stop_too(build: Build) -> None:
    old = ranks(build, 0, 2)
    together(lambda h: h.resume(), old)
    ranks(build, 1, 2)[0].resume()
    with pytest.raises(FencedOff):
        write(old[1])


def test_an_exception_while_saving_commits_nothing(build: Build) -> None:
    checkpointer = Checkpointer(build.root, env={})
    checkpointer.resume()

    def fail() -> None:
        with checkpointer.save(10) as folder:
            (folder / "half").write_text("x")
            raise KeyError("out of memory, say")

    with pytest.raises(KeyError):
        fail()
    assert latest(str(build.root)) is None


def test_a_link_among_the_files_is_not_followed(build: Build) -> None:
    checkpointer = Checkpointer(build.root, env={})
    checkpointer.resume()
    with pytest.raises(OSError, match="symbolic"), checkpointer.save(10) as folder:
        (folder / "link").symlink_to("/etc/passwd")
    assert latest(str(build.root)) is None


def test_save_before_resume_and_resume_twice_are_refused(build: Build) -> None:
    checkpointer = Checkpointer(build.root, env={})
    with pytest.raises(CheckpointError, match="resume"), checkpointer.save(1):
        pass
    checkpointer.resume()
    with pytest.raises(CheckpointError, match="twice"):
        checkpointer.resume()


def test_a_run_never_starts_from_zero_on_missing_knowledge(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    build.holdfast(10)
    before = sorted(p.name for p in (build.root / ".holdfast-fence").iterdir())

    def unreadable(_: str) -> None:
        raise Unreadable("Input/output error")

    monkeypatch.setattr(module, "survey", unreadable)
    with pytest.raises(Unreadable):
        Checkpointer(build.root, run=RunId("1", (1, 0, 0)), env={}).resume()
    assert sorted(p.name for p in (build.root / ".holdfast-fence").iterdir()) == before


def test_a_missing_directory_is_made(build: Build) -> None:
    path: Path = build.root / "deeper" / "still"
    checkpointer = Checkpointer(path, env={})
    assert checkpointer.resume() is None
    write(checkpointer)
    assert latest(str(path)) is not None
