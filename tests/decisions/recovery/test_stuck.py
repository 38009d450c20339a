"""A requeued job stuck COMPLETING on its faulty node: its agent ends it there; a DOWN only if that failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.actions.action import Intent, IntentState, SendOrder, SetDown, Verb
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob


def _stuck(site: Site, nodes: int = 2, **options: object) -> SimJob:
    """A job that trains on n1 (and on), where its tasks will hang."""
    job = site.slurm.submit(nodes, comment="holdfast", exclusive=True, **options)
    site.run(2)
    assert "n1" in job.nodes
    site.slurm.nodes["n1"].stuck = True
    return job


def _verbs(site: Site) -> list[str]:
    return [verb for verb, _ in site.slurm.calls]


def _orders(site: Site) -> list[Intent]:
    found = [i for i in site.store.intents() if isinstance(i.action, SendOrder) and i.action.verb is Verb.END_JOB]
    return sorted(found, key=lambda i: i.planned_at)


def _downs(site: Site) -> list[Intent]:
    return [i for i in site.store.intents() if isinstance(i.action, SetDown)]


def test_the_nodes_own_agent_frees_the_job_and_no_down_is_needed() -> None:
    site = Site(3)
    job = _stuck(site)
    site.fault("n1")
    site.run(10)
    assert (job.state, _orders(site)) == ("COMPLETING", [])
    site.run(12)
    (order,) = _orders(site)
    assert isinstance(order.action, SendOrder)
    assert (order.action.node, order.action.args["job_id"]) == ("n1", job.job_id)
    assert (order.action.args["restarts"], order.state) == (0, IntentState.DONE)
    assert order.action.boot_id == site.machine("n1").boot_id
    assert (job.state, job.restarts, "n1" in job.nodes) == ("RUNNING", 1, False)
    site.run(700, step_s=10)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert (len(_orders(site)), "set_down" in _verbs(site)) == (1, False)


def test_what_survives_the_kill_is_freed_by_a_down() -> None:
    site = Site(3)
    job = _stuck(site)
    site.machine("n1").kill_helps = False
    site.fault("n1")
    site.run(25)
    assert [o.state for o in _orders(site)] == [IntentState.FAILED]
    assert [d.planned_at >= o.planned_at for d, o in zip(_downs(site), _orders(site), strict=True)] == [True]
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_an_order_that_was_carried_out_in_vain_is_followed_by_a_down_after_a_second_grace() -> None:
    site = Site(3)
    job = _stuck(site)
    site.agents.end_job = lambda _machine, _job_id, _restarts: ""
    site.fault("n1")
    site.run(25)
    assert ([o.state for o in _orders(site)], _downs(site)) == ([IntentState.DONE], [])
    assert job.state == "COMPLETING"
    site.run(15)
    assert len(_downs(site)) == 1
    assert job.state == "RUNNING"


def test_an_agent_that_does_not_answer_the_order_is_not_waited_for_for_ever() -> None:
    site = Site(3)
    job = _stuck(site)
    obey = site.agents.obey
    site.agents.obey = lambda: None  # type: ignore[method-assign]  # it is heard, and takes no orders
    site.fault("n1")
    site.run(50)
    assert ([o.state for o in _orders(site)], _downs(site)) == ([IntentState.PLANNED], [])
    site.run(20)
    assert ([o.state for o in _orders(site)], len(_downs(site))) == ([IntentState.FAILED], 1)
    assert job.state == "RUNNING"
    site.agents.obey = obey  # type: ignore[method-assign]


@pytest.mark.parametrize("alive_s", [1, 20])
def test_without_an_agent_there_the_node_is_set_down(alive_s: int) -> None:
    """Its agent fell silent before the order or after: then Holdfast does not wait for the order to end."""
    site = Site(3)
    job = _stuck(site)
    site.agents.end_job = lambda _machine, _job_id, _restarts: "never reached"
    site.agents.obey = lambda: None  # type: ignore[method-assign]
    site.fault("n1")
    site.run(alive_s)
    site.machine("n1").agent_up = False
    site.run(26)
    assert [o.state for o in _orders(site)] == [IntentState.PLANNED]
    assert len(_downs(site)) == 1
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_an_agent_that_is_silent_already_is_sent_no_order() -> None:
    site = Site(3, policy=replace(POLICY, job=replace(POLICY.job, stuck_completing_s=30.0)))
    job = _stuck(site)
    site.fault("n1")
    site.run(1)
    site.machine("n1").agent_up = False
    site.run(45)
    assert (_orders(site), len(_downs(site)), job.state) == ([], 1, "RUNNING")


def test_tasks_that_hang_elsewhere_are_nobodys_to_end() -> None:
    site = Site(3)
    job = _stuck(site)
    site.slurm.nodes["n1"].stuck = False
    site.slurm.nodes["n2"].stuck = True
    site.fault("n1")
    site.run(60)
    assert (job.state, _orders(site), _downs(site)) == ("COMPLETING", [], [])


def test_a_down_waits_until_the_faulty_node_alone_holds_the_job() -> None:
    site = Site(4)
    job = _stuck(site)
    site.machine("n1").kill_helps = False
    site.slurm.nodes["n2"].stuck = True
    site.fault("n1")
    site.run(60)
    assert _downs(site) == [], "a DOWN of n1 alone would not free it"
    site.slurm.nodes["n2"].stuck = False
    site.run(5)
    assert (len(_downs(site)), job.state) == (1, "RUNNING")


@pytest.mark.parametrize("kill_helps", [True, False])
def test_a_neighbour_on_the_node_is_left_alone(kill_helps: bool) -> None:
    site = Site(2)
    hurt = site.slurm.submit(1, gpus=2, comment="holdfast")
    neighbour = site.slurm.submit(1, gpus=2, user="bob", uid=1001)
    assert hurt.nodes == neighbour.nodes == ("n1",)
    site.slurm.nodes["n1"].stuck = True
    site.machine("n1").kill_helps = kill_helps
    site.fault("n1", minor=0)
    site.run(120)
    assert (neighbour.state, neighbour.restarts) == ("RUNNING", 0)
    assert not site.slurm.nodes["n1"].down
    assert hurt.state == ("RUNNING" if kill_helps else "COMPLETING")
    site.slurm.finish(neighbour, "COMPLETED")
    site.run(60)
    assert (hurt.state, len(_downs(site))) == ("RUNNING", int(not kill_helps)), "once no other job is there it is freed"


def test_nothing_is_ended_while_paused_and_the_order_goes_out_afterwards() -> None:
    site = Site(3)
    job = _stuck(site)
    site.fault("n1")
    site.run(5)
    site.operate("pause")
    site.run(60)
    assert job.state == "COMPLETING"
    assert (_downs(site), {o.state for o in _orders(site)}) == ([], {IntentState.WITHHELD})
    site.operate("resume")
    site.run(5)
    assert (job.state, _downs(site)) == ("RUNNING", [])


def test_the_order_goes_to_the_machine_that_serves_and_not_to_its_replacement() -> None:
    site = Site(3)
    _stuck(site)
    serving = site.machine("n1").instance_id
    site.fault("n1")
    site.run(25)
    assert [o.action.instance_id for o in _orders(site) if isinstance(o.action, SendOrder)] == [serving]


def test_a_second_run_that_hangs_on_another_faulty_node_has_an_order_of_its_own() -> None:
    site = Site(4, policy=replace(POLICY, job=replace(POLICY.job, stuck_completing_s=5.0)))
    job = _stuck(site)
    site.fault("n1", check="gpu.a")
    site.run(15)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    second = job.nodes[0]
    site.slurm.nodes[second].stuck = True
    site.fault(second, check="gpu.b")
    site.run(15)
    assert (job.state, job.restarts) == ("RUNNING", 2)
    assert [(o.action.node, o.action.args["restarts"]) for o in _orders(site) if isinstance(o.action, SendOrder)] == [
        ("n1", 0),
        (second, 1),
    ]
    assert site.recovery(job.job_id).phase in (RecoveryPhase.RUNNING, RecoveryPhase.RESUMED)


def test_a_drain_of_an_operators_is_no_ground() -> None:
    site = Site(3)
    job = _stuck(site)
    site.fault("n1")
    site.run(5)
    site.slurm.operator_resumes("n1")
    site.slurm.operator_drains("n1", "mine now")
    site.run(60)
    assert (job.state, _orders(site)) == ("COMPLETING", [])
    assert "set_down" not in _verbs(site)
