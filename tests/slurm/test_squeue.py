"""Which texts of users are asked of squeue, and which answers count."""

from __future__ import annotations

import pytest

from holdfast.model.errors import NotFound
from holdfast.slurm import squeue
from holdfast.slurm.records import OwnTexts


class Fake:
    """A squeue with an array 10 whose element 12 was requeued, and somebody else's job 20. It knows the options of 22.05 to 26.05 alone."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, *argv: str) -> str:
        assert "--array-unique" not in argv
        self.asked.append(" ".join(argv[:-1]))
        ids = [int(one) for one in argv[argv.index("-j") + 1].split(",")] if "-j" in argv else [10, 20]
        jobs = {10: (10, "mine"), 12: (10, "mine"), 20: (20, "theirs")}
        if len(ids) == 1 and ids[0] not in jobs:
            raise NotFound("Invalid job id specified")
        lines = [(array, job_id, name) for job_id, (array, name) in jobs.items() if job_id in ids]
        words = {"%F": 0, "%A": 1, "%j": 2, "%a": 3, "%U": 4}
        text = ""
        for line in lines:
            printed = argv[-1]
            for word, number in words.items():
                printed = printed.replace(word, str((*line, "root", 0)[number]))
            text += printed + "\n"
        return text


def record(job_id: int) -> str:
    return f"JobId={job_id} ArrayJobId=10 JobName=x UserId=root(0)\n"


def test_nothing_more_is_asked_where_each_record_has_a_line() -> None:
    run = Fake()
    assert squeue.texts_of(run, record(10) + record(20)) == {
        10: OwnTexts("mine", "root", 0),
        20: OwnTexts("theirs", "root", 0),
    }
    assert len(run.asked) == 1


def test_a_requeued_element_is_asked_for_by_its_id() -> None:
    run = Fake()
    assert squeue.texts_of(run, record(10) + record(12))[12] == OwnTexts("mine", "root", 0)
    assert len(run.asked) == 2
    assert run.asked[1].endswith("-r -j 12 -o")


def test_somebody_elses_job_is_none_of_an_arrays() -> None:
    """A record with the id of a real job, forged by the owner of 10."""
    assert sorted(squeue.texts_of(Fake(), record(10) + record(20), "-j", "10")) == [10]


@pytest.mark.parametrize("forged", [[99], [98, 99]])
def test_a_job_that_is_none_of_slurms(forged: list[int]) -> None:
    assert sorted(squeue.texts_of(Fake(), record(10) + "".join(map(record, forged)))) == [10, 20]


def test_ids_fit_into_an_argument() -> None:
    run = Fake()
    squeue.texts_of(run, "".join(record(67_000_000 - number) for number in range(10_001)))
    assert [len(line) < 128 * 1024 for line in run.asked] == [True, True, True]
