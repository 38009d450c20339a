"""The size of elastic jobs: when they grow, who leaves and why, over the simulated Slurm with arrays."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.decisions.common.elastic_jobs import elastic_jobs
from holdfast.model.actions.action import IntentState, SendOrder, Verb
from holdfast.model.event import EventKind
from holdfast.model.ids import UPKEEP
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.policies.resizing import ElasticPolicy
from holdfast.model.slurm.asks import Asks
from support.simulated.arrays import FLEX, ElasticSite
from support.simulated.site import POLICY


def _policy(**elastic: Any) -> Policy:
    return replace(POLICY, elastic=ElasticPolicy(**elastic))


def _site(nodes: int, **elastic: Any) -> ElasticSite:
    return ElasticSite(nodes, policy=_policy(**elastic))


def _reasons(site: ElasticSite, verb: str = "SendOrder") -> list[str]:
    mine = [i for i in site.book.intents.values() if i.incident_id == UPKEEP and i.kind == verb]
    return [i.reason for i in sorted(mine, key=lambda i: (i.planned_at, i.key))]


def _asked(site: ElasticSite) -> list[tuple[str, int]]:
    """Reason and target of each order to leave, in their order."""
    orders = [i for i in site.book.intents.values() if isinstance(i.action, SendOrder) and i.action.verb is Verb.LEAVE]
    args = [
        i.action.args for i in sorted(orders, key=lambda i: (i.planned_at, i.key)) if isinstance(i.action, SendOrder)
    ]
    return [(str(a["reason"]), int(a["target"])) for a in args]


def _stuck_beside(site: ElasticSite, base: int, flexible: int) -> None:
    """No preemption by Slurm: the flexible groups run in the same partition as all other jobs."""
    site.slurm.preempts = False
    for element in [*site.slurm.elements(base), *site.slurm.elements(flexible)]:
        element.partition = "gpu"


# Growing


def test_a_preempted_group_need_not_sit_out_slurms_two_minutes() -> None:
    site = _site(4)
    arrays = site.slurm.submit_elastic("2:4")
    site.run(5)
    assert site.running(*arrays) == [0, 1, 2, 3]
    high = site.slurm.submit(2, exclusive=True)
    site.run(10)
    assert (high.state, site.running(*arrays)) == ("RUNNING", [0, 1])
    site.slurm.finish(high, "COMPLETED")
    site.run(29)
    assert site.running(*arrays) == [0, 1]
    site.run(5)
    assert site.running(*arrays) == [0, 1, 2, 3]
    assert _reasons(site, "Release") == ["job-10000 may grow to 4 groups: n3,n4 idle"] * 2
    assert _asked(site) == []


@pytest.mark.parametrize(
    ("partition", "priority", "num_nodes", "waits"),
    [
        (FLEX, 10, 4, True),
        (FLEX, 0, 4, True),
        (FLEX, -1, 4, False),
        ("gpu", 10, 4, False),
    ],
    ids=["goes first", "as important", "less important", "of another partition, where it cannot start"],
)
def test_whose_wait_goes_first(partition: str, priority: int, num_nodes: int, waits: bool) -> None:
    site = _site(4, grow_after_idle_s=5.0, shrink_for_priority=False)
    arrays = site.slurm.submit_elastic("2:4")
    site.run(5)
    high = site.slurm.submit(2, exclusive=True)
    site.run(5)
    site.slurm.submit(num_nodes, exclusive=True, partition=partition, priority=priority)
    site.slurm.finish(high, "COMPLETED")
    site.run(20)
    assert site.running(*arrays) == ([0, 1] if waits else [0, 1, 2, 3])


def test_a_begin_time_of_the_owners_is_left_alone() -> None:
    site = _site(4, grow_after_idle_s=1.0)
    begin = site.clock.now() + timedelta(hours=5)
    arrays = site.slurm.submit_elastic("2:4", begin=begin)
    site.run(120)
    assert {e.begin for e in site.slurm.elements(arrays[1])} == {begin}
    assert [i for i in site.book.intents.values() if i.incident_id == UPKEEP] == []


@pytest.mark.parametrize(
    ("sizes", "spares", "nodes", "running", "throttle"),
    [
        ("2:4:2", 0, 3, 2, None),
        ("2:4:2", 0, 4, 4, None),
        ("2:6:2", 0, 5, 4, 2),
        ("2:8:2+4+8", 0, 7, 4, 2),
        ("2:8:2+4+8", 0, 8, 8, None),
        ("2:4:2", 1, 5, 5, None),
        ("2:4", 0, 3, 3, None),
        ("2:2", 1, 3, 3, None),
    ],
)
def test_only_legal_sizes(sizes: str, spares: int, nodes: int, running: int, throttle: int | None) -> None:
    site = _site(nodes, shrink_useless_after_s=20.0, settle_s=5.0)
    arrays = site.slurm.submit_elastic(sizes, spares=spares)
    site.run(150)
    assert len(site.running(*arrays)) == running
    assert site.slurm.throttles.get(arrays[1]) == throttle
    told = len(site.slurm.told)
    site.run(3600, step_s=20)
    assert len(site.running(*arrays)) == running
    assert len(site.slurm.told) == told, "it flaps"


def test_a_jump_to_the_next_legal_size_when_there_are_nodes_for_all_of_it() -> None:
    site = _site(4, grow_after_idle_s=5.0, shrink_useless_after_s=20.0, settle_s=2.0)
    site.slurm.operator_drains("n4")
    arrays = site.slurm.submit_elastic("2:4:2")
    site.run(60)
    assert len(site.running(*arrays)) == 2
    site.slurm.operator_resumes("n4")
    site.run(10)
    assert site.running(*arrays) == [0, 1, 2, 3]
    assert "stays at 2 groups" in _reasons(site, "DelayStart")[0]


# Shrinking


def test_groups_of_no_use_leave() -> None:
    site = _site(3, shrink_useless_after_s=60.0)
    arrays = site.slurm.submit_elastic("2:4:2")
    site.run(55)
    assert len(site.running(*arrays)) == 3
    site.run(20)
    assert site.running(*arrays) == [0, 1]
    assert _asked(site) == [("scale", 2)]
    assert _reasons(site) == ["job-10000 shrinks to 2 groups, 2 leave: 3 is no legal size and no more groups can start"]


@pytest.mark.parametrize(
    ("sizes", "wants", "left", "asked"),
    [
        ("2:6", {"num_nodes": 1}, 5, [("preempt", 5)]),
        ("2:6", {"num_nodes": 3}, 3, [("preempt", 3)] * 3),
        ("2:6", {"num_nodes": 4}, 2, [("preempt", 2)] * 4),
        ("2:6", {"num_nodes": 5}, 6, []),
        ("2:6:2", {"num_nodes": 1}, 4, [("preempt", 4)] * 2),
        ("2:6", {"num_nodes": 2, "excluded": ("n6", "n5")}, 4, [("preempt", 4)] * 2),
        ("2:6", {"num_nodes": 1, "required": ("n3",)}, 5, [("preempt", 5)]),
        ("2:6", {"num_nodes": 1, "required": ("n1",)}, 6, []),
        ("2:6", {"num_nodes": 2, "priority": 0}, 6, []),
        ("2:6", {"num_nodes": 2, "held": True}, 6, []),
        ("2:6", {"num_nodes": 2, "partition": "other"}, 6, []),
    ],
    ids=[
        "one",
        "three",
        "down to the least",
        "never below it",
        "to a legal size",
        "where it may run",
        "the node that it requires",
        "never a base group",
        "no higher priority",
        "held",
        "another partition",
    ],
)
def test_room_for_a_job_of_higher_priority(
    sizes: str, wants: dict[str, Any], left: int, asked: list[tuple[str, int]]
) -> None:
    site = _site(6)
    arrays = site.slurm.submit_elastic(sizes)
    site.run(5)
    _stuck_beside(site, *arrays)
    high = site.slurm.submit(**{"exclusive": True, "priority": 10, **wants})
    site.run(29)
    assert _asked(site) == []
    site.run(15)
    assert _asked(site) == asked
    assert len(site.running(*arrays)) == left
    assert (high.state == "RUNNING") is bool(asked)
    assert {0, 1} <= set(site.running(*arrays))
    site.run(300, step_s=5)
    assert _asked(site) == asked, "asked once"


def test_the_youngest_leave_first_and_come_back() -> None:
    site = _site(5)
    arrays = site.slurm.submit_elastic("2:5")
    site.run(5)
    _stuck_beside(site, *arrays)
    third = site.slurm.elements(arrays[1])[0]
    site.slurm.requeue(third.job_id)
    site.run(40)
    assert site.running(*arrays) == [0, 1, 2, 3, 4]
    high = site.slurm.submit(1, exclusive=True, priority=10)
    site.run(45)
    assert site.running(*arrays) == [0, 1, 3, 4]
    assert _reasons(site) == [
        f"job-10000 shrinks to 4 groups, 2 leave: job {high.job_id} of priority 10 waits for 1 more nodes"
    ]
    site.slurm.finish(high, "COMPLETED")
    site.run(40)
    assert site.running(*arrays) == [0, 1, 2, 3, 4]


def test_where_slurm_preempts_nobody_is_asked() -> None:
    site = _site(4)
    arrays = site.slurm.submit_elastic("2:4")
    site.run(5)
    high = site.slurm.submit(2, exclusive=True, priority=10)
    site.run(120)
    assert (high.state, len(site.running(*arrays))) == ("RUNNING", 2)
    assert _asked(site) == []


def test_only_one_of_two_jobs_makes_room() -> None:
    site = _site(8)
    one, other = site.slurm.submit_elastic("2:4"), site.slurm.submit_elastic("2:4")
    site.run(5)
    _stuck_beside(site, *one)
    _stuck_beside(site, *other)
    site.slurm.submit(1, exclusive=True, priority=10)
    site.run(200)
    assert sorted([len(site.running(*one)), len(site.running(*other))]) == [3, 4]
    assert len(_asked(site)) == 1


@pytest.mark.parametrize(
    ("leave", "drained", "running"),
    [
        (False, ("n1", "n4"), [0, 1, 2, 3]),
        (True, ("n4",), [0, 1, 2, 3]),
        (True, ("n1",), [0, 1, 2, 3]),
        (True, ("n1", "n2", "n3"), [0, 2, 3]),
    ],
    ids=["not unless the site says so", "a flexible group", "a base group", "never below the least"],
)
def test_nodes_that_an_operator_drained(leave: bool, drained: tuple[str, ...], running: list[int]) -> None:
    site = _site(5, leave_drained_nodes=leave, settle_s=5.0, grow_after_idle_s=1.0)
    arrays = site.slurm.submit_elastic("2:4")
    site.run(10)
    for name in drained:
        site.slurm.operator_drains(name)
    site.run(40)
    there = {n for e in site.slurm.elements(arrays[0]) + site.slurm.elements(arrays[1]) for n in e.nodes}
    if leave and len(drained) == 1:
        assert site.running(*arrays) == running
        assert there.isdisjoint(drained)
        assert _asked(site) == [("drain", 3)]
    else:
        assert len(site.running(*arrays)) >= 2
    if not leave:
        assert there >= set(drained)


@pytest.mark.parametrize("silent", [False, True])
def test_a_group_that_does_not_leave_is_requeued(silent: bool) -> None:
    site = _site(4, leave_deadline_s=40)
    arrays = site.slurm.submit_elastic("2:4")
    site.run(5)
    _stuck_beside(site, *arrays)
    youngest = site.slurm.elements(arrays[1])[1]
    site.slurm.deaf.add(youngest.job_id)
    site.machine("n4").agent_up = not silent
    high = site.slurm.submit(1, exclusive=True, priority=10)
    site.run(60)
    assert (high.state == "RUNNING") is silent
    site.run(25)
    assert high.state == "RUNNING"
    assert site.slurm.requeued == {(youngest.job_id, 0): 1}
    assert len(_asked(site)) == (0 if silent else 1)


@pytest.mark.parametrize("asks", ["a feature", "what is not read", "reserved nodes"])
def test_nobody_leaves_for_a_job_that_cannot_use_the_nodes(asks: str) -> None:
    """A pending job for the one big node had another user's groups requeued repeatedly, from nodes that it could not use."""
    site = _site(4)
    site.slurm.features["n1"] = frozenset({"big"})
    site.slurm.submit(1, exclusive=True, required=("n1",))
    arrays = site.slurm.submit_elastic("1:3")
    site.run(5)
    _stuck_beside(site, *arrays)
    feature = {"a feature": frozenset({"big"}), "what is not read": None}.get(asks, frozenset())
    if asks == "reserved nodes":
        site.slurm.create_reservation("course", ("n1",), users=("ada",), duration_s=36_000)
    reservation = "course" if asks == "reserved nodes" else ""
    high = site.slurm.submit(1, exclusive=True, priority=10, features=feature, reservation=reservation)
    site.run(400)
    assert (high.state, high.reason) == ("PENDING", "Resources")
    assert (_asked(site), site.slurm.told, len(site.running(*arrays))) == ([], [], 3)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_room_that_was_made_in_vain_is_not_made_again(silent: bool, restarted: bool) -> None:
    site = _site(4)
    arrays = site.slurm.submit_elastic("1:4")
    site.run(5)
    _stuck_beside(site, *arrays)
    for name in ("n2", "n3", "n4") if silent else ():
        site.machine(name).agent_up = False
    high = site.slurm.submit(1, exclusive=True, priority=10)
    site.run(20)
    high.features = frozenset({"big"})  # for Slurm alone: Holdfast sees that it fits
    site.slurm.shown_asks[high.job_id] = Asks()
    site.run(300)
    assert high.state == "PENDING"
    assert len(site.slurm.told) + sum(site.slurm.requeued.values()) == 1
    if restarted:
        site.start_controller()
    site.run(600 if restarted else 3900, step_s=10.0)
    assert len(site.slurm.told) + sum(site.slurm.requeued.values()) == 1


# Which jobs it may act on at all


@pytest.mark.parametrize("how", ["observe", "paused", "stale", "switched off"])
def test_when_nothing_is_done(how: str) -> None:
    policy = _policy(shrink_for_priority=how != "switched off")
    site = ElasticSite(4, policy=replace(policy, mode=Mode.OBSERVE) if how == "observe" else policy)
    arrays = site.slurm.submit_elastic("2:4")
    site.run(5)
    _stuck_beside(site, *arrays)
    if how == "paused":
        site.operate("pause")
    site.slurm.submit(1, exclusive=True, priority=10)
    site.run(5)
    site.slurm.away = how == "stale"
    site.run(90)
    assert site.slurm.told == []
    assert len(site.running(*arrays)) == 4
    withheld = [i for i in site.book.intents.values() if i.incident_id == UPKEEP and i.state is IntentState.WITHHELD]
    assert len(withheld) == (1 if how == "observe" else 0)


def test_nobody_joins_another_users_job() -> None:
    site = _site(6)
    arrays = site.slurm.submit_elastic("2:4:2")
    site.run(2)
    stolen = site.slurm.submit_array(
        range(4, 6), comment=f"holdfast elastic=2:4:2 of={arrays[0]}", uid=2000, user="eve"
    )
    site.run(300)
    assert len(site.running(stolen)) == 2
    assert site.slurm.throttles == {}
    assert site.slurm.told == []


def test_a_record_of_another_user_under_the_arrays_id_is_no_part_of_the_job() -> None:
    site = _site(6)
    (base, *_) = site.slurm.submit_elastic("2:4:2")
    site.run(2)
    view = site.slurm.view()
    own = next(job for job in view.jobs.values() if job.array_job_id == base)
    forged = replace(own, key=replace(own.key, job_id=base - 1), uid=2000, user="eve")
    (job,) = elastic_jobs(replace(view, jobs={base - 1: forged, **view.jobs}))
    assert (job.uid, job.holds(base - 1), job.holds(own.key.job_id)) == (own.uid, False, True)


def test_a_group_on_a_bad_node_is_recovered_like_any_job() -> None:
    site = _site(6)
    arrays = site.slurm.submit_elastic("2:4", comment="elastic=2:4")  # nothing else opts it in
    base = site.slurm.elements(arrays[0])
    for element in site.slurm.elements(arrays[1]):
        element.comment = f"elastic=2:4 of={arrays[0]}"
    site.run(5)
    hurt = site.slurm.elements(arrays[1])[0]
    bad = hurt.nodes[0]
    site.fault(bad)
    site.run(10)
    assert hurt.state == "RUNNING"
    assert hurt.nodes != (bad,)
    assert hurt.restarts == 1
    assert site.recovery(hurt.job_id).consent == "elastic job"
    assert all(e.restarts == 0 for e in base)
    released = site.store.events(kinds=(EventKind.ACTION_DONE,))
    assert [e.incident_id for e in released if e.detail["kind"] == "Release"] == [site.incident(bad).id]


@pytest.mark.parametrize("kind", ["Release", "DelayStart", "SetThrottle", "Requeue"])
@pytest.mark.parametrize("moment", ["started", "acted"])
def test_a_crash_changes_nothing(kind: str, moment: str) -> None:
    site = _site(7, grow_after_idle_s=5.0, shrink_useless_after_s=20.0, settle_s=2.0, leave_deadline_s=10)
    site.kill_at = (kind, moment)
    high = site.slurm.submit(2, exclusive=True, priority=10)
    arrays = site.slurm.submit_elastic("2:6:2+4+6")
    site.slurm.deaf |= {e.job_id for e in site.slurm.elements(arrays[1])}
    site.run(100)
    assert len(site.running(*arrays)) == 4
    site.slurm.finish(high, "COMPLETED")
    site.run(60)
    assert len(site.running(*arrays)) == 6
    last = site.slurm.submit(4, exclusive=True, priority=10)
    site.run(60)
    assert (last.state, len(site.running(*arrays))) == ("RUNNING", 2)
    site.slurm.finish(last, "COMPLETED")
    site.run(60)
    assert len(site.running(*arrays)) == 6
    assert site.killed == 1
    assert all(times == 1 for times in site.slurm.requeued.values())
