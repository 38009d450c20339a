"""Several jobs on one dead node: each owner reads why the node may not be set DOWN yet, and none reads of another without a reason."""

from __future__ import annotations

from dataclasses import replace

from holdfast.decisions.repair import ladder
from support.simulated import Site
from support.simulated.provider import FULL
from support.simulated.slurm import SimJob


def _on_n1(site: Site, **changed: object) -> SimJob:
    said = {"comment": "holdfast", "gpus": 1, "excluded": ("n2", "n3", "n4"), **changed}
    return site.slurm.submit(1, **said)


def _dies(site: Site) -> None:
    """No one can say whether its power is off."""
    site.provider.sees_power = False
    site.machine("n1").powered = False
    site.run(120, step_s=2)
    assert site.incident("n1").dead


def _site() -> Site:
    return Site(4, can=replace(FULL, power_off_confirmed=False))


def test_unfenced_jobs_do_not_wait_for_each_other_in_a_circle() -> None:
    site = _site()
    jobs = [_on_n1(site) for _ in range(2)]
    site.run(2)
    _dies(site)
    said = {j.job_id: site.recovery(j.job_id).note for j in jobs}
    assert set(said.values()) == {"waits until n1 is confirmed off: its old run could still write"}


def test_another_job_that_keeps_the_node_is_named_as_people_know_it_and_with_the_reason() -> None:
    site = _site()
    ours, other = _on_n1(site), _on_n1(site, array_job_id=70, array_task_id=2)
    site.run(2)
    site.agents.state(site.machine("n1"), "checkpoint.register", ours.job_id, 0, path="/c", detail={"fenced": True})
    site.run(2)
    _dies(site)
    why = "its old run could still write until the node is confirmed off"
    assert site.recovery(ours.job_id).note == f"waits until n1 is set DOWN: job 70_2 is there as well, and {why}"
    assert site.recovery(other.job_id).note == "waits until n1 is confirmed off: its old run could still write"
    assert "n1 does not answer and cannot be fenced: job 70_2 waits" in site.notices.sent
    assert "the old run of job 70_2 could still write" in site.incident("n1").note


def test_another_job_that_did_not_opt_in_is_named_with_that_reason() -> None:
    site = _site()
    ours, _ = _on_n1(site), _on_n1(site, comment="")
    site.run(2)
    site.agents.state(site.machine("n1"), "checkpoint.register", ours.job_id, 0, path="/c", detail={"fenced": True})
    site.run(2)
    _dies(site)
    assert "and did not opt in: Slurm ends its run at SlurmdTimeout" in site.recovery(ours.job_id).note


def test_the_ladder_names_elements_of_an_array_as_people_know_them() -> None:
    site = Site(4)
    _on_n1(site, comment="", array_job_id=70, array_task_id=2)
    site.run(2)
    site.fault("n1")
    site.run(10)
    world = site.loop.observer.world()
    assert ladder.choose(world, site.slurm.view(), site.incident("n1")).reason == "waits for the end of job 70_2"
