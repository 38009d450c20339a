"""Slurm carried out a step, and its answer was lost: the step still counts as ours, and is neither done twice nor forgotten."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.errors import Unavailable
from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site


def _training(site: Site) -> None:
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)


def _goes_away_after_the_drain(site: Site) -> None:
    """slurmctld saves the drain and stops before it answers."""
    took = site.slurm.drain

    def drain(node: str, reason: str) -> None:
        took(node, reason)
        site.slurm.away = True
        raise Unavailable("connection lost")

    site.slurm.drain = drain  # type: ignore[method-assign]
    site.fault("n1")
    site.run(60)
    site.slurm.drain = took  # type: ignore[method-assign]


def test_a_drain_whose_answer_was_lost_is_ours_and_ends() -> None:
    site = Site(3)
    _training(site)
    _goes_away_after_the_drain(site)
    site.slurm.away = False
    site.run(400, step_s=2)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert not site.slurm.nodes["n1"].drain
    assert site.slurm.calls.count(("drain", "n1")) == 1


def test_an_operators_drain_in_its_place_stays() -> None:
    site = Site(3)
    _training(site)
    _goes_away_after_the_drain(site)
    site.slurm.away = False
    site.slurm.operator_drains("n1")
    site.run(400, step_s=2)
    assert site.slurm.nodes["n1"].drain
    assert site.slurm.undrained == []


def test_an_older_drain_with_the_same_words_is_not_taken_for_it() -> None:
    site = Site(3)
    _training(site)
    _goes_away_after_the_drain(site)
    node = site.slurm.nodes["n1"]
    assert node.time is not None
    node.time -= timedelta(minutes=5)
    site.slurm.away = False
    site.run(60)
    assert "n1" not in site.book.marks


def test_what_keeps_the_jobs_nodes_is_ordered_again_before_the_job_is_stopped() -> None:
    site = Site(5, spares=("n5",))
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(2)
    _goes_away_after_the_drain(site)
    site.slurm.away = False
    site.run(400, step_s=1)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert "n5" in job.nodes, "it waits in its hold with the spare, not in the open"
    assert len(site.slurm.reservations["holdfast-spares"].nodes) == 1, "the pool is as large as before"
    assert [name for name in site.slurm.reservations if name != "holdfast-spares"] == []
