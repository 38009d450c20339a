"""A recovered job that waits: Holdfast's exclusions never leave it without a node that fits, and its reason says why it waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.decisions.common import node_incidents
from holdfast.decisions.recovery import waiting
from holdfast.decisions.recovery.exclusions import release_step
from holdfast.model.actions.action import Release
from holdfast.model.incidents.incident import RecoveryPhase
from support.simulated import Site
from support.simulated.slurm import SimJob


def _stopped(site: Site, **changed: object) -> SimJob:
    """A job that its user keeps on n1, after a fault there."""
    job = site.slurm.submit(1, comment="holdfast", exclusive=True, excluded=("n2", "n3", "n4"), **changed)
    site.run(2)
    site.fault("n1")
    site.run(4)
    assert (job.state, job.restarts) == ("PENDING", 1)
    return job


def test_the_only_node_that_fits_is_not_excluded_while_slurm_keeps_it_free() -> None:
    site = Site(4)
    job = _stopped(site)
    site.run(3)
    assert (job.reason, job.excluded) == ("Resources", ("n2", "n3", "n4"))
    site.run(700, step_s=10)
    assert (job.state, job.nodes) == ("RUNNING", ("n1",))


def test_a_node_that_is_still_in_service_stays_excluded() -> None:
    """Its drain was withheld: the job could start there."""
    site = Site(4)
    _stopped(site)
    world = site.loop.world
    assert world is not None
    assert world.view is not None
    assert node_incidents.to_exclude(world, in_service_only=False) == {"n1"}
    assert node_incidents.to_exclude(world, in_service_only=True) == set()
    nodes = {**world.view.nodes, "n1": replace(world.view.nodes["n1"], flags=frozenset())}
    serving = replace(world, view=replace(world.view, nodes=nodes))
    assert node_incidents.to_exclude(serving, in_service_only=True) == {"n1"}


def test_a_list_that_comes_again_after_another_one_is_set_again() -> None:
    """Suspects n1, then none, then n1: the third list is the first one, whose step was done."""
    site = Site(4)
    job = _stopped(site)
    site.run(3)
    world, recovery = site.loop.world, site.recovery(job.job_id)
    assert world is not None
    every, own = ("n1", "n2", "n3", "n4"), ("n2", "n3", "n4")
    done = [i for i in site.book.intents_of(recovery.incident_id) if isinstance(i.action, Release)]
    assert [i.action.exclude for i in done if isinstance(i.action, Release)] == [every, own]
    again = release_step(replace(world, book=site.book), recovery, every, None)
    assert again not in [i.step for i in done]
    assert release_step(replace(world, book=site.book), recovery, own, None) == done[-1].step


def test_what_keeps_a_held_job_off_a_node_is_taken_back_once_it_serves() -> None:
    site = Site(4)
    job = _stopped(site)
    job.held, job.reason = True, "JobHeldAdmin"
    job.excluded = ("n1", "n2", "n3", "n4")
    site.run(700, step_s=10)
    shown = site.slurm.job(job.job_id)
    assert (shown.state, shown.held, shown.excluded_nodes) == ("PENDING", True, ("n2", "n3", "n4"))
    assert "only an operator can release it: scontrol release 100" in site.recovery(job.job_id).note


def test_a_users_requeue_that_our_exclusions_leave_without_a_node_is_set_going() -> None:
    site = Site(3)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    bad = job.nodes[0]
    site.fault(bad)
    site.run(5)
    assert (job.state, site.recovery(job.job_id).phase) == ("RUNNING", RecoveryPhase.RESUMED)
    others = tuple(n for n in site.slurm.nodes if n != bad)
    site.slurm.requeue(job.job_id)
    site.run(1)
    job.excluded, job.reason = (*others, bad), "None"  # by the user: the others are the user's own
    job.begin = site.clock.now()
    site.run(3)
    assert (job.excluded, job.reason) == (others, "Resources")


def test_a_users_own_exclusions_are_left_alone() -> None:
    site = Site(3)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True, excluded=("n1", "n2"))
    site.run(2)
    site.fault("n3")
    site.run(2)
    job.excluded = ("n1", "n2", "n3")
    recovery = site.recovery(job.job_id)
    assert recovery.excluded_before == ("n1", "n2")
    site.run(30)
    assert set(job.excluded) >= {"n1", "n2"}


@pytest.mark.parametrize(
    ("reason", "priority", "excluded", "said"),
    [
        ("BadConstraints", 0, ("n9", "n1"), "Holdfast keeps it off n1, which may be faulty"),
        ("BadConstraints", 0, ("n9",), "Slurm knows no node of partition gpu that has what the job asks for"),
        ("JobHeldUser", 0, (), "its owner can release it: scontrol release 100"),
        ("JobHeldAdmin", 0, (), "only an operator can release it: scontrol release 100"),
        ("Resources", 1, (), "waits for nodes: too few of those that fit are free (Resources)"),
        ("ReqNodeNotAvail,_UnavailableNodes:n1", 1, (), "out of service, reserved or in use (ReqNodeNotAvail)"),
        ("AssocGrpGRES", 1, (), "pending: AssocGrpGRES"),
        (
            "BeginTime",
            1,
            (),
            "waits for its start time, which Slurm sets two minutes ahead, by default, when a job is requeued (BeginTime)",
        ),
    ],
)
def test_the_words_say_why_it_waits(reason: str, priority: int, excluded: tuple[str, ...], said: str) -> None:
    site = Site(4)
    job = _stopped(site)
    recovery = replace(site.recovery(job.job_id), excluded_before=("n9",))
    shown = replace(site.slurm.job(job.job_id), reason=reason, priority=priority, excluded_nodes=excluded)
    assert said in waiting.why(shown, recovery)


def test_a_job_whose_exclusions_cannot_be_read_is_not_restarted_where_it_may_not_be() -> None:
    site = Site(4)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True, excluded=("n2",), unreadable="ExcNodeList=[n2")
    other = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    for one in (job, other):
        site.fault(one.nodes[0])
    site.run(30)
    assert (job.state, job.restarts, job.excluded) == ("RUNNING", 0, ("n2",))
    recovery = site.recovery(job.job_id)
    assert recovery.phase is RecoveryPhase.LEFT_ALONE
    assert "ExcNodeList=[n2" in recovery.note
    assert (other.state, other.restarts) == ("RUNNING", 1)


def test_a_list_that_becomes_unreadable_while_the_job_waits_stays_its_users() -> None:
    site = Site(4)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    site.fault("n1")
    while job.state == "RUNNING":
        site.run(0.2, step_s=0.2)
    job.excluded, job.unreadable = ("n2", "n3"), "ExcNodeList=[n2,n3"
    site.run(30)
    assert job.excluded == ("n2", "n3")
    assert (job.state, job.nodes, job.restarts) == ("RUNNING", ("n4",), 1)
