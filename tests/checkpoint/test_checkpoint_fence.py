"""No second writer starts, and an unseen run that trains on does no harm."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint import Checkpointer, FencedOff, RunId, Unreadable, Verdict, latest, survey, survey_all
from holdfast_checkpoint.base.confined import Walk, open_root
from holdfast_checkpoint.fence import FOLDER, Fence, effective, fenced_off, last_valid_step, read_fences

Build = Any
A0, A1, A2 = (RunId("A", (n, 0, 0)) for n in range(3))
B0, B1 = RunId("B"), RunId("B", (1, 0, 0))


def row(*fences: tuple[RunId, int]) -> list[Fence]:
    return [Fence(sequence, run, step) for sequence, (run, step) in enumerate(fences, 1)]


@pytest.mark.parametrize(
    ("fences", "run", "by"),
    [
        ([], A0, None),
        ([(A0, 0)], A0, None),
        ([(A0, 0)], A1, None),
        ([(A0, 0), (A1, 10)], A0, A1),
        ([(A1, 10)], A0, A1),
        ([(A1, 10), (A0, 0)], A0, A1),
        ([(A1, 10), (A0, 0)], A1, None),
        ([(A0, 0), (B0, 10)], A0, B0),
        ([(A0, 0), (B0, 10)], B0, None),
        ([(A0, 0), (B0, 10)], A1, None),
        ([(A0, 0), (B0, 10), (A1, 20)], B0, A1),
        ([(A0, 0), (B0, 10), (A1, 20)], A1, None),
        ([(A2, 0), (B0, 10), (A1, 20)], B0, None),
        ([(RunId("A", (0, 0, 0)), 0), (RunId("A", (0, 1, 0)), 5)], A0, RunId("A", (0, 1, 0))),
    ],
)
def test_who_is_fenced_off(fences: Sequence[tuple[RunId, int]], run: RunId, by: RunId | None) -> None:
    found = fenced_off(row(*fences), run)
    assert (found.run if found else None) == by


@pytest.mark.parametrize(
    ("fences", "run", "step"),
    [
        ([(A0, 0)], A0, None),
        ([(A0, 0), (A1, 100)], A0, 100),
        ([(A0, 0), (A1, 100)], A1, None),
        ([(A0, 0), (A1, 100), (A2, 150)], A0, 100),
        ([(A0, 0), (A1, 100), (A2, 150)], A1, 150),
        ([(A0, 0), (B0, 40), (B1, 60)], A0, 40),
        ([(A1, 100), (A0, 20)], A1, None),
        ([(A1, 100)], B0, 100),
    ],
)
def test_up_to_which_step_a_run_counts(fences: Sequence[tuple[RunId, int]], run: RunId, step: int | None) -> None:
    assert last_valid_step(row(*fences), run) == step


def test_a_late_fence_of_an_older_run_has_no_effect() -> None:
    assert [f.run for f in effective(row((A0, 0), (A2, 5), (A1, 7)))] == [A0, A2]


def start(build: Build, run: RunId) -> Checkpointer:
    checkpointer = Checkpointer(build.root, run=run, env={})
    checkpointer.resume()
    return checkpointer


def save(checkpointer: Checkpointer, step: int) -> None:
    with checkpointer.save(step) as folder:
        (folder / "state").write_text(f"{checkpointer.run} {step}")


def step_now(build: Build) -> int | None:
    found = latest(str(build.root))
    return found.step if found else None


def test_an_older_run_can_save_no_more_once_a_newer_one_resumed(build: Build) -> None:
    old = start(build, A0)
    save(old, 100)
    new = start(build, A1)
    with pytest.raises(FencedOff, match="jA-r1"):
        save(old, 150)
    save(new, 120)
    assert step_now(build) == 120
    with pytest.raises(FencedOff):
        start(build, A0)


def test_a_commit_that_slips_through_between_look_and_rename_does_not_count(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = start(build, A0)
    save(old, 100)
    real = os.rename
    resumed: list[int | None] = []

    def rename(source: Any, target: Any) -> None:
        if str(target).endswith("MANIFEST.json") and not resumed:
            monkeypatch.setattr(os, "rename", real)
            checkpointer = Checkpointer(build.root, run=A1, env={})
            found = checkpointer.resume()
            resumed.append(found.step if found else None)
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    save(old, 150)
    assert resumed == [100]
    assert step_now(build) == 100
    assert [(c.step, c.verdict) for c in survey(str(build.root)).passed_over] == [(150, Verdict.FENCED)]
    third = Checkpointer(build.root, run=A2, env={})
    found = third.resume()
    assert found is not None
    assert found.step == 100
    save(third, 150)
    assert step_now(build) == 150
    assert str(latest(str(build.root)).path).endswith("jA-r2.0.0")  # type: ignore[union-attr]


def test_two_runs_at_the_same_step_never_share_a_folder(build: Build) -> None:
    old = start(build, A0)
    block = old.save(10)
    theirs = block.__enter__()
    (theirs / "state").write_text("old")
    new = start(build, A1)
    with new.save(10) as ours:
        (ours / "state").write_text("new")
    assert ours != theirs
    with pytest.raises(FencedOff):
        block.__exit__(None, None, None)
    found = latest(str(build.root))
    assert found is not None
    assert (new.rank_path(found) / "state").read_text() == "new"


def test_another_job_takes_the_directory_over_when_it_starts(build: Build) -> None:
    first = start(build, A0)
    save(first, 10)
    second = start(build, B0)
    with pytest.raises(FencedOff):
        save(first, 20)
    save(second, 20)
    back = Checkpointer(build.root, run=A1, env={})
    found = back.resume()
    assert found is not None
    assert found.step == 20
    with pytest.raises(FencedOff):
        save(second, 30)


def test_a_single_rank_started_again_without_slurms_knowledge_gets_a_run_of_its_own(build: Build) -> None:
    first, second = start(build, A0), start(build, A0)
    assert second.run == RunId("A", (0, 0, 1))
    with pytest.raises(FencedOff):
        save(first, 10)
    save(second, 10)


def test_several_ranks_started_again_unseen_are_refused_with_the_way_out(build: Build) -> None:
    Checkpointer(build.root, run=A0, rank=0, world_size=2, env={}).resume()
    with pytest.raises(FencedOff, match="HOLDFAST_ATTEMPT"):
        Checkpointer(build.root, run=A0, rank=0, world_size=2, env={}).resume()


def test_a_damaged_fence_is_left_out_and_said(build: Build) -> None:
    start(build, A0)
    (build.root / FOLDER / "00000002.json").write_text('{"v": 1, "run": "jA')
    (build.root / FOLDER / "00000003.json").mkdir()
    found = survey(str(build.root))
    assert [w.split(" ")[0] for w in found.warnings] == [f"{FOLDER}/00000002.json", f"{FOLDER}/00000003.json"]
    start(build, A1)
    with open_root(str(build.root), Walk()) as root:
        assert [(f.sequence, f.run) for f in read_fences(root)[0]] == [(1, A0), (4, A1)]


def test_a_fence_that_cannot_be_read_stops_everything(build: Build, tmp_path: Path) -> None:
    save(start(build, A0), 10)
    (build.root / FOLDER).rename(tmp_path / "moved")
    (build.root / FOLDER).symlink_to(tmp_path / "moved")
    with pytest.raises(Unreadable, match="symbolic link"):
        survey(str(build.root))


def _race(root: Path, generation: int, barrier: Any, results: Any) -> None:
    checkpointer = Checkpointer(root, run=RunId("A", (generation, 0, 0)), env={})
    barrier.wait()
    try:
        checkpointer.resume()
        time.sleep(0.05)
        save(checkpointer, 10)
    except FencedOff:
        results.put((generation, False))
    else:
        results.put((generation, True))


def test_of_runs_that_start_at_once_only_the_newest_can_save(build: Build) -> None:
    context = multiprocessing.get_context("fork")
    results, barrier = context.SimpleQueue(), context.Barrier(4)
    runs = [context.Process(target=_race, args=(build.root, g, barrier, results)) for g in range(4)]
    for run in runs:
        run.start()
    outcome = dict(results.get() for _ in runs)
    for run in runs:
        run.join()
    assert outcome[3]
    found = latest(str(build.root))
    assert found is not None
    assert found.run == RunId("A", (3, 0, 0))


def _train_on(root: Path, started: Any) -> None:
    checkpointer = Checkpointer(root, run=A0, env={})
    checkpointer.resume()
    for step in range(1, 10_000):
        try:
            save(checkpointer, step)
        except FencedOff:
            os._exit(7)
        if step == 5:
            started.set()


def test_a_cut_off_run_that_trains_on_is_ignored_and_stops(build: Build) -> None:
    context = multiprocessing.get_context("fork")
    started = context.Event()
    cut_off = context.Process(target=_train_on, args=(build.root, started))
    cut_off.start()
    assert started.wait(20)
    new = Checkpointer(build.root, run=A1, env={})
    found = new.resume()
    assert found is not None
    assert found.step is not None
    resumed = found.step
    assert resumed >= 5
    for step in range(resumed + 1, resumed + 4):
        save(new, step)
    cut_off.join(20)
    assert cut_off.exitcode == 7
    assert step_now(build) == resumed + 3
    for candidate in survey_all(str(build.root)).candidates:
        if candidate.complete and candidate.run == A0:
            assert candidate.step is not None
            assert candidate.step <= resumed
