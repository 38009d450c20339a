"""The file alongside a job's output: ordered once for each recovery, to its node, where the site and the user want it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.decisions.recovery import owner_files
from holdfast.model.actions.action import Intent, Proposal, SendOrder, Verb
from holdfast.model.book import World
from holdfast.model.slurm.cluster import ClusterView
from support.simulated import Site
from support.simulated.site import POLICY
from support.store_nouns import intent

ON = replace(POLICY, job=replace(POLICY.job, owner_file=True))


def notes(site: Site) -> list[Intent]:
    return [i for i in site.store.intents() if isinstance(i.action, SendOrder) and i.action.verb is Verb.JOB_NOTE]


def recovered(policy: Any = ON, **changed: Any) -> Site:
    site = Site(4, spares=("n4",), policy=policy)
    job = site.slurm.submit(
        2, **{"comment": "holdfast", "exclusive": True, "stdout": "/home/ada/slurm-%A_%a.out", **changed}
    )
    site.run(2)
    site.fault("n1")
    site.run(30)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    site.run(3 * 3600, step_s=60)
    return site


def test_each_recovery_is_one_order_to_the_node_that_the_script_runs_on() -> None:
    site = recovered(array_job_id=99, array_task_id=4)
    (note,) = notes(site)
    assert isinstance(note.action, SendOrder)
    job = next(iter(site.slurm.jobs.values()))
    args = note.action.args
    assert note.action.node == job.nodes[0]
    assert (args["uid"], args["user"], args["path"]) == (1000, "ada", "/home/ada/slurm-%A_%a.out")
    assert (args["array_job_id"], args["array_task_id"]) == (99, 4)
    assert args["text"].startswith(
        f"Holdfast: job 99_4, run 0, incident {site.incident('n1').id}\nrun 0 was stopped by "
    )
    assert args["mark"] in args["text"]


@pytest.mark.parametrize(
    "changed",
    [
        {"policy": POLICY},
        {"comment": "holdfast,holdfast-no-notes"},
        {"stdout": ""},
        {"stdout": "/dev/null"},
        {"stdout": "/dev/null", "stderr": "/proc/self/fd/2"},
        {"uid": 0},
    ],
)
def test_none_is_ordered_where_it_is_off_unwanted_or_has_no_place(changed: dict[str, Any]) -> None:
    assert notes(recovered(**changed)) == []


def test_output_that_goes_nowhere_leaves_the_folder_of_the_error_output() -> None:
    (note,) = notes(recovered(stdout="/home/ada/../../dev/null", stderr="/home/ada/job.err"))
    assert isinstance(note.action, SendOrder)
    assert note.action.args["path"] == "/home/ada/job.err"


def test_a_users_words_are_printable_and_short() -> None:
    site = recovered(name="x\x1b[31m\n" * 50)
    (note,) = notes(site)
    assert isinstance(note.action, SendOrder)
    text = str(note.action.args["text"])
    assert text.replace("\n", "").isprintable()
    assert len(text) < 2000


def test_one_users_jobs_do_not_take_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_files, "MOST_OF_A_USER", 0)
    assert notes(recovered()) == []


def test_one_user_has_three_orders_about_files_on_a_node_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent carries out four: all of them may hang in files of one user, and the others' would wait. Reads of output count too."""
    seen: list[tuple[World, ClusterView]] = []

    def sees(world: World, view: ClusterView) -> list[Proposal]:
        seen.append((world, view))
        return []

    monkeypatch.setattr(owner_files, "leave", sees)
    site = Site(4, spares=("n4",), policy=ON)
    site.slurm.submit(2, comment="holdfast", exclusive=True, stdout="/home/ada/x.out")
    site.run(2)
    site.fault("n1")
    site.run(30)
    monkeypatch.undo()
    world, view = next((w, v) for w, v in reversed(seen) if owner_files.leave(w, v))
    world, view = _six_times(world, view)
    monkeypatch.setattr(owner_files, "by_holdfast", lambda *_: True)  # no step of Holdfast names the made-up jobs
    one_node = owner_files.leave(world, view)
    assert len(one_node) == len({p.step for p in one_node}) == 3
    order = one_node[0].action
    assert isinstance(order, SendOrder)
    for verb, left in ((Verb.JOB_NOTE, 2), (Verb.OUTPUT, 2), (Verb.STACKS, 3)):
        flying = intent("a/SendOrder/x/1", replace(order, verb=verb), incident_id="a", planned_at=world.now)
        busy = replace(world, book=replace(world.book, intents={**world.book.intents, flying.key: flying}))
        assert len(owner_files.leave(busy, view)) == left, verb


def _six_times(world: World, view: ClusterView) -> tuple[World, ClusterView]:
    """The recovered job, six times on the same node."""
    (recovery,) = world.book.recoveries.values()
    job = view.jobs[recovery.job.job_id]
    keys = [replace(job.key, job_id=900 + n) for n in range(6)]
    recoveries = {f"r{k.job_id}": replace(recovery, job=k) for k in keys}
    jobs = {k.job_id: replace(job, key=k) for k in keys}
    return replace(world, book=replace(world.book, recoveries=recoveries)), replace(view, jobs=jobs)
