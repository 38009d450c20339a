"""Which rendezvous a run may join, by what Slurm shows."""

from __future__ import annotations

import pytest

from holdfast.decisions.common.elastic_jobs import elastic_jobs
from holdfast.decisions.elastic.admission import Admission, AdmissionReason, AdmissionRefusal, RendezvousRequest, admit
from holdfast.model.slurm.cluster import Job
from support.rooms import BASE, flexible_job, four_groups, group_job, view_of

FIRST = RendezvousRequest("n1", 72, 1001, 0)
THIRD = RendezvousRequest("n3", 82, 1001, 0)


def answer(asked: RendezvousRequest, *jobs: Job) -> Admission | AdmissionRefusal:
    view = view_of(*jobs)
    return admit(view, elastic_jobs(view), asked)


@pytest.mark.parametrize(
    ("asked", "index", "start"),
    [
        (FIRST, 0, "72.0"),
        (RendezvousRequest("n2", BASE, 1001, 0), 1, "71.0"),
        (THIRD, 2, "82.0"),
        (RendezvousRequest("n4", 81, 1001, 0), 3, "81.0"),
    ],
)
def test_each_group_of_both_arrays_has_the_same_room(asked: RendezvousRequest, index: int, start: str) -> None:
    found = answer(asked, *four_groups())
    assert isinstance(found, Admission)
    assert (found.job.label, found.group.index, found.group.start) == (f"job-{BASE}", index, start)
    assert (found.job.sizes.least, found.job.sizes.most) == (2, 4)


def test_a_restarted_group_has_its_new_start() -> None:
    found = answer(RendezvousRequest("n1", 72, 1001, 3), group_job(72, restarts=3))
    assert isinstance(found, Admission)
    assert found.group.start == "72.3"


@pytest.mark.parametrize(
    ("asked", "jobs"),
    [
        (FIRST, ()),
        (FIRST, (group_job(72, state="PENDING", nodes=()),)),
        (FIRST, (group_job(72, state="COMPLETING"),)),
        (FIRST, (group_job(72, nodes=("n9",)),)),
        (RendezvousRequest("n1", 72, 1001, 1), (group_job(72),)),
    ],
    ids=["not shown", "waits", "ends", "elsewhere", "newer than shown"],
)
def test_what_slurm_may_show_in_a_moment_is_asked_again(asked: RendezvousRequest, jobs: tuple[Job, ...]) -> None:
    found = answer(asked, *jobs)
    assert isinstance(found, AdmissionRefusal)
    assert (found.why, "\n" in found.line) == (AdmissionReason.NOT_YET, False)


@pytest.mark.parametrize(
    ("asked", "jobs"),
    [
        (RendezvousRequest("n1", 72, 1001, 2), (group_job(72),)),
        (RendezvousRequest("n1", 72, 1001, 2**31 - 1), (group_job(72),)),
        (RendezvousRequest("n1", 72, 1001, 1), (group_job(72, comment="holdfast"),)),
        (RendezvousRequest("n1", 72, 1001, 0), (group_job(72, comment="", nodes=("n9",)),)),
        (RendezvousRequest("n1", 72, 1001, 0), (group_job(72, comment="", state="SUSPENDED"),)),
    ],
)
def test_what_no_reading_would_show_is_asked_again_and_has_slurm_not_read(
    asked: RendezvousRequest, jobs: tuple[Job, ...]
) -> None:
    found = answer(asked, *jobs)
    assert isinstance(found, AdmissionRefusal)
    assert found.why is AdmissionReason.LATER


@pytest.mark.parametrize(
    ("asked", "jobs", "says"),
    [
        (RendezvousRequest("n1", 72, 1002, 0), (group_job(72),), "is not user 1002's"),
        (FIRST, (group_job(72, restarts=1),), "restarts=0 is over"),
        (FIRST, (group_job(72, comment="holdfast"),), "declares no elastic"),
        (FIRST, (group_job(72, comment="elastic=4:2"),), "they must ascend"),
        (FIRST, (group_job(72, comment="elastic=2:4 of=x"),), "of=x is no whole number"),
        (FIRST, (group_job(72, array_job_id=None, array_task_id=None),), "no job array's element"),
        (FIRST, (group_job(72, array_task_id=2),), "task id 2, but the base array of elastic=2:4 has 0 to 1"),
        (THIRD, (flexible_job(82),), "71 is no living base array"),
        (THIRD, (flexible_job(82), group_job(72, uid=1002)), "71 is no living base array"),
        (THIRD, (flexible_job(82), group_job(72, comment="holdfast")), "71 is no living base array"),
        (THIRD, (flexible_job(82), flexible_job(72, array_job_id=BASE, array_task_id=0)), "71 is no living base array"),
        (THIRD, (flexible_job(82), group_job(72, state="COMPLETED")), "71 is no living base array"),
        (THIRD, (flexible_job(82, array_task_id=1), group_job(72)), "task id 1, but the flexible array"),
        (THIRD, (flexible_job(82, array_task_id=9), group_job(72)), "has 2 to 3"),
        (THIRD, (flexible_job(82), flexible_job(91, array_job_id=90), group_job(72)), "a newer element has it"),
    ],
)
def test_what_will_not_change_is_refused_in_one_line(
    asked: RendezvousRequest, jobs: tuple[Job, ...], says: str
) -> None:
    found = answer(asked, *jobs)
    assert isinstance(found, AdmissionRefusal)
    assert (found.why, "\n" in found.line) == (AdmissionReason.NEVER, False)
    assert says in found.line


def test_a_base_whose_elements_all_wait_is_a_living_one() -> None:
    waiting = group_job(BASE, array_task_id=None, array_tasks_waiting=(0, 1), state="PENDING", nodes=())
    assert isinstance(answer(THIRD, flexible_job(82), waiting), Admission)
