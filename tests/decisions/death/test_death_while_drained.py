"""A node that dies while it is out of service for another fault: its job has lost it, and its open incident becomes one about a death."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.actor.second_look import HEARD_AGAIN, outlived
from holdfast.model.actions.action import Intent, IntentState, SetDown, Terminate
from holdfast.model.book import Change
from holdfast.model.event import EventKind
from holdfast.model.ids import slurm_reason
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from holdfast.model.machine import ProviderCan
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.provider import FULL, NOTHING
from support.simulated.slurm import SimJob

BLIND = replace(FULL, status=False)


def _drained(can: ProviderCan = BLIND, **fault: object) -> tuple[Site, SimJob]:
    """n1 is drained for a fault of a GPU; a job that did not opt in runs on, on n1 and n2."""
    site = Site(4, can=can)
    job = site.slurm.submit(2, exclusive=True)
    site.run(2)
    site.fault("n1", **fault)
    site.run(3)
    assert (site.incident("n1").state, job.state, job.restarts) == (IncidentState.CONTAINED, "RUNNING", 0)
    return site, job


def _calls(site: Site, verb: str) -> list[str]:
    return [target for name, target in site.slurm.calls if name == verb]


def test_its_job_is_let_go_by_slurms_own_down_and_nothing_is_done_twice() -> None:
    """The job did not opt in: its node is not set DOWN a second before SlurmdTimeout."""
    site, job = _drained()
    site.machine("n1").powered = False
    site.run(60)
    incident = site.incident("n1")
    assert incident.dead, site.story()
    site.run(220, step_s=5)
    assert (job.state, job.restarts) == ("RUNNING", 0)
    site.run(300, step_s=5)
    assert (job.state, job.restarts, "n1" in job.nodes) == ("RUNNING", 1, False)
    assert _calls(site, "requeue") == []
    assert len(site.store.incidents(node="n1")) == 1, "one fault, one incident"
    assert site.provider.tokens == {}, "its power is not seen off"
    site.run(1500, step_s=5)
    assert site.incident("n1").state is IncidentState.CLOSED, site.story()
    assert _calls(site, "drain") == ["n1"]
    assert dict(site.provider.terminated) == {"i-0001": 1}


def test_a_job_on_another_gpu_of_a_degraded_node_has_lost_it_too() -> None:
    site, job = _drained(severity=Severity.DEGRADED, remedy=Remedy.REBOOT)
    machine = site.machine("n1")
    site.agents.state(machine, "checkpoint.register", job.job_id, 0, path="/ckpt", detail={"fenced": True})
    site.run(5)
    assert job.restarts == 0, "a degraded node's jobs run on"
    machine.powered = False
    site.run(60)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    first_down = next(e for e in site.store.events(kinds=(EventKind.ACTION_DONE,)) if e.detail["kind"] == "SetDown")
    terminations = [e for e in site.store.events(kinds=(EventKind.ACTION_DONE,)) if e.detail["kind"] == "Terminate"]
    assert all(e.at > first_down.at for e in terminations), "its library is the fence"


def test_the_witnesses_are_asked_as_for_any_silent_node() -> None:
    site, job = _drained()
    site.machine("n1").agent_up = False  # the machine lives, and its peers reach it
    site.run(200, step_s=5)
    probes = [i for i in site.book.intents.values() if "/SendOrder/probe/" in i.key]
    assert probes
    assert {i.reason.split(":")[0] for i in probes} == {"n1 is silent"}
    incident = site.incident("n1")
    assert (incident.dead, incident.state, incident.check) == (False, IncidentState.CONTAINED, "gpu.xid")
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert _calls(site, "set_down") == []


@pytest.mark.parametrize("severity", [Severity.FATAL, Severity.DEGRADED])
def test_heard_again_before_anything_was_done_it_is_what_it_was(severity: Severity) -> None:
    site, job = _drained(NOTHING, severity=severity)
    before = site.incident("n1")
    machine = site.machine("n1")
    machine.cut_off, machine.unreachable_by = True, {"n2", "n3", "n4"}
    site.run(90)
    assert site.incident("n1").dead
    assert (job.state, job.restarts, _calls(site, "set_down")) == ("RUNNING", 0, [])
    machine.cut_off, machine.unreachable_by = False, set()
    site.run(30)
    after = site.incident("n1")
    told = ("state", "severity", "remedy", "check", "headline", "gpu_minors", "dead", "fault_at")
    assert {n: getattr(after, n) for n in told} == {n: getattr(before, n) for n in told}
    assert (job.state, job.restarts) == ("RUNNING", 0)
    if severity is Severity.FATAL:
        assert site.recovery(job.job_id).phase in (RecoveryPhase.AWAITING_CONSENT, RecoveryPhase.WAITING), "not stopped"
    site.slurm.finish(job, "COMPLETED")
    site.run(20)
    assert site.incident("n1").state is IncidentState.AWAITING_HUMAN, "nothing can replace it here"


def test_answers_about_an_earlier_silence_do_not_count() -> None:
    site, _ = _drained(NOTHING)
    machine = site.machine("n1")
    machine.cut_off, machine.unreachable_by = True, {"n2", "n3", "n4"}
    dead_at = [0.0]
    for _ in range(60):
        site.run(1)
        if site.incident("n1").dead:
            dead_at.append(site.clock.elapsed_s)
            break
    machine.cut_off = False
    site.run(12)
    assert not site.incident("n1").dead
    machine.cut_off = True
    asked = len([i for i in site.book.intents.values() if "/SendOrder/probe/" in i.key])
    while not site.incident("n1").dead:
        site.run(1)
        assert site.clock.elapsed_s < dead_at[-1] + 120
    again = len([i for i in site.book.intents.values() if "/SendOrder/probe/" in i.key])
    assert again > asked, "it is dead only on what was said of this silence"


def test_a_node_whose_machine_is_being_changed_is_not_asked_about() -> None:
    site = Site(4, can=NOTHING)
    site.fault("n1")
    site.run(5)
    assert site.incident("n1").state is IncidentState.AWAITING_HUMAN
    site.machine("n1").powered = False
    site.run(120, step_s=5)
    assert not site.incident("n1").dead
    assert [i for i in site.book.intents.values() if "/SendOrder/probe/" in i.key] == []


@pytest.mark.parametrize("dead_first", [False, True])
def test_a_node_that_an_operator_took_over_is_theirs_dead_or_not(dead_first: bool) -> None:
    site, _job = _drained(replace(BLIND, power_off_confirmed=False) if dead_first else BLIND)
    if not dead_first:
        site.slurm.operator_drains("n1")
    site.machine("n1").powered = False
    site.run(60)
    if dead_first:
        site.slurm.operator_drains("n1")
        site.provider.can = BLIND
        site.run(60)
    assert site.incident("n1").dead is dead_first
    assert site.incident("n1").state is IncidentState.AWAITING_HUMAN
    assert (site.provider.terminated, _calls(site, "set_down")) == ({}, [])


def test_a_job_that_was_just_ending_there_is_let_go() -> None:
    site, job = _drained()
    site.slurm.finish(job, "COMPLETED")
    site.machine("n1").powered = False
    site.run(400, step_s=5)
    assert _calls(site, "set_down") == []
    assert (job.state, job.restarts) == ("COMPLETED", 0)


def test_what_only_its_death_called_for_is_not_done_once_it_is_heard_again() -> None:
    site, _ = _drained()
    incident = site.incident("n1")
    down = SetDown("n1", slurm_reason(incident.id, "node.dead: silent to the controller"), node_dead=True)
    stuck = SetDown("n1", slurm_reason(incident.id, f"{incident.headline}; tasks stuck"))
    off = Terminate("i-0001", "n1", fence=True)
    book = site.book
    verdicts = [
        outlived(book, Intent(f"{incident.id}/x/1", incident.id, a, "", 1, IntentState.PLANNED, site.clock.now()))
        for a in (down, stuck, off)
    ]
    assert verdicts == [HEARD_AGAIN, None, HEARD_AGAIN]
    assert HEARD_AGAIN.text == "the node has reported again in the meantime"


def test_a_down_that_was_dropped_because_the_node_was_heard_again_may_be_tried_again() -> None:
    """It may die after all, under the same incident."""
    site, _ = _drained()
    incident = site.incident("n1")
    step = SetDown("n1", slurm_reason(incident.id, "node.dead: silent to the controller"), node_dead=True)
    key = f"{incident.id}/SetDown/n1/1"
    lease = site.store.lease()
    assert lease is not None
    planned = Intent(key, incident.id, step, "", lease.fence, IntentState.PLANNED, site.clock.now())
    site.store.commit(Change(intents=(planned,)), lease.fence)
    site.act()
    dropped = next(i for i in site.store.intents() if i.key == key)
    assert (dropped.state, dropped.outcome) == (IntentState.FAILED, "the node has reported again in the meantime")
    assert dropped.retryable
    assert _calls(site, "set_down") == []
