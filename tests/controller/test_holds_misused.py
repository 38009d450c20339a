"""A hold keeps nodes for its one job: its owner gets no other job past other people's reservations with it."""

from __future__ import annotations

import pytest

from support.simulated.site import Site


@pytest.mark.parametrize("how", ["holds the job", "submits another"])
def test_a_hold_that_its_owner_uses_otherwise_is_dropped(how: str) -> None:
    """A user who held his recovered job kept the hold for ten minutes, and had other jobs start on reserved nodes and spares."""
    site = Site(4)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.slurm.submit(2, exclusive=True)
    site.run(5)
    bad = job.nodes[0]
    site.fault(bad)
    for _ in range(60):
        site.run(1)
        if job.state == "PENDING" and site.slurm.reservations:
            break
    (hold,) = site.slurm.reservations
    if how == "holds the job":
        job.held = True
    else:
        site.slurm.submit(1, exclusive=True, reservation=hold, held=True)
    site.run(30)
    assert hold not in site.slurm.reservations
    assert job.state == "PENDING"


def test_a_hold_stays_while_its_job_waits() -> None:
    site = Site(4)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.slurm.submit(2, exclusive=True)
    site.run(5)
    site.fault(job.nodes[0])
    site.run(60)
    assert job.state == "PENDING"
    assert len(site.slurm.reservations) == 1
