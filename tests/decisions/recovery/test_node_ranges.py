"""A job of a node range starts again at a legal size: the largest that the nodes there can fill, and larger when more are back."""

from __future__ import annotations

import pytest

from holdfast.model.actions.action import Release
from holdfast.model.elastic_jobs.noderange import node_sizes
from support.simulated import Site
from support.simulated.slurm import SimJob


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("holdfast sizes=2+4", (2, 4)),
        ("sizes=4+2+2,holdfast", (2, 4)),
        ("holdfast sizes=3", (3,)),
        ("holdfast", None),
        ("", None),
        ("holdfast sizes=", None),
        ("holdfast sizes=2-4", None),
        ("holdfast sizes=0+2", None),
        ("holdfast sizes=2 sizes=4", None),
        ("holdfast sizes=9999999", None),
        ("holdfast sizes=\u0662", None),
    ],
)
def test_what_a_comment_declares(comment: str, expected: tuple[int, ...] | None) -> None:
    sizes = node_sizes(comment)
    assert (tuple(sizes.legal) if sizes else None) == expected


def started(site: Site, nodes: int = 4, comment: str = "holdfast sizes=2+4") -> SimJob:
    job = site.slurm.submit(nodes, exclusive=True, comment=comment)
    site.run(2)
    assert job.state == "RUNNING"
    return job


def sizes_set(site: Site) -> list[int | None]:
    return [i.action.nodes for i in site.store.intents() if isinstance(i.action, Release)]


def test_one_node_short_it_starts_on_the_next_smaller_legal_size() -> None:
    site = Site(4)
    job = started(site)
    site.fault("n2")
    site.run(10)
    assert (job.state, job.restarts, len(job.nodes)) == ("RUNNING", 1, 2)
    assert "n2" not in job.nodes
    assert "on 2 nodes" in site.story(site.incident("n2").id)


def test_with_a_spare_it_keeps_its_size() -> None:
    site = Site(5, spares=("n5",))
    job = started(site)
    site.fault("n2")
    site.run(10)
    assert (job.state, job.nodes) == ("RUNNING", ("n1", "n3", "n4", "n5"))


def test_it_grows_at_the_next_restart_when_more_nodes_are_there_and_not_before() -> None:
    site = Site(5)
    job = started(site, 2)
    site.run(600, step_s=5)
    assert (len(job.nodes), job.restarts) == (2, 0), "a running job is not stopped to grow"
    site.fault(job.nodes[0])
    site.run(10)
    assert (job.state, len(job.nodes), job.restarts) == ("RUNNING", 4, 1)


def test_where_no_legal_size_fits_it_waits_and_starts_when_one_does() -> None:
    site = Site(5)
    job = started(site)
    other = site.slurm.submit(1, exclusive=True)
    site.run(2)
    for node in job.nodes[:3]:
        site.fault(node)
    site.run(20)
    assert (job.state, job.restarts, set(sizes_set(site))) == ("PENDING", 1, {None})
    site.slurm.finish(other, "COMPLETED")
    site.run(10)
    assert (job.state, len(job.nodes)) == ("RUNNING", 2)
    assert sizes_set(site)[-1] == 2


def test_a_job_that_declares_none_is_left_as_it_is() -> None:
    site = Site(4)
    job = started(site, comment="holdfast")
    site.fault("n2")
    site.run(20)
    assert (job.state, job.num_nodes) == ("PENDING", 4)
    assert not [call for call in site.slurm.calls if call[0] == "set_num_nodes"]
