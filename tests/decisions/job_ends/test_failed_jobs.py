"""Jobs that failed without a stop by Holdfast: which are restarted, what their owners learn, and what it costs their nodes (nothing)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.decisions.job_ends import attribution
from holdfast.decisions.job_ends.why_died import began_after
from holdfast.model.actions.action import Intent, SendOrder, Verb
from holdfast.model.incidents.incident import IncidentKind, RecoveryPhase
from holdfast.model.jobs.job_ends import Cause, JobEnd, Reading
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

BUG = "Traceback (most recent call last):\nKeyError: 'loss'\n"
NCCL = "torch.distributed.DistBackendError: NCCL error in ProcessGroupNCCL.cpp\n"
CUDA = "RuntimeError: CUDA error: unspecified launch failure\n"


def _training(site: Site, nodes: int = 2, **changed: Any) -> SimJob:
    said = {"comment": "holdfast", "exclusive": True, "stderr": "/home/ada/slurm.out", **changed}
    job = site.slurm.submit(nodes, **said)
    site.run(2)
    assert job.state == "RUNNING"
    return job


def _fails(site: Site, job: SimJob, output: str | None = None, code: str = "1:0") -> None:
    if output is not None:
        site.agents.outputs[job.job_id] = output
    job.exit_code = code
    site.slurm.finish(job, "FAILED")


def _orders(site: Site) -> list[Intent]:
    return [i for i in site.store.intents() if isinstance(i.action, SendOrder) and i.action.verb is Verb.OUTPUT]


def _end(site: Site, job: SimJob) -> JobEnd:
    return site.store.job_ends(job.job_id)[-1]


@pytest.mark.parametrize(
    ("output", "code", "restarts"),
    [
        (NCCL, "1:0", 1),
        (None, "0:9", 1),
        (None, "1:0", 1),
        ("nothing that is known\n", "1:0", 1),
        (BUG, "1:0", 0),
        ("OSError: [Errno 28] No space left on device\n", "1:0", 0),
    ],
)
def test_a_job_that_opted_in_and_fails_right_after_a_fault(output: str | None, code: str, restarts: int) -> None:
    """Fails before it could be stopped: its output must not point to another cause."""
    site = Site(3)
    job = _training(site)
    at = site.clock.now()
    _fails(site, job, output, code)
    site.fault("n1", fault_at=at)
    site.run(30)
    assert (job.restarts, job.state) == (restarts, "RUNNING" if restarts else "FAILED")
    assert _end(site, job).reading is (Reading.UNREADABLE if output is None else Reading.READ)


def test_a_job_without_consent_is_told_and_not_started_again() -> None:
    site = Site(3)
    job = _training(site, comment="")
    site.fault("n1")
    site.run(5)
    assert "if it fails, it is not started again" in job.admin_comment
    _fails(site, job, NCCL)
    site.run(30)
    assert (job.state, job.restarts) == ("FAILED", 0)
    assert "had a fault (gpu.xid 79" in site.recovery(job.job_id).note
    assert f"scontrol requeue {job.job_id}" in site.recovery(job.job_id).note
    assert _end(site, job).cause is Cause.NODE
    assert _end(site, job).incident_id == site.incident("n1").id


def test_a_job_without_consent_that_fails_by_its_own_bug_hours_after_the_fault() -> None:
    site = Site(3)
    job = _training(site, comment="")
    site.fault("n1")
    site.run(5 * 3600, step_s=60)
    _fails(site, job, BUG)
    site.run(60)
    assert (job.state, job.restarts) == ("FAILED", 0)
    assert site.recovery(job.job_id).phase is RecoveryPhase.GONE
    assert (_end(site, job).cause, _end(site, job).incident_id) == (Cause.CODE, "")


def test_the_owner_of_a_job_that_nobody_says_anything_of_hours_later_is_not_told_a_fault_was_it() -> None:
    site = Site(3)
    job = _training(site, comment="")
    site.fault("n1")
    site.run(3600, step_s=60)
    before = job.admin_comment
    _fails(site, job)
    site.run(60)
    assert job.admin_comment == before
    assert _end(site, job).cause is Cause.UNKNOWN


@pytest.mark.parametrize("check", ["gpu.thermal", "gpu.pcie"])
def test_a_fault_that_ends_no_job_has_ended_none(check: str) -> None:
    site = Site(3)
    job = _training(site)
    at = site.clock.now()
    _fails(site, job)
    site.fault("n1", check=check, code="", fault_at=at)
    site.run(30)
    assert (job.state, job.restarts) == ("FAILED", 0)


def test_nothing_is_decided_before_the_output_was_read() -> None:
    site = Site(3)
    job = _training(site)
    at = site.clock.now()
    site.agents.obey = lambda: None  # type: ignore[method-assign]
    _fails(site, job)
    site.fault("n1", fault_at=at)
    site.run(6)
    assert _end(site, job).reading is Reading.PENDING
    assert job.restarts == 0
    site.run(20)
    assert _end(site, job).reading is Reading.UNREADABLE
    assert job.restarts == 1, "a fault that ends jobs, and nothing that speaks against it"


def test_each_end_is_read_once_and_put_on_record_once() -> None:
    site = Site(3)
    job = _training(site)
    _fails(site, job, BUG)
    site.run(20)
    end = _end(site, job)
    orders = len(site.store.intents())
    site.run(1200, step_s=20)
    assert len(_orders(site)) == 1
    assert site.store.job_ends(job.job_id) == (end,)
    assert len(site.store.intents()) == orders


def test_the_record_outlives_what_slurm_remembers() -> None:
    site = Site(3)
    job = _training(site)
    _fails(site, job, BUG)
    site.run(10)
    del site.slurm.jobs[job.job_id]
    site.run(7200, step_s=60)
    assert _end(site, job).cause is Cause.CODE
    assert "KeyError" in _end(site, job).text


@pytest.mark.parametrize(
    ("output", "probed"),
    [
        (BUG, False),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=5.0.\n", False),
        (NCCL, True),
        (None, True),
    ],
)
def test_only_what_may_be_a_nodes_fault_costs_its_nodes_a_probe(output: str | None, probed: bool) -> None:
    site = Site(3)
    job = _training(site)
    _fails(site, job, output)
    site.run(120, step_s=2)
    asked = [i for i in site.store.incidents() if i.kind is IncidentKind.UNEXPLAINED]
    assert bool(asked) == probed
    assert not any(i.severity is Severity.FATAL for i in site.store.incidents())


@pytest.mark.parametrize(("nodes", "of_ada"), [(21, 12), (2, 3)])
def test_the_outputs_of_one_users_jobs_keep_no_other_users_from_being_read(nodes: int, of_ada: int) -> None:
    """Twenty jobs of ada fail at one moment, and their files do not answer. Her job ids come first."""
    site = Site(nodes)
    at = {"gpus": 0} if nodes == 2 else {}
    hers = [_training(site, 1, exclusive=nodes > 2, **at) for _ in range(20)]
    bobs = _training(site, 1, exclusive=nodes > 2, user="bob", uid=1001, **at)
    site.agents.obey = lambda: None  # type: ignore[method-assign]
    for job in hers:
        _fails(site, job)
    _fails(site, bobs, BUG)
    site.run(3)
    asked = [int(i.action.args["job_id"]) for i in _orders(site) if isinstance(i.action, SendOrder)]
    assert bobs.job_id in asked
    assert len(asked) - 1 == of_ada


def test_outputs_are_not_read_where_the_site_does_not_want_it() -> None:
    site = Site(3, policy=replace(POLICY, job=replace(POLICY.job, read_output=False)))
    job = _training(site)
    _fails(site, job, BUG)
    site.run(30)
    assert _orders(site) == []
    assert (_end(site, job).cause, _end(site, job).reading_note) == (Cause.UNKNOWN, "[jobs] read_output is off")


# Jobs that depend on the end of another


def _chain(site: Site, kind: str, job: SimJob, **changed: Any) -> SimJob:
    dependent = site.slurm.submit(1, name="after", dependency=f"{kind}:{job.job_id}(unfulfilled)", **changed)
    site.run(15)
    assert dependent.state == "PENDING"
    return dependent


@pytest.mark.parametrize("kind", ["afternotok", "afterany"])
def test_a_job_is_not_started_again_beside_what_waited_for_its_end(kind: str) -> None:
    site = Site(4)
    job = _training(site)
    dependent = _chain(site, kind, job)
    at = site.clock.now()
    _fails(site, job, NCCL)
    dependent.dependency = ""  # Slurm: it is met
    site.run(3)
    assert dependent.state == "RUNNING"
    site.fault("n1", fault_at=at)
    site.run(30)
    assert (job.state, job.restarts) == ("FAILED", 0)
    assert site.recovery(job.job_id).phase is RecoveryPhase.LEFT_ALONE
    assert f"job {dependent.job_id}" in site.recovery(job.job_id).note


def test_the_owner_who_was_told_of_the_fault_is_told_of_the_end_as_well() -> None:
    site = Site(4)
    job = _training(site, comment="")
    dependent = _chain(site, "afternotok", job)
    site.fault("n1")
    site.run(5)
    assert "runs on" in job.admin_comment
    _fails(site, job, NCCL)
    dependent.dependency = ""
    site.run(30)
    assert (job.state, job.restarts) == ("FAILED", 0)
    assert f"job {dependent.job_id}" in site.recovery(job.job_id).note
    assert f"scontrol requeue {job.job_id}" in site.recovery(job.job_id).note
    assert site.notices.sent == [], "Slurm takes no note of a job that is over: no step fails for it"


def test_a_job_is_not_started_again_when_what_needed_its_success_was_cancelled() -> None:
    site = Site(4)
    job = _training(site)
    dependent = _chain(site, "afterok", job)
    at = site.clock.now()
    _fails(site, job, NCCL)
    site.run(2)
    dependent.state, dependent.end, dependent.reason = "CANCELLED", site.clock.now(), "DependencyNeverSatisfied"
    site.fault("n1", fault_at=at)
    site.run(30)
    assert (job.state, job.restarts) == ("FAILED", 0)
    assert "was cancelled" in site.recovery(job.job_id).note


def test_a_dependent_that_still_waits_keeps_no_job_from_its_recovery() -> None:
    site = Site(4)
    job = _training(site)
    dependent = _chain(site, "afterok", job)
    at = site.clock.now()
    _fails(site, job, NCCL)
    site.fault("n1", fault_at=at)
    site.run(30)
    assert (dependent.state, job.state, job.restarts) == ("PENDING", "RUNNING", 1)


@pytest.mark.parametrize("kind", ["afterok", "afternotok", "aftercorr"])
def test_an_element_that_failed_is_left_alone_where_a_job_waits_for_its_array(kind: str) -> None:
    site = Site(4)
    job = _training(site)
    job.array_job_id, job.array_task_id = 500, 0
    dependent = site.slurm.submit(1, name="after", dependency=f"{kind}:500_*(unfulfilled)")
    at = site.clock.now()
    _fails(site, job, NCCL)
    site.fault("n1", fault_at=at)
    site.run(30)
    assert (dependent.state, job.state, job.restarts) == ("PENDING", "FAILED", 0)
    recovery = site.recovery(job.job_id)
    assert recovery.phase is RecoveryPhase.LEFT_ALONE
    assert f"job {dependent.job_id} waits for array 500" in recovery.note
    assert "scontrol requeue 500_0" in recovery.note


@pytest.mark.parametrize("kind", ["afterok", "afternotok", "aftercorr"])
def test_an_element_that_still_runs_is_recovered_though_a_job_waits_for_its_array(kind: str) -> None:
    site = Site(4)
    job = _training(site)
    job.array_job_id, job.array_task_id = 500, 0
    site.slurm.submit(1, name="after", dependency=f"{kind}:500_*(unfulfilled)")
    site.run(5)
    site.fault("n1")
    site.run(30)
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_a_job_that_still_runs_is_recovered_whatever_waits_for_it() -> None:
    site = Site(4)
    job = _training(site)
    _chain(site, "afternotok", job)
    site.fault("n1")
    site.run(30)
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_a_users_other_job_that_merely_waited_for_nodes_changes_nothing() -> None:
    site = Site(3)
    job = _training(site, 3)
    other = site.slurm.submit(1, name="other")
    site.run(15)
    assert other.state == "PENDING"
    at = site.clock.now()
    _fails(site, job, NCCL)
    site.run(3)
    assert other.state == "RUNNING"
    site.fault("n3" if other.nodes != ("n3",) else "n2", fault_at=at)
    site.run(30)
    assert site.recovery(job.job_id).phase is not RecoveryPhase.LEFT_ALONE


# Runs that began after the fault was over


def test_a_job_that_began_on_the_repaired_node_is_no_victim_of_the_old_fault() -> None:
    site = Site(3)
    site.fault("n1")
    site.run(240)
    assert not site.incident("n1").open
    job = _training(site, 3)
    _fails(site, job, CUDA)
    site.run(30)
    end = _end(site, job)
    assert end.ended_at - site.incident("n1").fault_at < timedelta(minutes=10)
    assert (end.cause, end.incident_id, job.restarts) == (Cause.UNKNOWN, "", 0)
    site.run(60, step_s=2)
    kinds = {i.kind for i in site.store.incidents()}
    assert IncidentKind.UNEXPLAINED in kinds, "the old fault explains nothing: its nodes are probed"


def test_a_fault_is_over_once_the_repaired_machine_is_proved() -> None:
    """The node serves again, and may take a job, before its incident is closed."""
    site = Site(3)
    site.fault("n1")
    site.run(240)
    incident = site.incident("n1")
    assert incident.validated_at is not None
    assert incident.closed_at is not None
    assert attribution.over_at(incident) == incident.validated_at < incident.closed_at
    assert attribution.over_at(replace(incident, validated_at=None)) == incident.closed_at
    found_since = replace(incident, fault_at=incident.closed_at)
    assert attribution.over_at(found_since) == incident.closed_at, "proved before this fault: that says nothing of it"
    assert not began_after(None, attribution.over_at(incident))


def test_a_run_keeps_when_it_began() -> None:
    site = Site(3)
    job = _training(site)
    site.run(30)
    _fails(site, job, BUG)
    site.run(10)
    assert _end(site, job).started_at == job.start


CONTAINED: dict[str, Any] = {"code": "94", "remedy": Remedy.RESTART_JOB}


def test_a_job_that_began_after_an_event_is_not_its_victim() -> None:
    """A contained memory error ends the job of that moment; the node continues to serve, and jobs that start there later are unaffected."""
    site = Site(3)
    first = _training(site)
    site.fault("n1", **CONTAINED)
    _fails(site, first)
    site.run(60)
    assert first.restarts == 1
    site.slurm.finish(first, "COMPLETED")
    later = _training(site)
    site.run(60)
    assert "n1" in later.nodes
    _fails(site, later, code="139:0")
    site.run(60)
    assert (later.state, later.restarts) == ("FAILED", 0)
    assert _end(site, later).incident_id == ""


def test_the_same_event_once_more_has_a_victim_again() -> None:
    site = Site(3)
    first = _training(site)
    site.fault("n1", **CONTAINED)
    _fails(site, first)
    site.run(60)
    site.slurm.finish(first, "COMPLETED")
    later = _training(site)
    site.run(60)
    site.fault("n1", **CONTAINED)
    _fails(site, later)
    site.run(60)
    assert later.restarts == 1
