"""Statements of jobs that Slurm does not show: accepted only where they may concern a job soon."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from holdfast.controller.observing.claims import ShownJobs, known_claims
from holdfast.model.book import Book, CheckpointRecord, World
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey
from support.simulated import EPOCH
from support.simulated.site import POLICY

WORDS = {"name": "", "user": "ada", "account": "", "partition": "gpu", "qos": "", "state": "RUNNING", "reason": ""}
NUMBERS = {"uid": 1000, "restarts": 0, "requeue": True, "batch": True, "num_nodes": 1}
HERE = Job(JobKey("sim", 7, EPOCH), **WORDS, **NUMBERS, nodes=("n1",), required_nodes=(), excluded_nodes=())  # type: ignore[arg-type]
ELSEWHERE = replace(HERE, key=JobKey("sim", 6, EPOCH), nodes=("n2",))
VIEW = ClusterView("sim", EPOCH, {}, {7: HERE, 6: ELSEWHERE}, {})


def _claim(number: int, ago_s: float) -> CheckpointRecord:
    at = EPOCH - timedelta(seconds=ago_s)
    return CheckpointRecord(number, 1000, 0, "/c", fenced=False, node="n1", registered_at=at)


def test_a_record_is_taken_in_where_slurm_shows_the_job_or_it_spoke_lately() -> None:
    book = Book(checkpoints={n: {"n1": _claim(n, ago_s)} for n, ago_s in ((7, 90_000), (8, 90_000), (9, 60))})
    assert sorted(known_claims(book, VIEW, EPOCH)) == [7, 9]
    assert sorted(known_claims(book, None, EPOCH)) == [7, 8, 9], "nothing is known of Slurm"


def test_a_job_of_another_node_has_no_protected_place_here() -> None:
    world = World(now=EPOCH, policy=POLICY, book=Book(), view=VIEW, agents={}, listening_since=EPOCH)
    shown = ShownJobs()
    assert shown.on(world, "n1") == frozenset({7})
    assert shown.on(replace(world, view=None), "n1") is None
    assert shown.on(None, "n1") is None
    moved = replace(VIEW, jobs={7: replace(HERE, nodes=("n2",)), 6: ELSEWHERE})
    assert shown.on(replace(world, view=moved), "n1") == frozenset()
    assert shown.on(replace(world, view=moved), "n2") == frozenset({6, 7})


def test_a_job_of_several_components_is_on_the_nodes_of_all() -> None:
    other = replace(HERE, key=JobKey("sim", 8, EPOCH), nodes=("n3",))
    both = replace(HERE, nodes=("n1", "n3"), parts=(HERE, other))
    world = World(
        now=EPOCH, policy=POLICY, book=Book(), view=replace(VIEW, jobs={7: both}), agents={}, listening_since=EPOCH
    )
    assert ShownJobs().on(world, "n3") == frozenset({7, 8})
