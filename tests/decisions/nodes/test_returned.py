"""How an incident ends whose node was out of service: when the node served again, who returned it, and what was done to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.model.event import BY_OTHERS, Event, EventKind
from holdfast.model.incidents.incident import IncidentState
from holdfast.ports import Operation
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.provider import FULL

_S = IncidentState


def returned(site: Site, node: str = "n1") -> list[Event]:
    return list(site.store.events(incident_id=site.incident(node).id, kinds=(EventKind.NODE_RETURNED,)))


def _wait_for(site: Site, state: IncidentState) -> None:
    for _ in range(900):
        if site.incident("n1").state is state:
            return
        site.run(1)
    raise AssertionError(site.story())


@pytest.mark.parametrize("state", [_S.CONTAINED, _S.REPAIRING, _S.VALIDATING, _S.AWAITING_HUMAN])
def test_an_operators_resume_puts_the_return_on_record_in_each_state(state: IncidentState) -> None:
    site = Site(2)
    if state is _S.CONTAINED:
        site.slurm.submit(1, exclusive=True)
    site.fault("n1", remedy=Remedy.HUMAN if state is _S.AWAITING_HUMAN else Remedy.REPLACE)
    if state is _S.REPAIRING:
        site.provider.capacity = False
    site.run(2)
    _wait_for(site, state)
    site.slurm.operator_resumes("n1")
    at = site.clock.now()
    site.run(5)
    assert site.incident("n1").state is _S.CLOSED
    (event,) = returned(site)
    assert (event.detail[BY_OTHERS], (event.at - at).total_seconds() <= 2) == (True, True)
    site.read_background()
    (outage,) = site.loop.observer.background.newest.outages
    assert (outage.back_at, outage.by_others, outage.over) == (event.at, True, True)
    assert "put the node back into service" in outage.ended


def test_holdfasts_own_return_is_on_record_once() -> None:
    site = Site(2)
    site.fault("n1")
    site.run(400)
    (event,) = returned(site)
    assert event.detail[BY_OTHERS] is False


@pytest.mark.parametrize("in_service", [True, False])
def test_an_operators_close_says_whether_the_node_serves(in_service: bool) -> None:
    site = Site(2)
    site.fault("n1", remedy=Remedy.HUMAN)
    _wait_for_human(site)
    closing = Operation("close", "ops", site.incident("n1").id, "swapped", in_service=in_service)
    site.store.operate(closing, site.clock.now())
    assert len(returned(site)) == in_service
    site.run(5)
    site.read_background()
    (outage,) = site.loop.observer.background.newest.outages
    assert (outage.over, outage.back_at is not None, outage.ended) == (True, in_service, "close by ops: swapped")


def _wait_for_human(site: Site) -> None:
    site.run(2)
    _wait_for(site, _S.AWAITING_HUMAN)


def test_a_node_that_is_still_out_has_no_return() -> None:
    site = Site(2)
    site.fault("n1", remedy=Remedy.HUMAN)
    _wait_for_human(site)
    site.read_background()
    (outage,) = site.loop.observer.background.newest.outages
    assert (outage.over, outage.back_at, outage.ended, returned(site)) == (False, None, "", [])


def _clears(site: Site) -> None:
    job = site.slurm.submit(1, exclusive=True)
    finding = site.agents.find(site.machine("n1"), sticky=True)
    site.run(5)
    site.agents.clear(site.machine("n1"), finding.check, finding.component)
    site.run(5)
    site.slurm.finish(job, "COMPLETED")


def _silent_under_its_job(site: Site) -> None:
    """Cut off with a job that did not opt in: drained, never touched."""
    for _ in range(8):
        site.slurm.submit(2, exclusive=True)
    site.run(2)
    machine = site.machine("n1")
    machine.cut_off, machine.unreachable_by = True, set(site.slurm.nodes) - {"n1"}
    site.run(120)
    machine.cut_off, machine.unreachable_by = False, set()


WAYS: list[tuple[str, Callable[[Site], object], str]] = [
    (
        "replaced",
        lambda s: s.fault("n1"),
        "its machine was replaced; its checks and its deep checks passed; back in service",
    ),
    (
        "rebooted",
        lambda s: s.fault("n1", remedy=Remedy.REBOOT),
        "it was rebooted; its checks and its deep checks passed; back in service",
    ),
    ("silent", _silent_under_its_job, "Holdfast repaired nothing; not tested, its job ran on; back in service"),
    ("cleared", _clears, "Holdfast repaired nothing; its checks and its deep checks passed; back in service"),
]


@pytest.mark.parametrize(("way", "begin", "note"), WAYS, ids=[w[0] for w in WAYS])
def test_what_was_done_is_said_and_nothing_else(way: str, begin: Callable[[Site], object], note: str) -> None:
    site = Site(16, can=replace(FULL, status=False)) if way == "silent" else Site(2)
    begin(site)
    for _ in range(200):
        site.run(5)
        if site.incident("n1").state is _S.CLOSED:
            break
    assert site.incident("n1").note == note, site.story()
    (undrain,) = [i for i in site.store.intents() if i.kind == "Undrain"]
    assert undrain.reason == note.replace("; back in service", ": back into service")


def test_one_that_a_human_has_to_repair_names_the_evidence_and_the_runbook() -> None:
    site = Site(2)
    finding = site.agents.find(
        site.machine("n1"), check="host.disk", code="full", component="/scratch", minor=None, remedy=Remedy.HUMAN
    )
    _wait_for_human(site)
    note = site.incident("n1").note
    assert note.startswith(
        f"{finding.check} {finding.code} on /scratch: no step of Holdfast repairs this; repair the node"
    )
    assert "holdfast runbook awaiting-human" in note
    (page,) = [sent for sent in site.notices.sent if "needs an operator" in sent]
    assert "host.disk full on /scratch" in page


@pytest.mark.parametrize("restarted", [False, True])
def test_a_node_that_comes_back_days_after_its_incident_was_closed_by_hand_has_its_return(restarted: bool) -> None:
    site = Site(2)
    site.fault("n1", remedy=Remedy.HUMAN)
    _wait_for_human(site)
    site.operate("close", site.incident("n1").id, "board ordered")
    site.run(3 * 86400, step_s=1800)
    if restarted:
        site.start_controller()
    site.run(60, step_s=5)
    assert returned(site) == []
    site.slurm.operator_resumes("n1")
    at = site.clock.now()
    site.run(60, step_s=5)
    (event,) = returned(site)
    assert (event.detail[BY_OTHERS], (event.at - at).total_seconds() <= 6) == (True, True)
    site.slurm.operator_drains("n1", "again, for another reason")
    site.run(10)
    site.slurm.operator_resumes("n1")
    site.run(10)
    assert returned(site) == [event], "once"
    site.read_background()
    (outage,) = site.loop.observer.background.newest.outages
    assert (outage.back_at, outage.over) == (event.at, True)


def test_a_node_that_an_operator_took_over_and_closed_has_its_return() -> None:
    """Its drain is not Holdfast's any more when the incident is closed."""
    site = Site(2)
    site.fault("n1", remedy=Remedy.HUMAN)
    _wait_for_human(site)
    site.slurm.operator_resumes("n1")
    site.slurm.operator_drains("n1", "mine")
    site.run(5)
    site.operate("close", site.incident("n1").id, "mine")
    site.run(5)
    site.slurm.operator_resumes("n1")
    site.run(5)
    assert len(returned(site)) == 1
