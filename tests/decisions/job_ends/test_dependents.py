"""Whether a job waits for the end of another and has started because of it: a table of Slurm's dependency strings."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.controller.observing.observe import remember_dependencies
from holdfast.decisions.job_ends.dependents import gone_on, latched_for, waits_for
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
END = T0 + timedelta(hours=1)
LATER, BEFORE = END + timedelta(seconds=5), END - timedelta(seconds=5)


def _job(job_id: int, **changed: Any) -> Job:
    said = {
        "name": "train", "user": "ada", "uid": 1000, "account": "", "partition": "gpu", "qos": "", "state": "PENDING", "reason": "",
        "restarts": 0, "requeue": True, "batch": True, "num_nodes": 1, "nodes": (), "required_nodes": (), "excluded_nodes": (), **changed,
    }  # fmt: skip
    return Job(key=JobKey("c", job_id, said.pop("submitted", T0)), **said)


FAILED = _job(7, state="FAILED", nodes=("n1",), start_time=T0, end_time=END)
ELEMENT = _job(9, state="FAILED", nodes=("n1",), end_time=END, array_job_id=8, array_task_id=3)


@pytest.mark.parametrize(
    ("dependency", "job", "waits"),
    [
        ("afternotok:7(unfulfilled)", FAILED, True),
        ("afterany:5(unfulfilled),afterok:7(unfulfilled)", FAILED, True),
        ("afterok:5(unfulfilled)?afterany:7(unfulfilled)", FAILED, True),
        ("aftercorr:7(unfulfilled)", FAILED, True),
        ("after:7(unfulfilled)", FAILED, False),
        ("after:7+10(unfulfilled)", FAILED, False),
        ("afterany:77(unfulfilled)", FAILED, False),
        ("", FAILED, False),
        ("singleton(unfulfilled)", FAILED, False),
        ("afterany:8_*(unfulfilled)", ELEMENT, True),
        ("afterany:8_3(unfulfilled)", ELEMENT, True),
        ("afterany:8_4(unfulfilled)", ELEMENT, False),
        ("afterany:9(unfulfilled)", ELEMENT, True),
    ],
)
def test_what_a_job_waits_for(dependency: str, job: Job, waits: bool) -> None:
    assert waits_for(dependency, job) is waits


ON_IT = {"dependency": "afternotok:7(unfulfilled)"}
RUNS = {"state": "RUNNING", "nodes": ("n2",), "start_time": LATER}


@pytest.mark.parametrize(
    ("other", "gone"),
    [
        ({**ON_IT, "reason": "Dependency"}, False),
        ({**ON_IT, "reason": "DependencyNeverSatisfied"}, False),
        ({**ON_IT, "reason": "Resources"}, True),
        ({**ON_IT, **RUNS}, True),
        ({**ON_IT, **RUNS, "state": "COMPLETED"}, True),
        ({**ON_IT, **RUNS, "start_time": BEFORE}, False),
        ({**ON_IT, "state": "CANCELLED", "end_time": LATER}, True),
        ({**ON_IT, "state": "CANCELLED", "end_time": BEFORE}, False),
        ({**ON_IT, "reason": "Priority", "uid": 1001}, False),
        ({**ON_IT, **RUNS, "uid": 1001}, False),
        ({**ON_IT, "state": "CANCELLED", "end_time": LATER, "uid": 1001}, False),
        ({**ON_IT, "reason": "JobHeldUser"}, False),
        ({**ON_IT, "reason": "JobHeldAdmin"}, False),
        ({**ON_IT, "reason": "BadConstraints"}, False),
        ({"dependency": "", **RUNS}, False),
        ({"dependency": "singleton(unfulfilled)", **RUNS}, True),
        ({"dependency": "singleton(unfulfilled)", **RUNS, "name": "other"}, False),
        ({"dependency": None, **RUNS}, True),
        ({"dependency": None, **RUNS, "uid": 1001}, False),
        ({"dependency": None, **RUNS, "submitted": LATER}, False),
        ({"dependency": None, **RUNS, "start_time": BEFORE}, False),
        ({"dependency": None}, False),
    ],
)  # fmt: skip
def test_what_has_gone_on(other: dict[str, Any], gone: bool) -> None:
    view = ClusterView("c", LATER, {}, {7: FAILED, 12: _job(12, **other)}, {})
    assert (gone_on(view, FAILED) is not None) is gone


NEXT = {"dependency": "", "submitted": BEFORE}


@pytest.mark.parametrize(
    ("other", "gone"),
    [
        (NEXT, True),
        ({**NEXT, **RUNS}, True),
        ({**NEXT, "state": "COMPLETED", "nodes": ("n2",), "start_time": BEFORE}, False),
        ({**NEXT, "name": "evaluate"}, False),
        ({**NEXT, "uid": 1001}, False),
        ({**NEXT, "submitted": END - timedelta(minutes=5)}, False),
        ({**NEXT, "submitted": LATER}, False),
        ({**NEXT, "restarts": 1}, False),
    ],
)
def test_the_next_link_of_a_chain_that_the_script_itself_submitted(other: dict[str, Any], gone: bool) -> None:
    """``sbatch`` at the end of a script that fails, without a dependency."""
    view = ClusterView("c", LATER, {}, {7: FAILED, 12: _job(12, **other)}, {})
    assert (gone_on(view, FAILED) is not None) is gone


def test_jobs_that_were_submitted_together_are_no_chain() -> None:
    """One of a sweep fails within its first minute."""
    first = replace(FAILED, start_time=END - timedelta(seconds=30))
    view = ClusterView("c", LATER, {}, {7: first, 12: _job(12, **NEXT)}, {})
    assert gone_on(view, first) is None


CORR = {"array_job_id": 20, "dependency": "aftercorr:8_*(unfulfilled)", "reason": "Dependency"}


@pytest.mark.parametrize(
    ("other", "gone"),
    [
        ({"dependency": "afterok:8_*(unfulfilled)", "reason": "Dependency"}, True),
        ({"dependency": "afterok:8_*(failed)", "reason": "DependencyNeverSatisfied"}, True),
        ({"dependency": "afternotok:8_*(unfulfilled)", "reason": "Dependency"}, True),
        ({"dependency": "afterany:5(unfulfilled),afternotok:8_*(unfulfilled)", "reason": "Dependency"}, True),
        ({"dependency": "afternotok:8_*(unfulfilled)", "reason": "JobHeldUser"}, True),
        ({"dependency": "afternotok:8_*(unfulfilled)", "reason": "Dependency", "uid": 1001}, False),
        ({"dependency": "afterany:8_*(unfulfilled)", "reason": "Dependency"}, False),
        ({"dependency": "after:8_*(unfulfilled)", "reason": "Dependency"}, False),
        ({"dependency": "afterok:8_4(unfulfilled)", "reason": "Dependency"}, False),
        ({"dependency": "afterok:88_*(unfulfilled)", "reason": "Dependency"}, False),
        # On the element alone: its newest end counts once the owner has renewed the dependency.
        ({"dependency": "afterok:8_3(failed)", "reason": "DependencyNeverSatisfied"}, False),
        ({"dependency": "afterok:9(failed)", "reason": "DependencyNeverSatisfied"}, False),
        ({"dependency": "aftercorr:8_*(unfulfilled)", "reason": "Dependency"}, True),
        ({**CORR, "array_task_id": 3}, True),
        ({**CORR, "array_task_id": 4}, False),
        ({**CORR, "array_tasks_waiting": (2, 3)}, True),
        ({**CORR, "array_tasks_waiting": (4, 5)}, False),
        ({**CORR, "array_task_id": 5, "dependency": "aftercorr:8_*(failed)"}, True),
    ],
)
def test_what_waits_for_an_array_in_which_an_element_has_failed(other: dict[str, Any], gone: bool) -> None:
    """Slurm keeps an array's worst exit: restarting the element changes nothing for jobs that wait for the array."""
    view = ClusterView("c", LATER, {}, {9: ELEMENT, 12: _job(12, **other)}, {})
    assert (gone_on(view, ELEMENT) is not None) is gone


def test_no_job_but_an_arrays_element_decides_for_good() -> None:
    assert not latched_for("afterok:7(failed)", _job(12), FAILED)


def _view(*jobs: Job) -> ClusterView:
    return ClusterView("c", T0, {}, {j.key.job_id: j for j in jobs}, {})


def test_what_a_job_waited_for_is_remembered_when_slurm_forgets_it() -> None:
    waiting, met = _job(12, **ON_IT), _job(12, dependency="")
    view = remember_dependencies(None, _view(waiting))
    view = remember_dependencies(view, _view(met))
    assert view.jobs[12].dependency == ON_IT["dependency"]
    view = remember_dependencies(view, _view(_job(12, **RUNS)))
    assert view.jobs[12].dependency == ON_IT["dependency"]


def test_an_element_that_starts_waited_for_what_its_array_waited_for() -> None:
    view = remember_dependencies(None, _view(_job(20, array_job_id=20, **ON_IT)))
    view = remember_dependencies(view, _view(_job(21, array_job_id=20, array_task_id=1, **RUNS)))
    assert view.jobs[21].dependency == ON_IT["dependency"]


def test_another_job_under_the_same_id_waited_for_nothing_that_is_known() -> None:
    view = remember_dependencies(None, _view(_job(12, **ON_IT)))
    view = remember_dependencies(view, _view(_job(12, submitted=LATER, **RUNS)))
    assert view.jobs[12].dependency is None


def test_one_that_was_seen_waiting_for_nodes_alone_depends_on_nothing() -> None:
    view = remember_dependencies(None, _view(_job(12, dependency="")))
    view = remember_dependencies(view, _view(replace(_job(12, **RUNS), dependency=None)))
    assert view.jobs[12].dependency == ""
