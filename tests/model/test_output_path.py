"""Paths of jobs' outputs, as slurmd fills in their patterns (tried on 22.05)."""

from __future__ import annotations

import pytest

from holdfast.model.jobs.output_path import OutputOf, as_given, filled_in

JOB = OutputOf(7, "train", "ada", "host1.cluster", restarts=2)
ELEMENT = OutputOf(8, "train", "ada", "host1", array_job_id=5, array_task_id=13)


@pytest.mark.parametrize(
    ("given", "file"),
    [
        ("/o/slurm-%j.out", "/o/slurm-7.out"),
        ("/o/%A_%a", "/o/7_4294967294"),
        ("/o/%4j", "/o/0007"),
        ("/o/%12j", "/o/0000000007"),
        ("/o/%x.%u.%N", "/o/train.ada.host1"),
        ("/o/%4x", "/o/train"),
        ("/o/%s-%t-%n", "/o/batch-0-0"),
        ("/o/%j.%r", "/o/7.2"),
        ("/o/100%%", "/o/100%"),
        ("/o/%%j", "/o/%j"),
        ("/o/%z", "/o/%z"),
        ("/o/%", "/o/%"),
        ("/o/\\%j", "/o/%j"),
        ("/o/a\\\\%j", "/o/a\\%j"),
    ],
)
def test_of_a_job(given: str, file: str) -> None:
    assert filled_in(given, JOB) == file


@pytest.mark.parametrize(
    ("given", "file"), [("/o/%A_%a", "/o/5_13"), ("/o/%3a", "/o/013"), ("/o/%b", "/o/3"), ("/o/%j", "/o/8")]
)
def test_of_an_arrays_element(given: str, file: str) -> None:
    assert filled_in(given, ELEMENT) == file


@pytest.mark.parametrize("path", ["/o/100%", "/o/%j", "/o/%%", "/o/plain"])
def test_a_path_without_patterns_comes_back_as_it_is(path: str) -> None:
    assert filled_in(as_given(path), JOB) == path
