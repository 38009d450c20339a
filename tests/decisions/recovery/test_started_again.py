"""What the owner of a job that died is notified of: whether it is restarted, why not, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.api.answers.job_shapes import JobEndShape, WhyShape
from holdfast.api.shown.why import job_id_of, why_shape
from holdfast.decisions.recovery.started_again import now_says
from holdfast.model.incidents.incident import IncidentKind
from holdfast.model.jobs.job_ends import Again, Cause, Reading
from holdfast.model.policies.policy import Mode
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

BUG = "Traceback (most recent call last):\nKeyError: 'loss'\n"
NCCL = "torch.distributed.DistBackendError: NCCL error in ProcessGroupNCCL.cpp\n"
OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=5.0.\n"
FULL = "OSError: [Errno 28] No space left on device\n"


def _training(site: Site, nodes: int = 2, **changed: Any) -> SimJob:
    said = {"comment": "holdfast", "exclusive": True, "stderr": "/home/ada/%x-%j.out", **changed}
    job = site.slurm.submit(nodes, **said)
    site.run(2)
    assert job.state == "RUNNING"
    return job


def _fails(site: Site, job: SimJob, output: str | None = None, code: str = "1:0") -> None:
    if output is not None:
        site.agents.outputs[job.job_id] = output
    job.exit_code = code
    site.slurm.finish(job, "FAILED")


def _fails_of_a_fault(site: Site, job: SimJob) -> None:
    at = site.clock.now()
    _fails(site, job, NCCL)
    site.fault("n1", fault_at=at)


def _why(site: Site, job: SimJob) -> WhyShape:
    number = job.job_id
    world = site.loop.observer.world()
    incidents = {i.id: i for i in site.store.incidents()}
    shown = why_shape(number, site.store.job_ends(number), site.store.recoveries(job_id=number), world, None, incidents)
    assert shown is not None
    return shown


def _end(site: Site, job: SimJob) -> JobEndShape:
    return _why(site, job).ends[-1]


def test_one_that_opted_in_is_started_again() -> None:
    site = Site(3)
    job = _training(site)
    _fails_of_a_fault(site, job)
    site.run(40)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    end = _end(site, job)
    assert (end.cause, end.again, end.advice) == (Cause.NODE, Again.STARTED, "")
    assert end.next_step == "Holdfast has started it again: run 1 is RUNNING"


def test_and_says_so_once_slurm_has_forgotten_it() -> None:
    site = Site(3)
    job = _training(site)
    _fails_of_a_fault(site, job)
    site.run(40)
    del site.slurm.jobs[job.job_id]
    site.run(5)
    end = _end(site, job)
    assert (end.again, end.next_step) == (Again.STARTED, "Holdfast has started it again: as run 1")


def test_while_it_is_about_to_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(3)
    job = _training(site)
    _fails(site, job, NCCL)
    site.fault("n1", fault_at=job.end)
    monkeypatch.setattr(site.slurm, "requeue", lambda _job_id: None)
    site.run(15)
    assert (_end(site, job).again, job.restarts) == (Again.COMING, 0)


@pytest.mark.parametrize(
    ("changed", "again", "words"),
    [
        ({"comment": ""}, Again.NO_CONSENT, "did not opt in (sbatch --comment=holdfast)"),
        ({"comment": "no holdfast"}, Again.NO_CONSENT, 'its comment says "no holdfast"'),
        ({"comment": "holdfast=yes"}, Again.NO_CONSENT, '"holdfast=yes", which is not the word'),
        ({"requeue": False}, Again.CANNOT_BE_REQUEUED, "Slurm requeues no such job"),
        ({"batch": False}, Again.CANNOT_BE_REQUEUED, "Slurm requeues no such job"),
        ({"required": ("n1", "n2")}, Again.LEFT_ALONE, "it requires node n1 by name"),
        ({"unreadable": "ExcNodeList=[n1"}, Again.LEFT_ALONE, "cannot read which nodes"),
    ],
)
def test_one_that_is_not_started_again(changed: dict[str, Any], again: Again, words: str) -> None:
    site = Site(3)
    job = _training(site, **changed)
    _fails_of_a_fault(site, job)
    site.run(40)
    end = _end(site, job)
    assert (job.state, job.restarts, end.again) == ("FAILED", 0, again)
    assert words in end.next_step
    asked = "scontrol requeue" in end.advice
    assert asked == (again is Again.NO_CONSENT), f"Slurm refuses it, or it is of no use: {end.advice}"


@pytest.mark.parametrize(
    ("comment", "cause"), [("holdfast", Cause.UNKNOWN), ("holdfast elastic=2:4", Cause.STOPPED), ("", Cause.UNKNOWN)]
)
def test_only_a_group_of_an_elastic_job_leaves_with_85(comment: str, cause: Cause) -> None:
    """Also once Slurm has forgotten the job."""
    site = Site(3)
    job = _training(site, comment=comment)
    _fails(site, job, "", code="85:0")
    site.run(15)
    assert _end(site, job).cause is cause
    del site.slurm.jobs[job.job_id]
    site.run(5)
    assert _end(site, job).cause is cause


def test_one_whose_dependents_went_on() -> None:
    site = Site(4)
    job = _training(site)
    other = site.slurm.submit(1, name="after", dependency=f"afternotok:{job.job_id}(unfulfilled)")
    site.run(15)
    _fails_of_a_fault(site, job)
    other.dependency = ""
    site.run(30)
    end = _end(site, job)
    assert end.again is Again.LEFT_ALONE
    assert f"job {other.job_id}, which depends" in end.next_step
    assert f"scontrol requeue {job.job_id}" in end.next_step


def test_while_an_operator_has_paused() -> None:
    site = Site(3)
    job = _training(site)
    site.operate("pause")
    _fails_of_a_fault(site, job)
    site.run(30)
    end = _end(site, job)
    assert (job.restarts, end.again) == (0, Again.PAUSED)
    assert "paused (by ops" in end.next_step
    assert f"scontrol requeue {job.job_id}" in end.advice
    site.operate("resume")
    site.run(30)
    assert (job.restarts, _end(site, job).again) == (1, Again.STARTED)


def test_one_that_its_owner_requeued_while_paused_was_not_started_by_holdfast() -> None:
    site = Site(3)
    job = _training(site)
    site.operate("pause")
    _fails_of_a_fault(site, job)
    site.run(30)
    site.slurm.requeue(job.job_id)
    site.run(5)
    assert _end(site, job).again is Again.BY_OTHERS


def test_where_holdfast_only_observes() -> None:
    site = Site(3, policy=replace(POLICY, mode=Mode.OBSERVE))
    job = _training(site)
    _fails_of_a_fault(site, job)
    site.run(30)
    end = _end(site, job)
    assert (job.restarts, end.cause, end.again) == (0, Cause.NODE, Again.OBSERVED)
    assert f"scontrol requeue {job.job_id}" in end.advice


def test_one_that_the_restart_budget_holds() -> None:
    site = Site(12, policy=replace(POLICY, job=replace(POLICY.job, restarts_without_progress=1)))
    job = _training(site)
    site.registers(job)
    site.run(3)
    _fails_of_a_fault(site, job)
    site.run(30)
    end = _end(site, job)
    assert end.again is Again.HELD
    assert f"scontrol release {job.job_id}" in end.next_step
    job.held = False
    site.run(10)
    assert _end(site, job).again is Again.BY_OTHERS


@pytest.mark.parametrize(
    ("output", "cause", "words"),
    [
        (BUG, Cause.CODE, "fix the program, then submit it again"),
        (OOM, Cause.MEMORY, "ask for more memory"),
        (FULL, Cause.DISK, "then scontrol requeue"),
        ("nothing\n", Cause.UNKNOWN, "read the end of its output, /home/ada/train-{job}.out; to run it again, scontrol requeue {job}"),
    ],
)  # fmt: skip
def test_what_no_fault_ended(output: str, cause: Cause, words: str) -> None:
    site = Site(3)
    job = _training(site, 1)
    _fails(site, job, output)
    site.run(30)
    end = _end(site, job)
    assert (end.cause, end.again) == (cause, Again.NO_FAULT)
    assert words.format(job=job.job_id) in end.advice


def test_one_whose_nodes_are_probed() -> None:
    site = Site(3)
    job = _training(site)
    _fails(site, job, NCCL)
    site.run(3)
    assert _end(site, job).reading is Reading.READ
    site.agents.obey = lambda: None  # type: ignore[method-assign]
    while not any(i.kind is IncidentKind.UNEXPLAINED for i in site.store.incidents()):
        site.run(1)
    assert _end(site, job).again is Again.PROBED


def test_one_whose_incident_is_an_operators() -> None:
    site = Site(3)
    job = _training(site)
    site.operate("pause")
    site.fault("n1")
    site.run(2)
    site.operate("acknowledge", site.incident("n1").id)
    _fails(site, job, NCCL)
    site.run(30)
    end = _end(site, job)
    assert (end.incident_id, end.again) == (site.incident("n1").id, Again.FAULT_OVER)


def test_of_a_job_that_slurm_has_forgotten_nothing_but_a_new_submission_is_advised() -> None:
    site = Site(3)
    job = _training(site, comment="")
    _fails_of_a_fault(site, job)
    site.run(20)
    del site.slurm.jobs[job.job_id]
    site.run(5)
    end = _end(site, job)
    assert end.again is Again.FORGOTTEN
    assert "scontrol requeue" not in end.advice
    assert "submit it again" in end.advice


def test_while_slurm_does_not_answer_it_is_not_known() -> None:
    site = Site(3)
    job = _training(site, comment="")
    _fails_of_a_fault(site, job)
    site.run(20)
    site.slurm.away = True
    site.run(60)
    assert _end(site, job).again is Again.NOT_KNOWN


def test_while_its_output_is_read_nothing_is_said() -> None:
    site = Site(3)
    job = _training(site)
    site.agents.obey = lambda: None  # type: ignore[method-assign]
    _fails(site, job)
    site.run(3)
    end = _end(site, job)
    assert (end.reading, end.again, end.advice) == (Reading.PENDING, Again.NOT_KNOWN, "")


# Jobs that did not fail


def test_one_that_completed_needs_no_cause_and_names_what_failed_before() -> None:
    site = Site(3)
    job = _training(site, 1, comment="")
    _fails(site, job, BUG)
    site.run(20)
    site.slurm.requeue(job.job_id)
    site.run(130)
    site.slurm.finish(job, "COMPLETED")
    site.run(5)
    shown = _why(site, job)
    assert (shown.state, shown.restarts) == ("COMPLETED", 1)
    assert [(e.restarts, e.cause, e.again) for e in shown.ends] == [(0, Cause.CODE, Again.BY_OTHERS)]
    assert shown.note.startswith("it completed")


def test_one_that_its_owner_requeued_while_it_ran() -> None:
    site = Site(3)
    job = _training(site, 1, comment="")
    site.slurm.requeue(job.job_id)
    site.run(5)
    shown = _why(site, job)
    assert (shown.state, shown.ends, shown.requeued) == ("PENDING", [], [0])
    assert "two minutes" in shown.note


def test_one_that_holdfast_left_alone_and_others_queued_again() -> None:
    site = Site(3)
    job = _training(site, 1, comment="")
    site.fault("n1")
    site.run(5)
    site.slurm.requeue(job.job_id)
    site.run(5)
    shown = _why(site, job)
    assert ([r.restarts_before for r in shown.recoveries], shown.requeued) == ([0], [0])


def test_one_that_holdfast_stopped_was_queued_again_by_no_one_else() -> None:
    site = Site(3)
    job = _training(site, 1)
    site.fault("n1")
    site.run(30)
    shown = _why(site, job)
    assert (job.restarts, len(shown.recoveries), shown.ends, shown.requeued) == (1, 1, [], [])


def test_a_running_one_that_holdfast_held_was_queued_again_by_no_one_else() -> None:
    site = Site(12, policy=replace(POLICY, job=replace(POLICY.job, restarts_without_progress=1)))
    job = _training(site)
    site.registers(job)
    site.run(3)
    site.fault(job.nodes[0])
    site.run(30)
    shown = _why(site, job)
    assert (job.held, [r.phase for r in shown.recoveries], shown.requeued) == (True, ["held"], [])


def test_one_that_waits_for_what_can_never_be() -> None:
    site = Site(3)
    job = site.slurm.submit(1)
    waiting = replace(site.slurm.job(job.job_id), state="PENDING", reason="DependencyNeverSatisfied")
    assert "it never starts: scontrol update" in now_says(None, waiting, None)
    job.state, job.nodes, job.end, job.reason = "CANCELLED", (), site.clock.now(), "DependencyNeverSatisfied"
    site.run(5)
    end = _end(site, job)
    assert (end.cause, end.text) == (Cause.STOPPED, "it never ran: what it depends on can never be met")
    assert "a dependency that can be met" in end.advice


def test_an_arrays_element_is_found_by_its_task() -> None:
    site = Site(3)
    one = _training(site, 1, array_job_id=7, array_task_id=1, stderr="/o/%A_%a")
    two = _training(site, 1, array_job_id=7, array_task_id=2)
    for job in (one, two):
        _fails(site, job, BUG)
    site.run(20)
    world = site.loop.observer.world()
    assert [job_id_of(world, 7, task) for task in (1, 2, 3)] == [one.job_id, two.job_id, None]
    assert (_why(site, one).shown_id, _why(site, one).elements) == ("7_1", ["7_2"])
    assert _end(site, one).output == "/o/7_1"
    del site.slurm.jobs[one.job_id]
    site.run(5)
    assert job_id_of(site.loop.observer.world(), 7, 1) == one.job_id
    assert _why(site, one).shown_id == "7_1"


@pytest.mark.parametrize("output", [BUG, NCCL])
def test_an_element_that_has_the_arrays_id_is_never_named_by_it(output: str) -> None:
    """``scontrol requeue 100`` would start every element again (tried on 22.05)."""
    site = Site(3)
    job = _training(site, 1, comment="", array_job_id=100, array_task_id=3)
    assert job.job_id == 100
    site.fault("n1")
    site.run(3)
    assert "holdfast why 100_3 " in job.admin_comment
    _fails(site, job, output if output == NCCL else FULL)
    site.run(20)
    shown = _why(site, job)
    said = " ".join([shown.ends[-1].advice, shown.ends[-1].next_step, *(r.note for r in shown.recoveries)])
    assert "scontrol requeue 100_3" in said
    assert "requeue 100 " not in f"{said} "


def test_a_component_is_found_under_its_leader() -> None:
    site = Site(3)
    leader, part = site.slurm.submit_together(1, 1)
    site.run(3)
    world = site.loop.observer.world()
    assert job_id_of(world, part.job_id, None) == leader.job_id
