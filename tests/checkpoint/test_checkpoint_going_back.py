"""A run that goes back to one of its earlier steps: the next run does not resume from the abandoned state."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint import Checkpointer, FencedOff, RunId, commit, latest, survey_all
from holdfast_checkpoint.base.manifest import folder_name
from holdfast_checkpoint.fence import FOLDER

Build = Any

RUN = RunId("5", (0, 0, 0))


def started(build: Build, run: RunId = RUN) -> Checkpointer:
    checkpointer = Checkpointer(build.root, rank=0, world_size=1, run=run, timeout_s=0.2, env={})
    checkpointer.resume()
    return checkpointer


def save(checkpointer: Checkpointer, *steps: int) -> None:
    for step in steps:
        with checkpointer.save(step) as folder:
            (folder / "shard").write_text(str(step))


def newest(build: Build) -> int | None:
    found = latest(str(build.root))
    return found.step if found else None


def back_files(build: Build) -> list[Path]:
    return sorted((build.root / FOLDER).glob("back-*.json"))


def test_the_next_run_resumes_from_what_was_saved_after_going_back(build: Build) -> None:
    run = started(build)
    save(run, 50, 100, 60)
    assert newest(build) == 60
    save(run, 70)
    assert newest(build) == 70
    again = Checkpointer(build.root, rank=0, world_size=1, run=RunId("5", (1, 0, 0)), env={})
    found = again.resume()
    assert found is not None
    assert found.step == 70
    save(again, 80)
    assert newest(build) == 80


def test_the_same_step_counts_once_it_is_reached_again(build: Build) -> None:
    run = started(build)
    save(run, 50, 100, 60, 100)
    found = latest(str(build.root))
    assert found is not None
    assert found.name == folder_name(100, RUN, 2)


def test_what_was_abandoned_counts_where_nothing_else_is_complete(build: Build) -> None:
    """Missing data is no reason to start from zero."""
    run = started(build)
    save(run, 50, 100, 60)
    for step in (50, 60):
        shutil.rmtree(build.root / folder_name(step, RUN))
    assert newest(build) == 100
    assert started(build, RunId("5", (1, 0, 0))).latest() is not None


def test_a_save_that_goes_back_and_is_cut_off_leaves_where_it_went_back_to(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(build)
    save(run, 50, 100)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commit, "publish", killed)
    with pytest.raises(KeyboardInterrupt):
        save(run, 60)
    assert newest(build) == 50


def test_a_late_save_of_an_earlier_step_abandons_nothing(build: Build) -> None:
    """An asynchronous save of step 100 that ends after the one of step 110."""
    run = started(build)
    with run.save(100) as folder:
        (folder / "shard").write_text("100")
        save(run, 110)
    save(run, 120)
    assert newest(build) == 120
    assert not back_files(build)


def test_a_run_that_was_taken_over_abandons_nothing(build: Build) -> None:
    old = started(build)
    save(old, 50, 100)
    new = started(build, RunId("5", (1, 0, 0)))
    with pytest.raises(FencedOff):
        save(old, 60)
    assert not back_files(build)
    assert new.latest() is not None
    assert newest(build) == 100


def test_what_a_run_was_started_from_is_not_abandoned(build: Build) -> None:
    save(started(build), 50, 100)
    started(build, RunId("5", (1, 0, 0)))
    path = build.root / FOLDER / f"back-{folder_name(60, RUN)}.json"
    path.write_text(json.dumps({"v": 1, "abandoned": [folder_name(100, RUN)]}))
    assert newest(build) == 100


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"v":2,"abandoned":[]}',
        '{"v":1,"abandoned":"step-0000100-j5-r0.0.0"}',
        '{"v":1,"abandoned":["step-0000100-j6-r0.0.0"]}',
        '{"v":1,"abandoned":["step-0000050-j5-r0.0.0"]}',
        '{"v":1,"abandoned":[7]}',
    ],
)
def test_a_file_that_makes_no_sense_abandons_nothing(build: Build, text: str) -> None:
    save(started(build), 50, 100)
    (build.root / FOLDER / f"back-{folder_name(60, RUN)}.json").write_text(text)
    assert newest(build) == 100
    assert any("back-" in line for line in survey_all(str(build.root)).warnings)
