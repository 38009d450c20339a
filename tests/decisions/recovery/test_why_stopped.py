"""Who ended a run and queued its job again, as ``holdfast why`` and the history of the node say: the same, with node and fault."""

from __future__ import annotations

from dataclasses import replace

from holdfast.api.shown.history import entries
from holdfast.api.shown.why import why_shape
from holdfast.cli.views.why import why_lines
from holdfast.model.event import EventKind
from support.simulated import Site
from support.simulated.provider import FULL
from support.simulated.slurm import SimJob


def _why(site: Site, job: SimJob) -> list[str]:
    number, world = job.job_id, site.loop.observer.world()
    incidents = {i.id: i for i in site.store.incidents()}
    ends, recoveries = site.store.job_ends(number), site.store.recoveries(job_id=number)
    shown = why_shape(number, ends, recoveries, world, None, incidents)
    assert shown is not None
    return list(why_lines(shown))


def _who(site: Site, node: str = "n1") -> list[tuple[str, str]]:
    told = entries(site.store.events(), node)
    return [(e.who, e.text) for e in told if e.kind == EventKind.JOB_STOPPED]


def _job(site: Site, comment: str = "holdfast", **changed: object) -> SimJob:
    job = site.slurm.submit(1, comment=comment, exclusive=True, **changed)
    site.run(2)
    return job


def test_a_run_that_holdfast_stopped_is_named_with_node_and_fault() -> None:
    site = Site(4)
    job = _job(site, excluded=("n2", "n3", "n4"))
    site.fault("n1")
    site.run(4)
    assert job.state == "PENDING"
    job.state, job.exit_code, job.nodes = "FAILED", "0:53", ("n2",)
    job.start = job.end = site.clock.now()
    site.run(30)
    text = "\n".join(_why(site, job))
    assert "  run 0: Holdfast stopped it because of node n1, which had a fault (gpu." in text
    assert f"    recovery gone for incident {site.incident('n1').id}" in text
    assert _who(site) == [("Holdfast", f"job {job.job_id}: run 0 is over, requeued under the same id")]


def test_a_run_whose_node_died_and_that_slurm_queued_again_is_not_its_owners_doing() -> None:
    site = Site(4, can=replace(FULL, power_off_confirmed=False))
    site.provider.sees_power = False
    job = _job(site)
    site.machine("n1").powered = False
    site.run(60, step_s=2)
    assert site.incident("n1").dead
    node = site.slurm.nodes["n1"]
    node.down, node.reason, node.user = True, "Not responding", "slurm"
    site.slurm._kill_on("n1")
    site.run(10)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    lines = _why(site, job)
    assert lines[1].startswith("  run 0: it was on node n1, which is dead (")
    assert lines[1].endswith("; Slurm queued the job again")
    assert "by its owner" not in "".join(lines)
    text = f"job {job.job_id}: run 0 is over, requeued under the same id by Slurm, as node n1 died"
    assert _who(site) == [("Slurm", text)]
    assert "run 0 was stopped by node n1, which is dead" in job.admin_comment


def test_a_run_that_its_owner_queued_again_is_not_holdfasts_doing() -> None:
    site = Site(4)
    job = _job(site, comment="")
    site.fault("n1")
    site.run(4)
    site.slurm.requeue(job.job_id)
    site.run(10)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert "  run 0: queued again by its owner, an operator or Slurm" in "\n".join(_why(site, job))
    ((who, text),) = _who(site)
    assert (who, text.endswith("by its owner, an operator or Slurm, not by Holdfast")) == ("", True)
