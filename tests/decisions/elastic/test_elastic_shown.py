"""What counts as an elastic job, and what people see of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from holdfast.api.shown.elastic import elastic_shapes
from holdfast.cli.views.reading import show_groups
from holdfast.decisions.common.elastic_jobs import elastic_jobs
from holdfast.model.elastic_jobs.elastic import GroupRole
from holdfast.model.policies.resizing import ElasticPolicy
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey
from support.simulated.arrays import ElasticSite
from support.simulated.site import POLICY

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PLAIN = Job(
    JobKey("c", 1, T0), "train", "ann", 1001, "lab", "gpu", "normal", "RUNNING", "", 0, True, True, 1, ("n1",), (), ()
)


def _element(array: int, task: int | None, comment: str, **changed: object) -> Job:
    number = changed.pop("job_id", array if task is None else array + 1 + task)
    shown = replace(PLAIN, key=JobKey("c", number, T0), array_job_id=array, array_task_id=task, comment=comment)  # type: ignore[arg-type]
    return replace(shown, **changed)  # type: ignore[arg-type]


def _view(*jobs: Job) -> ClusterView:
    return ClusterView("c", T0, {}, {j.key.job_id: j for j in jobs}, {})


BASE = [_element(71, n, "holdfast elastic=2:4 spares=1") for n in range(2)]
WAITING = {"state": "PENDING", "nodes": (), "array_tasks_waiting": (3, 4)}


def test_two_arrays_are_one_job() -> None:
    third = _element(80, 2, "holdfast elastic=2:4 spares=1 of=71", job_id=90, restarts=1)
    rest = _element(80, None, "holdfast,elastic=2:4,of=71", **WAITING)
    (job,) = elastic_jobs(_view(*BASE, third, rest, PLAIN))
    assert (job.label, job.base_array_id, job.flexible_array_ids) == ("job-71", 71, (80,))
    assert [(g.index, g.role, g.start) for g in job.groups] == [
        (0, GroupRole.BASE, "72.0"),
        (1, GroupRole.BASE, "73.0"),
        (2, GroupRole.FLEXIBLE, "90.1"),
        (3, GroupRole.FLEXIBLE, ""),
        (4, GroupRole.SPARE, ""),
    ]
    assert (len(job.running), len(job.waiting), job.size) == (3, 2, 3)


@pytest.mark.parametrize(
    ("jobs", "groups"),
    [
        ([], []),
        ([replace(PLAIN, comment="elastic=1:2")], []),
        ([replace(j, comment="elastic=4:2") for j in BASE], []),
        ([replace(j, state="COMPLETED") for j in BASE], []),
        ([_element(80, 2, "elastic=2:4 of=71")], []),
        ([*BASE, _element(80, 2, "elastic=2:4 of=71", uid=1002)], [0, 1]),
        ([*BASE, _element(80, 2, "elastic=2:4 of=72")], [0, 1]),
        ([*BASE, _element(80, 9, "elastic=2:4 of=71")], [0, 1]),
        ([*BASE, _element(80, 1, "elastic=2:4 of=71")], [0, 1]),
        ([*BASE, replace(BASE[1], key=JobKey("c", 99, T0), array_task_id=7)], [0, 1]),
        ([*BASE, _element(80, 2, "elastic=2:4 of=71", state="COMPLETED")], [0, 1, 2]),
    ],
    ids=[
        "none",
        "no array",
        "nonsense",
        "over",
        "without its base",
        "another user's",
        "of another job",
        "beyond the spares",
        "a base index in the flexible array",
        "an index that the base array has not",
        "one that ended",
    ],
)
def test_what_is_left_out(jobs: list[Job], groups: list[int]) -> None:
    assert [g.index for job in elastic_jobs(_view(*jobs)) for g in job.groups] == groups


def test_of_two_elements_with_one_index_the_one_that_lives() -> None:
    old = _element(80, 2, "elastic=2:4 of=71", state="CANCELLED", nodes=())
    new = _element(85, 2, "elastic=2:4 of=71", state="RUNNING")
    (job,) = elastic_jobs(_view(*BASE, new, old))
    group = job.group(2)
    assert group is not None
    assert group.job.array_job_id == 85


def test_jobs_show_who_is_where_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    site = ElasticSite(4, policy=replace(POLICY, elastic=ElasticPolicy(priority_wait_s=5.0, settle_s=1.0)))
    base, flexible = site.slurm.submit_elastic("2:4")
    site.run(3)
    site.slurm.preempts = False
    for element in [*site.slurm.elements(base), *site.slurm.elements(flexible)]:
        element.partition = "gpu"
    site.slurm.deaf.add(site.slurm.elements(flexible)[1].job_id)
    high = site.slurm.submit(1, exclusive=True, priority=3)
    site.run(10)
    (shown,) = elastic_shapes(site.loop.world, None, None)
    assert (shown.running, shown.size, shown.target, shown.sizes) == (4, 4, 3, "2:4")
    assert [g.leaving for g in shown.groups] == [False, False, False, True]
    assert shown.decision is not None
    why = f"job-{base} shrinks to 3 groups, 3 leave: job {high.job_id} of priority 3 waits for 1 more nodes"
    assert (shown.decision.reason, shown.decision.outcome) == (why, "told")
    assert elastic_shapes(site.loop.world, 4711, None) == []
    assert elastic_shapes(site.loop.world, None, 4711) == []
    assert len(elastic_shapes(site.loop.world, 1000, flexible)) == 1
    assert elastic_shapes(None, None, None) == []
    show_groups(shown)
    out = capsys.readouterr().out
    assert f"job-{base}  ada  train: 4 groups running, size 4, going to 3; declared 2:4" in out
    assert why in " ".join(out.split())
    assert "asked to leave" in out


def test_jobs_show_how_far_each_group_is_and_who_hangs(capsys: pytest.CaptureFixture[str]) -> None:
    site = ElasticSite(4, policy=replace(POLICY, hangs=replace(POLICY.hangs, act="tell", group_act="tell")))
    base, _flexible = site.slurm.submit_elastic("3:3")
    site.run(3)
    groups = site.slurm.elements(base)
    for step in range(60):
        for group in groups:
            stands = group is groups[1] and step > 20
            told = {"phase": "step", "step_ms": 900, "quorum": 1}
            if not stands:
                site.agents.state(site.machine(group.nodes[0]), "progress", group.job_id, 0, step=step, detail=told)
        site.run(2)
    (shown,) = elastic_shapes(site.loop.world, None, None)
    (incident,) = [i for i in site.store.incidents() if i.open]
    assert [(g.step, g.phase) for g in shown.groups] == [(59, "step"), (20, "step"), (59, "step")]
    assert [(g.trouble, g.incident_id) for g in shown.groups] == [("", ""), ("job.hung", incident.id), ("", "")]
    show_groups(shown)
    out = capsys.readouterr().out
    assert f"job.hung: incident {incident.id}" in out
