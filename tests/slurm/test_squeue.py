"""The arguments of squeue, and which answers count."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import NotFound, Unavailable
from holdfast.slurm import squeue
from holdfast.slurm.squeue import Marks, SqueueRow
from support.squeue import ROW, printed, row

WAITING = {"state": "PENDING", "restarts": "0", "nodes": "", "array_id": "10"}


class Fake:
    """A squeue with an array 10 whose elements 12 (task 4) and 13 (task 5) were requeued, and another user's job 20. It knows the
    options of 22.05 to 26.05 alone, and merges waiting elements as they all do."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, *argv: str, env: Mapping[str, str] | None = None) -> str:
        assert "--array-unique" not in argv
        self.asked.append(" ".join(argv))
        each = "-r" in argv
        array = row(10, task="1-3" if each else "1-5", reason="Resources" if each else "Resources,BeginTime", **WAITING)
        elements = [row(number, task=str(number - 8), reason="BeginTime", **WAITING) for number in (12, 13)]
        known = [array, *(elements if each else ()), row(20)]
        if "-j" in argv:
            ids = argv[argv.index("-j") + 1].split(",")
            known = [one for one in known if one.job_id in ids]
            if not known:
                raise NotFound("Invalid job id specified")
        elif "PENDING" in argv:
            assert argv[-2:] == ("-o", "%A")
            return "10\n10\n10\n12\n13\n"
        return printed(env, *known)


def record(job_id: int, task: int = 0) -> str:
    return f"JobId={job_id} ArrayJobId=10 ArrayTaskId={task} JobName=x UserId=root(0)\n"


def test_nothing_more_is_asked_where_each_record_has_a_row() -> None:
    run = Fake()
    assert squeue.rows_of(run, record(10) + record(20))[20] == row(20)
    assert len(run.asked) == 1


def test_requeued_elements_are_asked_for_by_their_ids() -> None:
    run = Fake()
    found = squeue.rows_of(run, record(10) + record(12, 4) + record(13, 5))
    assert (found[12].task, found[13].task) == ("4", "5")
    assert (found[10].task, found[10].reason) == ("1,2,3", "Resources"), "each task is in one row"
    assert len(run.asked) == 2
    assert run.asked[1].endswith("-r -j 12,13")


@pytest.mark.parametrize("forged", [[(99, 1)], [(98, 1), (99, 2)], [(20, 1)], [(12, 77)]])
def test_a_record_that_is_none_of_slurms(forged: list[tuple[int, int]]) -> None:
    """Ids of no job, of another user's job, and a task that does not wait."""
    text = record(10) + "".join(record(number, task) for number, task in forged)
    assert sorted(squeue.rows_of(Fake(), text)) == [10, 20]


def test_however_many_records_are_forged_three_questions_are_asked() -> None:
    run = Fake()
    text = "".join(record(67_000_000 - number, 1 + number % 3) for number in range(30_000)) + record(12, 4)
    assert sorted(squeue.rows_of(run, text)) == [10, 12, 20]
    assert [one.partition(" -t ")[2] for one in run.asked] == ["all", "PENDING -r -o %A", "all -r -j 12"]


def test_ids_fit_into_an_argument() -> None:
    asked: list[str] = []

    def run(*argv: str, env: Mapping[str, str] | None = None) -> str:
        asked.append(max(argv, key=len))
        if env is None:
            return "".join(f"{67_000_000 - number}\n" for number in range(10_001))
        return printed(env, row(10, task="1-99999", **WAITING))

    squeue.rows_of(run, "".join(record(67_000_000 - number, 1 + number) for number in range(10_001)))
    assert len(asked) == 4
    assert max(map(len, asked)) < 128 * 1024


def test_marks_are_in_no_argument() -> None:
    """``/proc`` shows arguments to every user."""
    run = Fake()
    squeue.rows(run)
    squeue.holders_of(run, "n1")
    assert run.asked == ["squeue -h -a -t all", "squeue -h -a -t all -r -w n1"]


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
NASTY = st.sampled_from(
    ["\n", "JobId=77 ", " JobState=RUNNING", "11", "m", "\x1b[2J", "\x85", "\u2028", "\x0b", "=", ",", ":0"]
)


@given(st.lists(st.lists(st.one_of(TEXT, NASTY), max_size=6).map("".join), min_size=8, max_size=8), st.integers(0, 2))
def test_every_text_of_a_user_comes_back_as_it_is(texts: list[str], where: int) -> None:
    keys = ("name", "account", "wckey", "alloc_node", "comment", "work_dir", "stdout", "stderr")
    rows = [row(number) for number in (5, 6, 7)]
    rows[where] = rows[where]._replace(**dict(zip(keys, texts, strict=True)))
    marks = Marks.fresh()
    assert marks.rows(printed({squeue.FORMAT: marks.format}, *rows)) == rows


@pytest.mark.parametrize("cut", [1, 10, 200, 400])
def test_an_answer_that_is_cut_off_counts_as_none(cut: int) -> None:
    marks = Marks.fresh()
    text = printed({squeue.FORMAT: marks.format}, row(5), row(6))
    with pytest.raises(Unavailable):
        marks.rows(text[:-cut])
    with pytest.raises(Unavailable):
        marks.rows(text.replace(marks.value, "", 1))
    assert marks.rows("") == []


def test_a_uid_beyond_two_thousand_millions() -> None:
    assert ROW._replace(uid="-2").user_id == 4294967294
    assert isinstance(ROW, SqueueRow)
