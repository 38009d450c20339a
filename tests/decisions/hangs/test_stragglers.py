"""A part of a job that is slower than the others for a minute and more: reported, and ordered to leave only where the site allows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.decisions.common.node_incidents import STRAGGLER
from holdfast.decisions.hangs.stragglers import MOST_PER_USER, is_slow, limit
from holdfast.model.actions.action import SendOrder, Verb
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.policies.hangs import StragglerPolicy
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

_S = IncidentState


@pytest.mark.parametrize(
    ("typical", "expected"),
    [
        ([100], []),
        ([100, 900], []),
        ([100, 100, 140], []),
        ([100, 100, 160], [2]),
        ([100, 101, 99, 100], []),
        ([100, 101, 99, 108], []),
        ([100, 100, 100, 111], [3]),
        ([100, 100, 100, 109], []),
        ([100, 101, 99, 130], [3]),
        ([100, 140, 60, 180, 120], []),
        ([100, 101, 99, 100, 102, 98, 150, 160], [6, 7]),
        ([100, 100, 200, 200], []),
        ([1, 1, 1, 1000], [3]),
    ],
)
def test_who_is_slow(typical: list[int], expected: list[int]) -> None:
    times = {str(n): [t] * 13 for n, t in enumerate(typical)}
    most = limit(times, StragglerPolicy())
    slow = [] if most is None else [int(name) for name, own in times.items() if is_slow(own, most)]
    assert slow == expected


def test_now_and_then_is_not_slow() -> None:
    most = limit({str(n): [100] * 13 for n in range(4)}, StragglerPolicy())
    assert most is not None
    assert is_slow([300] * 13, most)
    assert not is_slow([300] * 12 + [100], most)
    assert not is_slow([], most)


def group(site: Site, index: int, least: int) -> SimJob:
    words = {"comment": f"holdfast elastic={least}:4", "array_job_id": 100, "array_task_id": index}
    return site.slurm.submit(1, exclusive=True, **words)


def elastic(site: Site, least: int = 4) -> list[SimJob]:
    """Four groups, all in the base array; with a smaller ``least`` the last ones are flexible."""
    jobs = [group(site, index, least) for index in range(least)]
    for index in range(least, 4):
        words = {"comment": f"holdfast elastic={least}:4 of=100", "array_job_id": 200, "array_task_id": index}
        jobs.append(site.slurm.submit(1, exclusive=True, **words))
    site.run(2)
    assert all(job.state == "RUNNING" for job in jobs)
    return jobs


def test_parts_that_take_turns_open_few_incidents() -> None:
    """Each reports its own duration: there were 24 incidents in eleven minutes, each read at every turn for a week."""
    site = Site(9)
    words = {"comment": "holdfast elastic=8:8", "array_job_id": 100}
    jobs = [site.slurm.submit(1, exclusive=True, array_task_id=n, **words) for n in range(8)]
    site.run(2)
    for turn in range(8):
        own_ms = [900 if n % 2 == turn % 2 and n > 1 else 100 for n in range(8)]
        train(site, jobs, 80, own_ms, first=turn * 80 + 1)
    assert len([i for i in site.book.incidents.values() if i.kind is IncidentKind.STRAGGLER]) == MOST_PER_USER


def train(site: Site, jobs: list[SimJob], seconds: int, own_ms: list[int], first: int = 0) -> None:
    for step in range(first, first + seconds):
        for job, own in zip(jobs, own_ms, strict=True):
            detail: dict[str, str | int] = {"phase": "step", "step_ms": 1000, "own_ms": own}
            machine = site.machine(job.nodes[0])
            site.agents.state(machine, "progress", job.job_id, job.restarts, step=step, detail=detail)
        site.run(1)


def found(site: Site) -> list[Incident]:
    return [i for i in site.store.incidents() if i.check == STRAGGLER]


def leaves(site: Site) -> list[tuple[str, int]]:
    orders = (i.action for i in site.store.intents() if isinstance(i.action, SendOrder))
    return [(o.node, int(o.args["job_id"])) for o in orders if o.verb is Verb.LEAVE]


def test_a_slow_group_is_named_and_no_more_until_it_is_fast_again() -> None:
    site = Site(5)
    jobs = elastic(site)
    train(site, jobs, 55, [700, 710, 1000, 705])
    assert found(site) == []
    train(site, jobs, 15, [700, 710, 1000, 705], 55)
    (incident,) = found(site)
    assert (incident.node, incident.state) == ("n3", _S.WATCHING)
    assert "group 2 of job 102 on n3 takes 1.41 times the median" in incident.headline
    train(site, jobs, 40, [700, 710, 1000, 705], 70)
    assert (len(found(site)), leaves(site), [j.restarts for j in jobs]) == (1, [], [0, 0, 0, 0])
    train(site, jobs, 80, [700, 710, 705, 705], 110)
    assert [(i.state, i.note) for i in found(site)] == [(_S.CLOSED, "it is as fast as the others again")]


def test_the_nodes_of_an_ordinary_job_are_compared_too() -> None:
    site = Site(5)
    job = site.slurm.submit(4, exclusive=True, comment="holdfast")
    site.run(2)
    for step in range(75):
        for node in job.nodes:
            detail: dict[str, str | int] = {"phase": "step", "own_ms": 900 if node == "n2" else 600}
            site.agents.state(site.machine(node), "progress", job.job_id, 0, step=step, detail=detail)
        site.run(1)
    assert [i.node for i in found(site)] == ["n2"]
    site.slurm.finish(job, "COMPLETED")
    site.run(3)
    assert found(site)[0].note == "the run is over"


@pytest.mark.parametrize(("least", "expected"), [(2, [("n4", 103)]), (4, [])])
def test_a_slow_group_is_asked_to_leave_where_the_site_wants_it_and_the_size_stays_legal(
    least: int, expected: list[tuple[str, int]]
) -> None:
    site = Site(5, policy=replace(POLICY, stragglers=StragglerPolicy(act="leave")))
    jobs = elastic(site, least)
    train(site, jobs, 75, [700, 710, 705, 1000])
    assert leaves(site) == expected
    train(site, jobs, 10, [700, 710, 705, 1000], 75)
    assert leaves(site) == expected


def test_the_node_that_was_left_is_probed() -> None:
    site = Site(6, policy=replace(POLICY, stragglers=StragglerPolicy(act="leave")))
    site.agents.leave = lambda _machine, _job_id, _restarts: ""
    jobs = elastic(site, 2)
    train(site, jobs, 75, [700, 710, 705, 1000])
    site.slurm.finish(jobs[3], "COMPLETED")
    site.run(40)
    assert {n for pair in site.agents.probes.pairs for n in pair} >= {"n4"}
    assert any(i.note == "pair probe: cleared: n4" for i in site.store.incidents())


def test_a_part_that_says_nothing_any_more_is_not_compared() -> None:
    site = Site(5)
    jobs = elastic(site)
    train(site, jobs, 50, [700, 710, 1000, 705])
    train(site, jobs[:2], 40, [700, 710], 50)
    assert found(site) == []


def test_a_fault_of_the_node_is_not_taken_for_the_slow_group() -> None:
    """Evidence of a fault is independent; the slow group is still followed, and not found a second time."""
    site = Site(5)
    jobs = elastic(site)
    train(site, jobs, 75, [700, 710, 1000, 705])
    (slow,) = found(site)
    site.fault("n3")
    train(site, jobs[:2] + jobs[3:], 20, [700, 710, 705], 75)
    assert [(i.id, i.state, i.note) for i in found(site)] == [(slow.id, _S.CLOSED, "the run is over")]
    others = [i for i in site.store.incidents(node="n3") if i.id != slow.id]
    assert [(i.check, i.kind) for i in others] == [("gpu.xid", IncidentKind.FAULT)]
