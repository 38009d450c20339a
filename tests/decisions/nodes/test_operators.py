"""Operators' actions are kept: drains by hand, nodes put back, incidents taken over; and what a previous installation left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.errors import NotPermitted
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import Reservation
from support.simulated import Site
from support.simulated.site import POLICY

_S = IncidentState
HOLD = frozenset({"FLEX", "OVERLAP"})
"""Flags of a reservation by which Holdfast keeps nodes for a job."""


def _by_hand(site: Site, name: str = "n1") -> bool:
    node = site.slurm.nodes[name]
    return node.drain and (node.reason, node.user) == ("psu", "ops")


def test_a_drain_before_the_incident_is_neither_overwritten_nor_cleared() -> None:
    site = Site(2)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.slurm.operator_drains("n1")
    site.fault("n1")
    site.run(400, step_s=5)
    assert _by_hand(site)
    assert (job.restarts, job.state, job.nodes) == (1, "RUNNING", ("n2",)), "its job is helped all the same"
    assert site.incident("n1").state is _S.AWAITING_HUMAN
    assert "ops drained the node ('psu')" in site.incident("n1").note
    assert site.provider.tokens == {}


@pytest.mark.parametrize("after_s", [1, 2, 20, 45, 60, 100])
def test_a_drain_during_the_incident_ends_the_repair(after_s: int) -> None:
    site = Site(2)
    site.fault("n1")
    site.run(after_s)
    site.slurm.operator_drains("n1")
    site.run(600, step_s=5)
    assert _by_hand(site)
    assert site.slurm.undrained == []
    assert site.incident("n1").state is _S.AWAITING_HUMAN
    assert site.provider.live() == {"i-0001", "i-0002"}, "their machine stands, what was launched is gone"
    site.slurm.operator_resumes("n1")
    site.run(2)
    assert site.incident("n1").state is _S.CLOSED


def test_a_drain_in_the_moment_of_ours_wins() -> None:
    site = Site(2)
    site.fault("n1")
    site.turn()
    site.slurm.operator_drains("n1")
    site.run(60)
    assert _by_hand(site)
    assert ("drain", "n1") not in site.slurm.calls


def test_an_undrain_is_refused_when_the_drain_is_no_longer_ours() -> None:
    site = Site(2)
    site.fault("n1")
    while "Undrain" not in {i.kind for i in site.store.intents()}:
        site.clock.advance(1)
        site.world_moves()
        site.turn()
        if "Undrain" not in {i.kind for i in site.store.intents()}:
            site.act()
    site.slurm.nodes["n1"].reason += " (ops: wait)"
    site.act()
    site.run(30)
    assert site.slurm.undrained == []
    assert site.incident("n1").state is _S.CLOSED
    assert "left to the operator" in site.incident("n1").note


def test_a_node_put_back_before_the_repair_is_theirs() -> None:
    site = Site(2)
    job = site.slurm.submit(1, exclusive=True)
    site.fault("n1")
    site.run(3)
    site.slurm.operator_resumes("n1")
    site.run(30)
    assert site.incident("n1").state is _S.CLOSED
    assert (job.state, job.restarts) == ("RUNNING", 0)


def test_a_resume_while_the_fault_stands_says_so() -> None:
    site = Site(2)
    site.fault("n1")
    site.run(3)
    site.slurm.operator_resumes("n1")
    site.run(10)
    assert "Nothing shows that its fault is repaired (gpu.xid 79" in site.incident("n1").note
    assert "Nothing shows that its fault is repaired" in site.story(site.incident("n1").id)
    site.fault("n1")
    site.run(10)
    assert site.slurm.nodes["n1"].drain, "reported again: drained again, as the note says"


def test_a_resume_after_the_fault_has_cleared_says_nothing_of_it() -> None:
    site = Site(2, policy=replace(POLICY, repair=replace(POLICY.repair, rungs=())))
    site.slurm.submit(1, exclusive=True)
    site.fault("n1", check="host.mount", component="/data", sticky=True)
    site.run(3)
    site.agents.clear(site.machine("n1"), "host.mount", "/data")
    site.slurm.operator_resumes("n1")
    site.run(10)
    assert site.incident("n1").note.endswith("theirs now")


def test_a_node_put_back_during_the_validation_costs_the_new_machine_not_theirs() -> None:
    site = Site(2)
    site.fault("n1")
    site.run(50)
    assert site.incident("n1").state is _S.VALIDATING
    site.slurm.operator_resumes("n1")
    site.run(60)
    assert site.incident("n1").state is _S.CLOSED
    assert site.provider.live() == {"i-0001", "i-0002"}


@pytest.mark.parametrize("verb", ["close", "acknowledge"])
def test_what_an_operator_ends_is_not_done_any_more(verb: str) -> None:
    site = Site(3)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(1)
    site.fault("n1")
    site.turn()
    site.operate(verb, site.incident("n1").id)
    site.run(120, step_s=5)
    assert site.slurm.calls == []
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert site.recovery(job.job_id).phase is RecoveryPhase.GONE


def test_a_new_fault_after_it_hurts_the_same_run_again() -> None:
    site = Site(3)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(1)
    site.fault("n1")
    site.turn()
    site.operate("close", site.incident("n1").id)
    site.run(10)
    site.fault("n1", code="63")
    site.run(3)
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_an_operators_word_during_the_turn_makes_it_stale_and_the_next_turn_sees_it() -> None:
    site = Site(2)
    site.fault("n1")
    site.turn()
    before = site.book
    site.operate("acknowledge", site.incident("n1").id)
    assert before.incidents != site.book.incidents
    site.run(5)
    assert site.incident("n1").state is _S.WATCHING


def test_with_an_empty_store_our_drains_are_found_again_and_nothing_is_concluded() -> None:
    site = Site(2, warm=False)
    node = site.slurm.nodes["n1"]
    node.drain, node.reason, node.user = True, "holdfast[1kjmmb3pg001]: gpu.xid 79", "root"
    node.time = site.clock.now()
    site.slurm.operator_drains("n2")
    site.run(120, step_s=2)
    incident = site.incident("n1")
    assert (incident.id, incident.state, incident.check) == ("1kjmmb3pg001", _S.AWAITING_HUMAN, "store.adopted")
    assert site.store.incidents(node="n2") == ()
    assert (node.drain, site.slurm.calls, site.provider.tokens) == (True, [], {})
    site.slurm.operator_resumes("n1")
    site.run(2)
    assert site.incident("n1").state is _S.CLOSED


def test_holds_of_nobody_are_tidied_and_other_peoples_reservations_are_not() -> None:
    site = Site(2)
    now = site.clock.now()
    theirs = {
        "maint": HOLD,
        "holdfast-maintenance": HOLD,
        "holdfast-gpufirmware1-2": HOLD,
        "holdfast-1kjmmb3pg001-78": frozenset({"MAINT"}),
    }
    for name, flags in {"holdfast-1kjmmb3pg001-77": HOLD, **theirs}.items():
        site.slurm.reservations[name] = Reservation(name, ("n2",), flags=flags, start_time=now)
    site.run(3)
    assert set(site.slurm.reservations) == set(theirs)


def test_a_hold_made_again_under_the_same_name_is_dropped_again() -> None:
    site = Site(2)
    held = Reservation("holdfast-1kjmmb3pg001-77", ("n2",), flags=HOLD, start_time=site.clock.now())
    for _ in range(2):
        site.slurm.reservations[held.name] = held
        site.run(3)
        assert site.slurm.reservations == {}


def test_a_hold_that_slurm_does_not_let_go_for_hours_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Early attempts are forgotten after an hour; the next one is still a separate step."""
    site = Site(2)
    held = Reservation("holdfast-1kjmmb3pg001-77", ("n2",), flags=HOLD, start_time=site.clock.now())
    site.slurm.reservations[held.name] = held
    plain = site.slurm.delete_reservation

    def refuses(name: str) -> None:
        raise NotPermitted(f"no permission for {name}")

    monkeypatch.setattr(site.slurm, "delete_reservation", refuses)
    site.run(3 * 3600, step_s=30)
    monkeypatch.setattr(site.slurm, "delete_reservation", plain)
    site.run(600, step_s=30)
    assert site.slurm.reservations == {}


def test_a_hold_of_nobody_does_not_stop_the_loop_in_observe_mode_either() -> None:
    """A step that would have been taken is recorded once; forgotten after an hour, it is recorded again."""
    site = Site(2, policy=replace(POLICY, mode=Mode.OBSERVE))
    held = Reservation("holdfast-1kjmmb3pg001-77", ("n2",), flags=HOLD, start_time=site.clock.now())
    site.slurm.reservations[held.name] = held
    site.run(3 * 3600, step_s=30)
    assert site.slurm.reservations == {held.name: held}
    assert 2 <= len([i for i in site.store.intents() if i.kind == "DropHold"]) <= 5
