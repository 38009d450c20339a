"""Silence is unknown. A node is dead by two witnesses, and its old run is fenced before the job writes elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.actions.action import Intent, IntentState, SendOrder, SetDown
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from support.simulated import Site
from support.simulated.provider import FULL, NOTHING
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

BLIND = replace(FULL, status=False)
"""A provider that reports nothing about a machine's health."""


def _training(site: Site, *, fenced: bool) -> SimJob:
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(2)
    if fenced:
        machine = site.machine("n1")
        detail = {"fenced": True}
        site.agents.state(machine, "checkpoint.register", job.job_id, 0, path="/ckpt", detail=detail)
    site.run(2)
    return job


def _touched(site: Site) -> list[tuple[str, str]]:
    return [c for c in site.slurm.calls if c[0] in ("drain", "set_down", "requeue")]


def test_a_dead_node_is_set_down_and_its_job_runs_elsewhere() -> None:
    site = Site(4, can=BLIND)
    job = _training(site, fenced=True)
    site.machine("n1").powered = False
    site.run(45)
    assert ("set_down", "n1") in site.slurm.calls
    assert ("requeue", str(job.job_id)) not in site.slurm.calls, "setting DOWN is the requeue"
    assert (job.state, job.restarts, "n1" in job.nodes) == ("RUNNING", 1, False)
    assert site.provider.terminated == {}, "fenced by its checkpoint library: no power-off needed"
    assert site.provider.tokens == {}
    site.run(1400, step_s=5)
    assert site.incident("n1").state is IncidentState.CLOSED


def test_the_provider_is_a_witness_too() -> None:
    site = Site(1)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(3)
    site.machine("n1").powered = False
    site.run(45)
    assert site.incident("n1").dead
    assert job.restarts == 1


def test_silence_alone_is_nothing() -> None:
    site = Site(1, can=BLIND)  # no other witness
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(3)
    site.machine("n1").powered = False
    site.run(280, step_s=5)
    assert site.incident("n1").state is IncidentState.SUSPECTED
    assert _touched(site) == []


@pytest.mark.parametrize("how", ["agent_up", "cut_off"])
def test_a_peer_that_reaches_it_says_it_lives(how: str) -> None:
    site = Site(4)
    job = _training(site, fenced=True)
    machine = site.machine("n1")
    setattr(machine, how, how == "cut_off")
    site.run(280, step_s=5)
    assert site.incident("n1").state is IncidentState.SUSPECTED
    assert "it lives" in site.incident("n1").note
    assert (_touched(site), job.restarts, site.provider.terminated) == ([], 0, {})
    setattr(machine, how, how == "agent_up")
    site.run(15)
    assert site.incident("n1").state is IncidentState.CLOSED


def test_one_peers_broken_link_is_outvoted_by_a_peer_that_reaches_it() -> None:
    site = Site(4, can=BLIND)
    _training(site, fenced=True)
    machine = site.machine("n1")
    machine.agent_up, machine.unreachable_by = False, {"n2"}
    site.run(200, step_s=5)
    assert site.incident("n1").state is IncidentState.SUSPECTED
    assert _touched(site) == []


def test_many_silent_at_once_make_the_controller_the_suspect() -> None:
    site = Site(8)
    for n in range(1, 5):
        site.machine(f"n{n}").powered = False
    site.run(280, step_s=5)
    assert site.store.incidents() == ()
    assert _touched(site) == []


@pytest.mark.parametrize("apart_s", [0, 45])
def test_with_all_agents_stopped_jobs_start_and_end_as_without_holdfast(apart_s: int) -> None:
    """At once (a bad package), or one node after the other (a roll-out that breaks them)."""
    site = Site(6, spares=("n6",))
    first = site.slurm.submit(2, comment="holdfast", exclusive=True)
    for machine in site.machines.values():
        machine.agent_up = False
        site.run(apart_s, step_s=5)
    site.run(400, step_s=5)
    second = site.slurm.submit(2, comment="holdfast", exclusive=True)
    third = site.slurm.submit(2, exclusive=True)
    site.run(100, step_s=5)
    assert [job.state for job in (first, second, third)] == ["RUNNING", "RUNNING", "PENDING"]
    site.slurm.finish(first, "COMPLETED")
    site.run(60, step_s=5)
    assert [job.state for job in (first, second, third)] == ["COMPLETED", "RUNNING", "RUNNING"]
    assert (_touched(site), site.slurm.calls, site.provider.tokens, site.provider.terminated) == (
        [], [("create_reservation", "holdfast-spares")], {}, {},
    )  # fmt: skip
    for machine in site.machines.values():
        machine.agent_up = True
    site.run(120, step_s=5)
    assert site.store.incidents(only_open=True) == ()


def test_nodes_known_to_be_dead_do_not_make_it_so() -> None:
    site = Site(8, can=replace(NOTHING, status=True))
    for n in range(1, 5):
        site.machine(f"n{n}").powered = False
        site.run(620, step_s=5)
        assert site.incident(f"n{n}").dead, f"n{n}"


def test_a_fresh_controller_concludes_nothing_from_silence() -> None:
    site = Site(4)
    site.machine("n1").powered = False
    site.start_controller()
    site.run(29)
    assert site.store.incidents() == ()
    site.run(40)
    assert site.incident("n1").dead


def test_a_suspicion_outlives_the_controller() -> None:
    """A controller that has just started has received no report: that is no sign of life."""
    site = Site(4, can=BLIND)
    machine = site.machine("n1")
    machine.cut_off = True
    site.run(40)
    suspicion = site.incident("n1")
    site.start_controller()
    site.run(29)
    assert site.incident("n1").state is IncidentState.SUSPECTED
    machine.cut_off = False
    site.run(15)
    assert (site.incident("n1").id, site.incident("n1").state) == (suspicion.id, IncidentState.CLOSED)


@pytest.mark.parametrize("can", [NOTHING, replace(FULL, power_off_confirmed=False)])
def test_an_unfenced_job_waits_for_a_human(can: object) -> None:
    site = Site(4, can=can)  # type: ignore[arg-type]
    site.provider.sees_power = False
    job = _training(site, fenced=False)
    site.machine("n1").powered = False
    site.run(120, step_s=2)
    assert site.incident("n1").dead
    assert ("set_down", "n1") not in site.slurm.calls
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert site.recovery(job.job_id).phase is RecoveryPhase.WAITING
    assert [n for n in site.notices.sent if "cannot be fenced" in n] == [
        f"n1 does not answer and cannot be fenced: job {job.job_id} waits"
    ]
    node = site.slurm.nodes["n1"]
    node.down, node.reason, node.user = True, "confirmed off", "ops"
    site.slurm._kill_on("n1")
    site.run(5)
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_a_machine_is_never_ended_as_a_fence_and_power_that_is_off_is_one() -> None:
    site = Site(4)
    job = _training(site, fenced=False)
    machine = site.machine("n1")
    machine.cut_off, machine.unreachable_by = True, {"n2", "n3", "n4"}  # it trains on, unseen
    site.run(120)
    assert site.incident("n1").dead
    assert (job.restarts, site.provider.terminated, site.provider.tokens) == (0, {}, {})
    machine.powered = False
    site.run(90)
    assert ("set_down", "n1") in site.slurm.calls
    assert (job.state, job.restarts) == ("RUNNING", 1)


@pytest.mark.parametrize("slurmd_timeout_s", [300, 0])
def test_a_job_without_consent_is_stopped_when_slurm_would_and_never_ahead_of_it(slurmd_timeout_s: int) -> None:
    """Where SlurmdTimeout is 0 Slurm never would, so Holdfast sets the node DOWN, after 300 s."""
    site = Site(4, can=NOTHING)
    site.slurm.slurmd_timeout_s = slurmd_timeout_s
    site.run(301, step_s=5)
    job = site.slurm.submit(2, exclusive=True)
    site.run(2)
    site.agents.state(site.machine("n1"), "checkpoint.saved", job.job_id, 0, step=1)
    site.machine("n1").powered = False
    site.run(280, step_s=5)
    assert site.incident("n1").dead
    assert (job.restarts, ("set_down", "n1") in site.slurm.calls) == (0, False)
    assert site.slurm.nodes["n1"].drain, "it takes no new work"
    if slurmd_timeout_s == 0:
        site.provider.can = FULL
    site.run(400, step_s=5)
    assert (job.state, job.restarts, "n1" in job.nodes) == ("RUNNING", 1, False)
    assert (("set_down", "n1") in site.slurm.calls) is (slurmd_timeout_s == 0)


def test_a_job_that_had_failed_on_the_dead_node_is_requeued_by_us() -> None:
    site = Site(4)
    job = _training(site, fenced=True)
    site.slurm.finish(job, "FAILED")
    site.run(3)
    site.slurm.submit(1, user="bob", uid=1001, exclusive=True, required=("n1",))
    site.machine("n1").powered = False
    site.run(60)
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_slurms_own_down_of_a_dead_node_is_nobodys_drain() -> None:
    site = Site(4, can=BLIND)
    _training(site, fenced=True)
    site.machine("n1").powered = False
    site.store.set_note("paused", "ops")
    site.run(320, step_s=5)
    assert site.slurm.nodes["n1"].reason == "Not responding"
    site.operate("resume")
    site.run(1500, step_s=5)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert not site.slurm.nodes["n1"].down
    assert "n1" in {u.node for u in site.slurm.undrained}


def test_a_job_that_fails_before_its_nodes_down_takes_effect_is_requeued_by_us() -> None:
    """Slurm's DOWN requeues only what still holds the node; the job may have ended while the order was in flight."""
    site = Site(4, can=BLIND)
    job = _training(site, fenced=True)
    site.slurm.on_set_down = lambda _node: site.slurm.finish(job, "FAILED")
    site.machine("n1").powered = False
    site.run(60)
    assert ("set_down", "n1") in site.slurm.calls
    assert (job.state, job.restarts, "n1" in job.nodes) == ("RUNNING", 1, False)
    assert site.slurm.requeued[(job.job_id, 0)] == 1


def test_survivors_are_told_of_leftover_steps_at_the_down_itself() -> None:
    """The grace period passes on the node, once; nothing else delays the order after the DOWN."""
    policy = replace(POLICY, death=replace(POLICY.death, end_leftover_steps=True))
    site = Site(4, can=BLIND, policy=policy)
    job = _training(site, fenced=True)
    site.machine("n1").powered = False
    site.run(60)
    assert job.restarts == 1
    (down,) = [i for i in site.store.intents() if isinstance(i.action, SetDown)]
    (order,) = [i for i in site.store.intents() if "/end_step/" in i.key]
    assert order.key == f"{site.incident('n1').id}/SendOrder/end_step/n2.{job.job_id}r0/1"
    assert order.planned_at == down.finished_at
    assert isinstance(order.action, SendOrder)
    assert order.action.args == {"job_id": job.job_id, "grace_s": 1.5, "wait_s": 5.0}


def test_no_step_is_ended_without_a_down() -> None:
    policy = replace(POLICY, death=replace(POLICY.death, end_leftover_steps=True))
    site = Site(4, policy=policy)
    job = _training(site, fenced=True)
    site.fault("n1")
    site.run(30)
    assert job.restarts == 1
    assert [i for i in site.store.intents() if "/end_step/" in i.key] == []


def test_a_job_that_came_after_the_decision_is_not_taken_from_a_dead_node() -> None:
    """It is not known whether its run is fenced: the step is decided again."""
    site = Site(4, can=NOTHING)
    _training(site, fenced=True)
    site.machine("n1").powered = False
    came: list[str] = []

    def start_a_job(intent: Intent, moment: str) -> None:
        if isinstance(intent.action, SetDown) and moment == "started" and not came:
            job = site.slurm.submit(1, exclusive=True, required=("n1",))
            job.state, job.nodes, job.minors = "RUNNING", ("n1",), {"n1": frozenset(range(8))}
            came.append(site.slurm.jobs[job.job_id].state)

    site.at_boundary = start_a_job
    site.run(60)
    assert came == ["RUNNING"]
    failed = [i for i in site.store.intents() if isinstance(i.action, SetDown) and i.state is IntentState.FAILED]
    assert "started on n1 after the decision" in failed[0].outcome
    assert not site.slurm.nodes["n1"].down
