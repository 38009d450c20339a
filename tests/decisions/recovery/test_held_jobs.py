"""A job that Holdfast holds: when, who is notified, and what its release means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.decisions.incidents.correlate import RAISED_BY_PROGRAMS
from holdfast.decisions.recovery.restart_budget import most_by_chance, refuses
from holdfast.model.actions.action import HoldJob
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState, RecoveryPhase
from holdfast.model.policies.policy import JobPolicy
from holdfast_checks.catalog.xids import table
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

UNREPAIRED = replace(POLICY, repair=replace(POLICY.repair, rungs=()))
"""Each fault is then one of another node."""


def _training(site: Site, nodes: int = 1) -> SimJob:
    job = site.slurm.submit(nodes, comment="holdfast", exclusive=True)
    site.run(2)
    assert job.state == "RUNNING"
    return job


def _break(site: Site, job: SimJob, check: str = "gpu.xid", code: str = "79") -> None:
    site.fault(job.nodes[0], check=check, code=code)
    site.run(5)


def _saves(site: Site, job: SimJob, step: int) -> None:
    """So that it advances, whatever happens to its nodes."""
    machine = site.machine(job.nodes[0])
    site.agents.state(machine, "checkpoint.register", job.job_id, job.restarts, path="/ckpt")
    site.agents.state(machine, "checkpoint.saved", job.job_id, job.restarts, step=step)
    site.run(1)


def _held(site: Site) -> list[Incident]:
    return [i for i in site.book.incidents.values() if i.kind is IncidentKind.HELD_JOB]


@pytest.mark.slow
@pytest.mark.parametrize("takes_it", [True, False])
def test_a_job_that_failed_by_itself_is_held_once_or_its_refusal_told_once(takes_it: bool) -> None:
    """Slurm holds a failed job by bringing it back held, and refuses one that cannot be requeued (both tried on 22.05)."""
    site = Site(8)
    job = _training(site)
    for n in range(3):
        site.registers(job)
        site.run(1)
        if n == 2:
            job.requeue = takes_it
        site.fault(job.nodes[0], check=f"gpu.fault{n}")
        site.slurm.finish(job, "FAILED")
        site.run(601, step_s=10)
    site.run(3600, step_s=20)
    holds = [i for i in site.store.intents(limit=10_000) if isinstance(i.action, HoldJob)]
    assert len(holds) == (1 if takes_it else 0)
    assert (job.state, job.held, len(_held(site))) == (("PENDING", True, 1) if takes_it else ("FAILED", False, 0))
    assert len([each for each in map(str, site.notices.sent) if "is held" in each]) == len(holds)


def _faults(site: Site, job: SimJob, *codes: str, check: str = "gpu.xid") -> int:
    """How many of these faults, one after another, the job survives."""
    for n, code in enumerate(codes):
        _saves(site, job, 100 * (n + 1))
        _break(site, job, check, code)
        if job.held:
            return n
        site.run(601, step_s=10)
    return len(codes)


@pytest.mark.parametrize(
    ("check", "codes", "lives_through"),
    [
        ("gpu.xid", ("109", "109"), 1),
        ("gpu.xid", ("79", "79", "79", "79"), 3),
        ("gpu.xid", ("79", "109", "79", "48", "74"), 5),
        ("host.disk", ("full", "full"), 1),
        ("efa.admin", ("dead", "dead", "dead"), 3),
    ],
)
def test_how_many_nodes_may_break_under_a_job(check: str, codes: tuple[str, ...], lives_through: int) -> None:
    site = Site(8, policy=UNREPAIRED)
    job = _training(site)
    assert _faults(site, job, *codes, check=check) == lives_through
    assert job.held is (lives_through < len(codes))


@pytest.mark.parametrize(
    ("nodes", "hours", "programs", "most"),
    [
        (1, 24, True, 1),
        (2, 24, True, 1),
        (2, 24, False, 3),
        (16, 24, True, 2),
        (128, 24, True, 4),
        (2_000, 24, True, 24),
        (2_000, 24, False, 26),
        (2_000, 1, True, 3),
        (0, 24, True, 1),
    ],
)
def test_the_bound_scales_with_nodes_and_hours(nodes: int, hours: int, programs: bool, most: int) -> None:
    policy = JobPolicy(suspect_window_s=hours * 3600)
    assert most_by_chance(policy, nodes, programs_doing=programs) == most


def test_the_codes_that_programs_raise_are_codes() -> None:
    assert {int(code) for code in RAISED_BY_PROGRAMS} <= set(table())


def _hold(site: Site) -> SimJob:
    job = _training(site)
    assert _faults(site, job, "109", "109") == 1
    site.run(2)
    return job


def test_a_held_job_is_an_open_incident_and_an_operator_is_told() -> None:
    site = Site(8)
    job = _hold(site)
    (incident,) = _held(site)
    assert (incident.state, incident.job_uid) == (IncidentState.WATCHING, job.uid)
    assert "the job is the suspect" in incident.note
    site.run(3600, step_s=30)
    (incident,) = _held(site)
    assert incident.open
    told = [body for subject, body in site.notices.bodies if f"job {job.job_id} " in subject]
    assert len(told) == 1
    assert "scontrol release" in told[0]


def test_its_node_is_not_kept_from_work() -> None:
    site = Site(8)
    _hold(site)
    site.run(900, step_s=10)
    (incident,) = _held(site)
    assert not site.slurm.nodes[incident.node].drain
    other = site.slurm.submit(8, exclusive=True)
    site.run(5)
    assert other.state == "RUNNING"


@pytest.mark.parametrize("end", ["release", "cancel", "forget"])
def test_it_ends_with_the_hold(end: str) -> None:
    site = Site(8)
    job = _hold(site)
    match end:
        case "release":
            job.held = False
        case "cancel":
            job.held, job.state = False, "CANCELLED"
        case _:
            del site.slurm.jobs[job.job_id]
    site.run(5)
    (incident,) = _held(site)
    assert not incident.open


def test_a_release_counts_from_zero_again() -> None:
    site = Site(12)
    job = _hold(site)
    job.held = False
    site.run(700, step_s=10)
    assert job.state == "RUNNING"
    _saves(site, job, 900)
    _break(site, job, code="109")
    site.run(30)
    assert not job.held
    assert job.state == "RUNNING"
    _saves(site, job, 1000)
    _break(site, job, code="109")
    site.run(30)
    assert job.held
    assert [i.open for i in _held(site)].count(True) == 1


def test_a_job_without_progress_counts_from_zero_after_its_release() -> None:
    site = Site(12)
    job = _training(site)
    for n in range(3):
        site.registers(job)
        site.run(1)
        _break(site, job, f"gpu.fault{n}", "x")
        site.run(601, step_s=10)
    assert job.held
    job.held = False
    site.run(700, step_s=10)
    assert job.state == "RUNNING"
    _break(site, job, "gpu.fault9", "x")
    site.run(30)
    assert (job.held, job.state) == (False, "RUNNING")
    assert site.recovery(job.job_id).phase is not RecoveryPhase.HELD


def test_an_operator_who_closes_it_is_not_told_again() -> None:
    site = Site(8)
    _hold(site)
    (incident,) = _held(site)
    site.operate("close", incident.id)
    site.run(600, step_s=10)
    assert [i.open for i in _held(site)] == [False]


# Jobs that run one program


def _of_program(site: Site, **program: object) -> SimJob:
    job = site.slurm.submit(1, comment="holdfast", exclusive=True, **program)
    site.run(2)
    assert job.state == "RUNNING"
    return job


_SAME: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "elements of one array": (
        {"array_job_id": 900, "array_task_id": 0, "name": "wrap"},
        {"array_job_id": 900, "array_task_id": 1, "name": "wrap"},
    ),
    "one script submitted again": (
        {"name": "train.sh", "work_dir": "/home/ada/llm"},
        {"name": "train.sh", "work_dir": "/home/ada/llm"},
    ),
}
_OTHER: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "another array": (
        {"array_job_id": 900, "array_task_id": 0, "name": "a"},
        {"array_job_id": 901, "array_task_id": 0, "name": "b"},
    ),
    "a common name in another folder": (
        {"name": "train.sh", "work_dir": "/home/ada/llm"},
        {"name": "train.sh", "work_dir": "/home/ada/vision"},
    ),
    "another script of the folder": (
        {"name": "train.sh", "work_dir": "/home/ada/llm"},
        {"name": "eval.sh", "work_dir": "/home/ada/llm"},
    ),
    "no script's name": ({"name": "wrap", "work_dir": "/home/ada"}, {"name": "wrap", "work_dir": "/home/ada"}),
    "no folder": ({"name": "train.sh"}, {"name": "train.sh"}),
    "another user's, alike": (
        {"name": "train.sh", "work_dir": "/shared"},
        {"name": "train.sh", "work_dir": "/shared", "user": "bob", "uid": 1001},
    ),
}


@pytest.mark.parametrize("case", [*_SAME, *_OTHER])
def test_nodes_that_break_under_jobs_of_one_program_count_together(case: str) -> None:
    site = Site(8, policy=UNREPAIRED)
    one, other = ({**_SAME, **_OTHER})[case]
    first = _of_program(site, **one)
    _break(site, first, code="109")
    assert not first.held
    site.slurm.finish(first, "CANCELLED")
    site.run(120, step_s=5)
    second = _of_program(site, **other)
    _break(site, second, code="109")
    assert second.held is (case in _SAME), site.story()
    if second.held:
        (incident,) = _held(site)
        assert f"under this job and job {first.job_id} of the same array or script" in incident.note


def test_what_hardware_does_to_a_large_array_is_no_poison() -> None:
    """Its elements hold more nodes than one of them, and the bound goes by all of these."""
    site = Site(12, policy=UNREPAIRED)
    jobs = [_of_program(site, array_job_id=900, array_task_id=n, name="sweep", work_dir="/w") for n in range(8)]
    for job in jobs[:3]:
        _break(site, job, code="79")
        site.run(120, step_s=5)
    assert not any(job.held for job in jobs)


def test_a_release_counts_from_zero_for_the_other_jobs_of_the_program() -> None:
    site = Site(12, policy=UNREPAIRED)
    program: dict[str, object] = {"name": "train.sh", "work_dir": "/home/ada/llm"}
    first, second = _of_program(site, **program), _of_program(site, **program)
    _break(site, first, code="109")
    site.run(120, step_s=5)
    _break(site, second, code="109")
    assert second.held
    second.held = False
    site.run(601, step_s=10)  # out of the brake's window
    third = _of_program(site, **program)
    _break(site, third, code="109")
    assert not third.held
    _break(site, _of_program(site, **program), code="109")
    assert len([i for i in _held(site) if i.open]) == 1


def test_jobs_of_one_program_that_hang_are_not_poison() -> None:
    """A job's report about itself counts only for itself: a stalled file system makes all elements of an array hang."""
    one = {"name": "train.sh", "work_dir": "/w"}
    site = Site(8, policy=UNREPAIRED)
    job = _of_program(site, **one)
    _break(site, job, code="109")
    site.run(200, step_s=5)
    recovery = site.recovery(job.job_id)
    assert recovery.series == ("script train.sh in /w",)
    world = site.loop.world
    assert world is not None
    (cause,) = [i for i in site.book.incidents.values() if i.id == recovery.incident_id]
    hang = replace(cause, id="x", kind=IncidentKind.HANG, node="n8")
    past = replace(recovery, incident_id="y")
    book = replace(
        site.book, incidents={"y": replace(cause, id="y", kind=IncidentKind.HANG)}, recoveries={past.id: past}
    )
    mine = replace(recovery, job=replace(recovery.job, job_id=999))
    assert refuses(replace(world, book=book), hang, mine) is None
    assert refuses(replace(world, book=replace(book, incidents={"y": cause})), replace(cause, node="n8"), mine)
